//! Every pair of calls both ways round, each with its own place and time: if the rules call them independent, replies and
//! contents are equal. And every entry of the matrices matters: without it, a pair is found.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use quorate_fs::nfs3::rules::{FUNCTIONS, FsRules, Group, Verdict};
use quorate_fs::nfs3::*;
use quorate_fs::rpc::xdr::{self, Opaque};
use quorate_fs::settings::{Atime, Export, Squash};
use quorate_fs::{Fs, Settings};
use quorate_service::parallel::{Arguments, Matrices, Rules as _};

use support::{Bench, H, fh, mode, place, size};

/// One call: what it is, its group, and its operation.
struct Op {
    name: String,
    group: Group,
    bytes: Vec<u8>,
    arguments: Arguments,
}

/// A file system, the calls, and the questions that show what it contains.
struct World {
    bench: Bench,
    ops: Vec<Op>,
    questions: Vec<Vec<u8>>,
    matrices: Matrices,
}

fn settings(atime: Atime) -> Settings {
    let open = |path| Export { squash: Squash::Nobody, ..Export::of(path) };
    Settings { exports: vec![open("/"), open("/d")], reply_pages: 64, atime, ..Settings::default() }
}

/// The calls on a file, by each of its handles.
fn on_file(file: &[u8]) -> Vec<Call<'_>> {
    let write = |offset, data| {
        let (stable, count) = (StableHow::Unstable, u32::try_from(<[u8]>::len(data)).unwrap());
        Call::Write(WriteArgs { file: fh(file), offset, count, stable, data: Opaque(data) })
    };
    let set = |attributes| Call::SetAttr(SetAttrArgs { object: fh(file), attributes, guard: None });
    vec![
        Call::GetAttr(fh(file)),
        Call::Access(AccessArgs { object: fh(file), access: 0x3f }),
        Call::Read(ReadArgs { file: fh(file), offset: 0, count: 6000 }),
        Call::FsStat(fh(file)),
        Call::FsInfo(fh(file)),
        Call::PathConf(fh(file)),
        Call::ReadLink(fh(file)),
        write(1, b"one"),
        write(2, b"other"),
        write(20_000, b"far away"),
        set(size(3)),
        set(mode(0o600)),
        set(SetAttr { uid: Some(7), mtime: SetTime::Server, ..SetAttr::default() }),
        Call::Commit(CommitArgs { file: fh(file), offset: 0, count: 0 }),
    ]
}

/// The calls on a directory with an entry of this name.
fn in_directory<'a>(dir: &'a [u8], name: &'a str) -> Vec<Call<'a>> {
    let place = |name| place(dir, name);
    vec![
        Call::GetAttr(fh(dir)),
        Call::Access(AccessArgs { object: fh(dir), access: 0x3f }),
        Call::FsStat(fh(dir)),
        Call::Lookup(place(name)),
        Call::Lookup(place("new")),
        Call::ReadDir(ReadDirArgs { dir: fh(dir), cookie: 0, verf: [0; 8], count: 4000 }),
        Call::ReadDirPlus(ReadDirPlusArgs { dir: fh(dir), cookie: 0, verf: [0; 8], dircount: 900, maxcount: 9000 }),
        Call::SetAttr(SetAttrArgs { object: fh(dir), attributes: mode(0o700), guard: None }),
        Call::Create(CreateArgs { place: place("new"), how: CreateHow::Unchecked(mode(0o644)) }),
        Call::MkDir(MkDirArgs { place: place("new"), attributes: mode(0o755) }),
        Call::SymLink(SymLinkArgs { place: place("new"), attributes: mode(0o777), target: Opaque(b"f") }),
        Call::MkNod(MkNodArgs { place: place("new"), what: MkNodData::Pipe(FileType::Fifo, mode(0o666)) }),
        Call::Remove(place(name)),
        Call::RmDir(place("sub")),
        Call::Rename(RenameArgs { from: place(name), to: place("new") }),
    ]
}

fn world(atime: Atime) -> World {
    let mut bench = Bench::with(settings(atime), 1 << 12);
    let b = &mut bench;
    let root = b.root.clone();
    let dir = b.mkdir(&root, "d", 0o777).unwrap();
    for parent in [&root, &dir] {
        b.mkdir(parent, "sub", 0o755).unwrap();
    }
    let large = b.file(&root, "f");
    b.write(&large, 0, &[7; 5000]).unwrap();
    let small = b.file(&dir, "a");
    b.write(&small, 0, b"small").unwrap();
    let link = b.symlink(&root, "l", b"f").unwrap();
    // The same directory and the same file under another handle.
    let alias = b.mount("/d").unwrap();
    let small_alias = b.lookup(&alias, "a").unwrap();
    assert!(alias != dir && small_alias != small);

    let files: [&H; 4] = [&large, &small, &small_alias, &link];
    let mut calls: Vec<Call<'_>> = files.iter().flat_map(|file| on_file(file)).collect();
    for (dir, name) in [(&root, "f"), (&dir, "a"), (&alias, "a")] {
        calls.extend(in_directory(dir, name));
        calls.push(Call::Link(LinkArgs { file: fh(&large), link: place(dir, "new") }));
    }
    calls.extend([Call::Null(()), Call::GetAttr(fh(b"no handle"))]);
    let mut named: Vec<(String, usize, Vec<u8>)> = calls
        .iter()
        .map(|call| (format!("{call:?}"), call.procedure() as usize, b.nfs_operation(call)))
        .collect();
    for (procedure, path) in [
        (mount3::Procedure::Null, ""),
        (mount3::Procedure::Mnt, "/"),
        (mount3::Procedure::Mnt, "/d"),
        (mount3::Procedure::Mnt, "/sub"),
        (mount3::Procedure::Mnt, "/new"),
        (mount3::Procedure::Umnt, "/"),
        (mount3::Procedure::Umnt, "/d"),
        (mount3::Procedure::UmntAll, ""),
        (mount3::Procedure::Dump, ""),
        (mount3::Procedure::Export, ""),
    ] {
        let takes_path = matches!(procedure, mount3::Procedure::Mnt | mount3::Procedure::Umnt);
        let args = if takes_path { xdr::encode(&Opaque::<1024>(path.as_bytes())) } else { Vec::new() };
        // From another machine, too, so that a record of a mount is new.
        for address in [1, 9] {
            b.address[15] = address;
            let operation = b.operation(mount3::PROGRAM, procedure as u32, &args);
            let function = Procedure::ALL.len() + procedure as usize;
            named.push((format!("{procedure:?} {path} from {address}"), function, operation));
        }
        b.address[15] = 1;
    }

    // Everything that a client can see, asked at a later time.
    let mut asked: Vec<Call<'_>> = files.iter().map(|file| Call::GetAttr(fh(file))).collect();
    asked.extend(files.iter().map(|file| Call::Read(ReadArgs { file: fh(file), offset: 0, count: 30_000 })));
    asked.push(Call::ReadLink(fh(&link)));
    for dir in [&root, &dir] {
        let (cookie, verf) = (0, [0; 8]);
        asked.push(Call::ReadDirPlus(ReadDirPlusArgs {
            dir: fh(dir),
            cookie,
            verf,
            dircount: 900,
            maxcount: 9000,
        }));
    }
    let mut questions: Vec<Vec<u8>> = asked.iter().map(|call| b.nfs_operation(call)).collect();
    questions.push(b.operation(mount3::PROGRAM, mount3::Procedure::Dump as u32, &[]));

    let fs = Fs::new(settings(atime)).unwrap();
    let rules = FsRules::new(&fs);
    let ops = named
        .into_iter()
        .map(|(name, function, bytes)| {
            let mut arguments = Arguments::default();
            rules.parse(&bytes, &mut arguments);
            Op { name, group: Group::of(function).unwrap(), bytes, arguments }
        })
        .collect();
    World { ops, questions, matrices: rules.matrices().unwrap(), bench }
}

impl World {
    /// Executes two calls in one order, and returns the replies and what a client sees then. The second of the agreed
    /// order is one place and one millisecond later.
    fn run(&mut self, first: usize, second: usize, is_reversed: bool) -> Vec<Vec<u8>> {
        let time_ns = self.bench.time_ns + 1_000_000;
        let seq = self.bench.seq() + 1;
        let one = Bench::at(time_ns, seq, 0, &self.ops[first].bytes);
        let other = Bench::at(time_ns + 1_000_000, seq, 1, &self.ops[second].bytes);
        let questions: Vec<Vec<u8>> =
            self.questions.iter().map(|ask| Bench::at(time_ns + 2_000_000, seq, 2, ask)).collect();
        let mut all: Vec<&[u8]> = if is_reversed { vec![&other, &one] } else { vec![&one, &other] };
        all.extend(questions.iter().map(Vec::as_slice));
        let mut results = self.bench.try_together(&all);
        if is_reversed {
            results.swap(0, 1);
        }
        results
    }

    /// Returns whether the order of two calls cannot be seen.
    fn commute(&mut self, first: usize, second: usize) -> bool {
        self.run(first, second, false) == self.run(first, second, true)
    }
}

/// Groups whose entry no pair of calls shows to be needed. Each entry is right, because it only costs parallelism.
///
/// A mount takes a page only if the tree of mounts grows, which one more record does not.
const NOT_SHOWN: [(Group, Group); 3] =
    [(Group::Fullness, Group::Mount), (Group::Fullness, Group::Unmount), (Group::Mount, Group::Mount)];

fn check(atime: Atime) {
    let mut world = world(atime);
    let fs = Fs::new(settings(atime)).unwrap();
    let rules = FsRules::new(&fs);
    let mut independent = 0;
    // For each entry, whether some pair needs it.
    let mut needed = std::collections::BTreeSet::new();
    for first in 0..world.ops.len() {
        for second in 0..world.ops.len() {
            let (a, b) = (&world.ops[first], &world.ops[second]);
            let depends = a.arguments.depends(&b.arguments, &world.matrices);
            let groups = (a.group.min(b.group), a.group.max(b.group));
            if depends && needed.contains(&groups) {
                continue;
            }
            let commute = world.commute(first, second);
            let (a, b) = (&world.ops[first], &world.ops[second]);
            assert!(commute || depends, "{atime:?}: {} and {} are called independent", a.name, b.name);
            independent += usize::from(!depends);
            if !commute {
                needed.insert(groups);
            }
        }
    }
    assert!(independent > 2000, "{independent} pairs are independent");
    for (at, a) in Group::ALL.into_iter().enumerate() {
        for b in Group::ALL.into_iter().skip(at) {
            let is_needed = needed.contains(&(a, b));
            let is_declared = rules.verdict(a, b) != Verdict::Independent;
            let is_shown = !NOT_SHOWN.contains(&(a, b));
            assert_eq!(is_needed, is_declared && is_shown, "{atime:?}: {a:?} and {b:?}");
        }
    }
}

#[test]
fn independent_calls_commute_and_every_entry_is_needed_with_relatime() {
    check(Atime::Relatime);
}

#[test]
fn independent_calls_commute_and_every_entry_is_needed_with_strict_times() {
    check(Atime::Strict);
}

#[test]
fn independent_calls_commute_and_every_entry_is_needed_without_access_times() {
    check(Atime::None);
}

/// Each function has a row, and an invalid call is independent of everything: it gets its answer without the state.
#[test]
fn calls_are_parsed() {
    let fs = Fs::new(settings(Atime::None)).unwrap();
    let rules = FsRules::new(&fs);
    assert!((0..FUNCTIONS).all(|function| Group::of(function).is_some()));
    assert_eq!(Group::of(FUNCTIONS), None);
    let matrices = rules.matrices().unwrap();
    assert_eq!(matrices.functions(), FUNCTIONS);
    let world = world(Atime::None);
    let mut invalid = Arguments::default();
    for bytes in [&b""[..], b"x", &world.ops[0].bytes[..40]] {
        rules.parse(bytes, &mut invalid);
        assert!(world.ops.iter().all(|op| !invalid.depends(&op.arguments, &matrices)));
    }
}
