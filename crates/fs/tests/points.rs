//! What a serious NFS server gets right, point by point.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod support;

use quorate_fs::nfs3::*;
use support::*;

#[test]
fn it_runs() {
    let mut b = Bench::new();
    let root = b.root.clone();
    let f = b.file(&root, "a");
    assert_eq!(b.write(&f, 0, b"hello").unwrap().count, 5);
    assert_eq!(b.read(&f, 1, 100).unwrap(), (b"ello".to_vec(), true));
    assert_eq!(b.names(&root, 4096), ["a"]);
    b.remove(&root, "a").unwrap();
    assert_eq!(b.getattr(&f), Err(Stat::Stale));
}
