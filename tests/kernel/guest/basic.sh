# What programs do with files, in the directory that is mounted. One line a case: ok or FAILED; status 1 if one failed.
# $SOURCE is a tree of files to copy.
failures=0

check() {
  name=$1
  if said=$("$name" 2>&1); then
    echo "ok      $name"
  else
    echo "FAILED  $name: $(echo "$said" | tail -n 3 | tr '\n' ' ')"
    failures=$((failures + 1))
  fi
}

forget() {
  sync
  echo 3 >/proc/sys/vm/drop_caches
}

sums() {
  (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum)
}

# Says that a command fails, and in which words.
refused() {
  words=$1
  shift
  if said=$("$@" 2>&1); then
    echo "it was done: $*"
    return 1
  fi
  case $said in *"$words"*) ;; *)
    echo "$said"
    return 1
    ;;
  esac
}

tree_is_copied_and_read_back() {
  cp -r "$SOURCE" tree || return 1
  sums "$SOURCE" >/mnt/tmp/before
  forget
  sums tree >/mnt/tmp/after
  cmp /mnt/tmp/before /mnt/tmp/after && [ -s /mnt/tmp/after ]
}

tree_is_packed_and_unpacked() {
  tar -cf tree.tar tree && mkdir unpacked && tar -xf tree.tar -C unpacked || return 1
  forget
  diff -r tree unpacked/tree
}

rename_replaces_and_moves() {
  mkdir a b && echo one >a/x && echo two >b/y && mv a/x b/y || return 1
  forget
  [ "$(cat b/y)" = one ] && [ ! -e a/x ] && mv b a/ && [ "$(cat a/b/y)" = one ]
}

rename_refuses_what_it_must() {
  mkdir -p r/inner full && touch full/f || return 1
  refused "subdirectory of itself" mv -T r r/inner/r && refused "not empty" mv -T r full
}

unlink_keeps_what_is_open() {
  echo kept >open && exec 3<open && rm open || return 1
  [ ! -e open ] && forget && read -r line <&3 && exec 3<&- && [ "$line" = kept ]
}

large_file_is_the_same_again() {
  dd if=/dev/urandom of=/mnt/tmp/large bs=1M count=48 status=none && cp /mnt/tmp/large large || return 1
  forget
  cmp /mnt/tmp/large large && [ "$(stat -c %s large)" = 50331648 ]
}

exclusive_creation_happens_once() {
  (set -C && echo 1 >exclusive) || return 1
  refused "File exists" sh -c 'set -C; echo 2 >exclusive' || refused "cannot create" sh -c 'set -C; echo 2 >exclusive'
  [ "$(cat exclusive)" = 1 ]
}

append_goes_to_the_end() {
  for i in 1 2 3 4 5 6 7 8; do echo "line $i" >>log; done
  forget
  [ "$(wc -l <log)" = 8 ] && [ "$(tail -n 1 log)" = "line 8" ]
}

truncate_cuts_and_makes_holes() {
  echo "hello world" >cut && truncate -s 5 cut && [ "$(cat cut)" = hello ] || return 1
  truncate -s 1T cut && forget && [ "$(stat -c %s cut)" = 1099511627776 ] || return 1
  [ "$(dd if=cut bs=1 skip=1000000000000 count=4 status=none | od -An -tx1)" = " 00 00 00 00" ]
}

links_and_special_files() {
  echo text >file && ln file hard && ln -s file soft && mkfifo pipe && mknod null c 1 3 || return 1
  forget
  [ "$(stat -c %h file)" = 2 ] && [ "$(readlink soft)" = file ] && [ -p pipe ] && [ -c null ] || return 1
  rm file && [ "$(cat hard)" = text ] && [ "$(stat -c %h hard)" = 1 ]
}

attributes_are_kept() {
  touch attributes && chmod 4751 attributes && touch -d @1000000000 attributes || return 1
  chown 1234:5678 attributes && chmod 2640 attributes || return 1
  forget
  [ "$(stat -c '%a %u %g %Y' attributes)" = "2640 1234 5678 1000000000" ]
}

many_entries_are_listed_once() {
  mkdir many && (cd many && seq -f file-%g 1 3000 | xargs touch) || return 1
  forget
  [ "$(ls many | sort -u | wc -l)" = 3000 ] && [ "$(ls -f many | wc -l)" = 3002 ] && rm -r many && [ ! -e many ]
}

names_have_their_limits() {
  long=$(printf '%0255d' 0)
  touch "$long" && [ -e "$long" ] && refused "File name too long" touch "${long}0"
}

errors_are_the_right_ones() {
  mkdir -p errors/dir && touch errors/dir/f errors/file || return 1
  refused "not empty" rmdir errors/dir && refused "No such file" cat errors/none &&
    refused "Not a directory" ls errors/file/x && refused "Is a directory" dd of=errors/dir status=none
}

several_programs_at_a_time() {
  mkdir at-once || return 1
  for i in 1 2 3 4; do
    (seq 1 50 | while read -r n; do echo "$i $n" >"at-once/$i-$n" && mv "at-once/$i-$n" "at-once/$i-$n-done" || exit 1; done) &
  done
  wait
  forget
  [ "$(ls at-once | wc -l)" = 200 ] && [ "$(cat at-once/*-done | sort -u | wc -l)" = 200 ]
}

room_is_told() {
  df . | tail -n 1 | awk '{ exit !($2 > 0 && $4 > 0) }'
}

for name in tree_is_copied_and_read_back tree_is_packed_and_unpacked rename_replaces_and_moves \
  rename_refuses_what_it_must unlink_keeps_what_is_open large_file_is_the_same_again exclusive_creation_happens_once \
  append_goes_to_the_end truncate_cuts_and_makes_holes links_and_special_files attributes_are_kept \
  many_entries_are_listed_once names_have_their_limits errors_are_the_right_ones several_programs_at_a_time \
  room_is_told; do
  check $name
done
[ "$failures" = 0 ]
