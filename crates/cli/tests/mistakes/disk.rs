//! Disks that are full or cannot be written: real ones, in a mount namespace of their own.

use std::process::{Command, Output, Stdio};

use crate::support::{Dir, own_address};

/// Runs a script of the shell where it may mount. `$Q` is the command, `$D` a directory, `$H` an address.
fn mounting(dir: &Dir, script: &str) -> (Output, String) {
    let run = |flags: &[&str]| {
        Command::new("unshare")
            .args(flags)
            .args(["sh", "-eu", "-c", script])
            .env("Q", env!("CARGO_BIN_EXE_quorate"))
            .env("D", dir.path())
            .env("H", own_address().to_string())
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let can = |flags: &[&str]| {
        let tried =
            Command::new("unshare").args(flags).args(["mount", "-t", "tmpfs", "tmpfs", "/mnt"]).output();
        tried.is_ok_and(|tried| tried.status.success())
    };
    let flags = [&["-m"][..], &["-r", "-m"]].into_iter().find(|flags| can(flags));
    let Some(flags) = flags else {
        panic!("this test mounts: it needs root, or user namespaces, and `unshare`")
    };
    let output = run(flags);
    let text = [output.stdout.clone(), output.stderr.clone()].concat();
    (output, String::from_utf8(text).unwrap())
}

/// Where nothing can be written, or too little, nothing is made, and it is told once.
#[test]
fn nothing_is_made_on_a_full_or_read_only_disk() {
    let dir = Dir::new("full");
    for (options, command, code, says) in [
        ("size=40k", "$Q init --dir $D/m/c", "Q023", "No space left"),
        ("size=40k", "$Q up --dir $D/m/c --host $H --resp $H:6380", "Q023", "No space left"),
        ("ro", "$Q init --dir $D/m/c", "Q018", "Read-only file system"),
        ("size=10m", "$Q init --dir $D/m", "Q018", "choose a new directory below it"),
        ("ro", "$Q up --dir $D/m/c --host $H --resp $H:6380", "Q018", "Read-only file system"),
    ] {
        let script = format!(
            "mkdir -p $D/m; mount -t tmpfs -o {options} tmpfs $D/m; {command} && echo made; ls -A $D/m; umount $D/m"
        );
        let (output, text) = mounting(&dir, &script);
        assert!(output.status.success(), "{text}");
        assert!(text.starts_with(&format!("error {code}: ")) && text.contains(says), "{command}: {text}");
        assert!(text.contains("\n  do: ") && text.matches("error Q").count() == 1, "{command}: {text}");
        assert!(output.stdout.is_empty(), "something was made: {text}");
    }
}

/// A directory that turns read-only under a cluster that exists: it does not start, and all is there after.
#[test]
fn a_cluster_on_a_disk_that_has_turned_read_only() {
    let dir = Dir::new("ro");
    let script = "mkdir $D/m; mount -t tmpfs tmpfs $D/m; $Q init --dir $D/m/c --host $H >/dev/null
        cd $D/m; before=$(find . -type f | sort | xargs sha256sum); mount -o remount,ro $D/m
        $Q replica --dir $D/m/c/replica-1 || echo status $?
        test \"$before\" = \"$(find . -type f | sort | xargs sha256sum)\" && echo untouched";
    let (output, text) = mounting(&dir, script);
    assert!(output.status.success() && text.contains("status 2") && text.contains("untouched"), "{text}");
    assert!(text.contains("error Q018: ") && text.contains("Read-only file system"), "{text}");
}

/// The disk of a replica that runs fills up: it says so and promises nothing, the others go on, and when there
/// is room it continues as well, with nothing lost: another one is killed, so that it is needed.
#[test]
fn a_disk_that_fills_up_stops_one_replica_until_there_is_room() {
    let dir = Dir::new("fills");
    let script = r#"
        cd $D; mkdir m; mount -t tmpfs -o size=20m tmpfs m; $Q init --dir c --host $H >/dev/null
        mv c/replica-3 m/
        for i in 0 1 2; do $Q replica --dir c/replica-$i >/dev/null 2>$i.log & eval p$i=$!; done
        $Q replica --dir m/replica-3 >/dev/null 2>3.log & p3=$!
        trap 'kill -9 $p0 $p1 $p2 $p3 2>/dev/null || true' EXIT
        v=$(head -c 200000 /dev/zero | tr '\0' 'x')
        for i in $(seq 150); do echo "put k$i $i-$v"; done | $Q kv --dir c/client-0 | sort | uniq -c
        for i in $(seq 600); do grep -q 'the disk is full' 3.log && break; sleep 0.1; done
        grep -o 'the disk is full: acknowledging nothing' 3.log
        kill -0 $p3 && echo waits
        mount -o remount,size=200m m
        kill -9 $p0
        for i in 1 77 150; do echo "get k$i"; done | $Q kv --dir c/client-0 | cut -c1-8
        echo "incr n 1" | $Q kv --dir c/client-0
        kill $p3; wait $p3 && echo ended well
    "#;
    let (output, text) = mounting(&dir, script);
    let log = std::fs::read_to_string(dir.path().join("3.log")).unwrap_or_default();
    assert!(output.status.success(), "{text}\n{log}");
    let said: Vec<&str> = text.lines().map(str::trim).collect();
    let expected = [
        "150 ok",
        "the disk is full: acknowledging nothing",
        "waits",
        "ok 1-xxx",
        "ok 77-xx",
        "ok 150-x",
        "ok 1",
        "ended well",
    ];
    assert_eq!(said, expected, "{log}");
}
