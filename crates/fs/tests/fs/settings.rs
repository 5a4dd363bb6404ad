//! What goes the short way, times of last access, the agreed time, size.
#![allow(clippy::unwrap_used, clippy::panic, clippy::result_large_err, reason = "a test may panic")]

use crate::support::*;
use quorate_fs::nfs3::*;
use quorate_fs::rpc::xdr::{self, Opaque};
use quorate_fs::settings::Atime;
use quorate_fs::{Fs, OpKind, OpKinds, Settings};
use quorate_service::Service;

/// Returns how many of some calls were ordered: GETATTR, LOOKUP, READ and READDIR twice each.
fn ordered(settings: Settings) -> Vec<u64> {
    let mut b = Bench::with(settings, 1 << 12);
    let root = b.root.clone();
    let file = b.file(&root, "a");
    b.write(&file, 0, b"x").unwrap();
    let mut counts = Vec::new();
    let mut count = |b: &mut Bench, call: &dyn Fn(&mut Bench)| {
        let before = b.ordered;
        call(b);
        call(b);
        counts.push(b.ordered - before);
    };
    count(&mut b, &|b| assert!(b.getattr(&file).is_ok()));
    count(&mut b, &|b| drop(b.lookup(&root, "a").unwrap()));
    count(&mut b, &|b| drop(b.read(&file, 0, 1).unwrap()));
    count(&mut b, &|b| drop(b.readdir(&root, 0, 1000).unwrap()));
    counts
}

#[test]
fn reads_go_the_short_way_as_the_settings_say() {
    let with = |atime| Settings { atime, ..open_settings() };
    assert_eq!(ordered(with(Atime::None)), [0, 0, 0, 0]);
    assert_eq!(ordered(with(Atime::Relatime)), [0, 0, 1, 1], "only when the time is due");
    assert_eq!(ordered(with(Atime::Strict)), [0, 0, 2, 2]);
    // The variants of the paper: GETATTR alone, and LOOKUP too.
    let only =
        |kinds: &[OpKind]| Settings { read_only: OpKinds::of(kinds.iter().copied()), ..with(Atime::Strict) };
    assert_eq!(ordered(only(&[OpKind::GetAttributes])), [0, 2, 2, 2]);
    assert_eq!(ordered(only(&[OpKind::GetAttributes, OpKind::LookUp])), [0, 0, 2, 2]);
    assert_eq!(ordered(Settings { read_only: OpKinds::NONE, ..with(Atime::None) }), [2, 2, 2, 2]);
}

/// Whatever the setting names, what changes something is ordered.
#[test]
fn no_setting_makes_a_write_read_only() {
    let fs = Fs::new(Settings { read_only: OpKinds::ALL, ..open_settings() }).unwrap();
    let mut b = Bench::new();
    let root = b.root.clone();
    let remove = b.nfs_operation(&Call::Remove(place(&root, "a")));
    let get = b.nfs_operation(&Call::GetAttr(fh(&root)));
    assert!(!fs.is_read_only(&remove) && fs.is_read_only(&get));
}

#[test]
fn relatime_is_due_after_a_day() {
    let mut b = Bench::new();
    let root = b.root.clone();
    let file = b.file(&root, "a");
    b.write(&file, 0, b"x").unwrap();
    b.read(&file, 0, 1).unwrap();
    let before = b.getattr(&file).unwrap().atime;
    // Time continues with what is ordered.
    b.time_ns += 23 * 3600 * 1_000_000_000;
    b.file(&root, "b");
    b.read(&file, 0, 1).unwrap();
    assert_eq!(b.getattr(&file).unwrap().atime, before);
    b.time_ns += 2 * 3600 * 1_000_000_000;
    b.file(&root, "c");
    b.read(&file, 0, 1).unwrap();
    assert_ne!(b.getattr(&file).unwrap().atime, before);
}

/// [OSDI99 §6.2] The larger of what was proposed and one more than the largest before: times rise, even
/// if the proposals do not.
#[test]
fn times_rise_with_every_change() {
    let mut b = Bench::new();
    let root = b.root.clone();
    let file = b.file(&root, "a");
    let mut last = b.getattr(&file).unwrap().ctime.ns();
    for round in 0..10 {
        b.time_ns -= if round % 2 == 0 { 5_000_000 } else { 0 };
        b.write(&file, 0, b"x").unwrap();
        let ctime = b.getattr(&file).unwrap().ctime.ns();
        assert!(ctime > last);
        last = ctime;
    }
    // A batch has one time, and its calls have their own.
    let write = Call::Write(WriteArgs {
        file: fh(&file),
        offset: 0,
        count: 1,
        stable: StableHow::FileSync,
        data: Opaque(b"y"),
    });
    let (one, two) = (b.nfs_operation(&write), b.nfs_operation(&write));
    for reply in b.order_together(&[&one, &two]) {
        let done = xdr::decode::<NfsResult<WriteOk, Wcc>>(split(&reply).1).unwrap().unwrap();
        let ctime = done.wcc.after.unwrap().ctime.ns();
        assert!(ctime > last);
        last = ctime;
    }
}

/// The same calls give the same state, byte for byte.
#[test]
fn two_replicas_have_one_digest() {
    let run = || {
        let mut b = Bench::new();
        let root = b.root.clone();
        let mut random = Xorshift::new(5);
        for i in 0..400 {
            let name = format!("{}", random.below(50));
            let file = b.create(&root, &name, CreateHow::Unchecked(mode(0o644))).unwrap();
            b.write(&file, random.below(20_000), &vec![1; i]).unwrap();
            if random.below(3) == 0 {
                b.remove(&root, &name).unwrap();
            }
        }
        b.executor.checkpoints().last().unwrap()
    };
    assert_eq!(run(), run());
}

/// A write of one byte changes a few pages, however large the file and the directory are.
#[test]
fn a_small_write_changes_few_pages() {
    let mut b = Bench::new();
    let root = b.root.clone();
    for i in 0..3000 {
        b.file(&root, &format!("file{i}"));
    }
    let file = b.file(&root, "big");
    for i in 0..20 {
        b.write(&file, i << 20, &vec![1; 1 << 20]).unwrap();
    }
    let pages = |b: &Bench| {
        let view = b.executor.view();
        (0..view.pages()).map(|page| view.page(page).unwrap().to_vec()).take(9000).collect::<Vec<_>>()
    };
    let before = pages(&b);
    b.write(&file, 7_654_321, b"x").unwrap();
    let after = pages(&b);
    let changed = before.iter().zip(&after).filter(|(a, b)| a != b).count();
    assert!((2..=4).contains(&changed), "the page, its inode, the head, a reply: {changed}");
}
