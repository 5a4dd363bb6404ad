//! What grows with a file system does not make its calls dearer: counted in pages, which is what a call costs.
#![allow(clippy::unwrap_used, clippy::panic, clippy::result_large_err, reason = "a test may panic")]

use crate::support::*;
use quorate_fs::nfs3::Stat;

/// Names in no order, so that each goes somewhere else.
fn name(i: u32) -> String {
    format!("file{:08x}", i.wrapping_mul(0x9e37_79b1))
}

/// Does something and returns how many pages it read at most in one go, and wrote in all.
fn pages(b: &mut Bench, steps: u32, mut step: impl FnMut(&mut Bench, u32)) -> (usize, u64) {
    let (mut read_max, written) = (0, b.touched.written.get());
    for i in 0..steps {
        // A checkpoint reads all pages written since the last one.
        let is_cut = b.seq().is_multiple_of(128) || (b.seq() + 1).is_multiple_of(128);
        *b.touched.read.borrow_mut() = Some([].into());
        step(b, i);
        let read = b.touched.read.borrow_mut().take().unwrap().len();
        if !is_cut {
            read_max = read_max.max(read);
        }
    }
    (read_max, b.touched.written.get() - written)
}

/// Fills a directory, and then creates, finds, lists and removes a thousand files more, in no order. Returns the
/// pages that this took, as [`pages`] does.
fn directory(files: u32) -> [(usize, u64); 4] {
    const MORE: u32 = 1000;
    let mut b = Bench::new();
    let root = b.root.clone();
    let dir = b.mkdir(&root, "d", 0o755).unwrap();
    (0..files).for_each(|i| drop(b.file(&dir, &name(i))));
    let some = |i: u32| name(files / MORE * i);
    let found = [
        pages(&mut b, MORE, |b, i| drop(b.file(&dir, &name(files + i)))),
        pages(&mut b, MORE, |b, i| drop(b.lookup(&dir, &some(i)).unwrap())),
        pages(&mut b, MORE, |b, i| {
            let (entries, _) = b.readdir(&dir, u64::from(files / MORE * i), 2048).unwrap();
            assert!(!entries.is_empty());
        }),
        pages(&mut b, MORE, |b, i| assert!(b.remove(&dir, &some(i)).is_ok())),
    ];
    b.assert_clean();
    found
}

/// A call in a directory of many files reads and writes the pages that it does in one of few, but for a level
/// or two more of the trees that it goes down.
#[test]
fn a_large_directory_takes_as_many_pages_a_call_as_a_small_one() {
    let (few, many) = (directory(1000), directory(30_000));
    println!(
        "create, find, list, remove: pages read at most by a call, written by a thousand\n{few:?}\n{many:?}"
    );
    // Create and remove go down the trees of names, cookies and inodes, the first and the last for a file
    // and for its directory; what finds and lists goes down two or three.
    for (few, many) in few.iter().zip(many) {
        assert!(many.0 <= few.0 + 6, "{} pages read, not {}", many.0, few.0);
        assert!(many.0 <= 24, "{} pages read", many.0);
        assert!(many.1 <= few.1 + few.1 / 10, "{} pages written, not {}", many.1, few.1);
    }
    // Eight: the head, the reply's, three leaves, the directory's inode, its user's, the client's; and now and then
    // a node.
    assert!(many[0].1 <= 8500 && many[3].1 <= 8500, "{many:?}");
    // The first listing after a change notes the time, which takes the head and the directory's inode.
    assert!(many[1].1 == 0 && many[2].1 <= 3, "what reads writes nothing: {many:?}");
}

/// A file of 20 GB of which next to nothing has been written takes next to nothing: no room, and no work for
/// what is not there.
#[test]
fn a_sparse_file_of_20_gb_costs_what_is_written_of_it() {
    const SIZE: u64 = 20_000_000_000;
    let mut b = Bench::with(open_settings(), 1 << 12);
    let root = b.root.clone();
    let file = b.file(&root, "sparse");
    let used = b.fsstat().fbytes;
    let places = [SIZE - 5, SIZE / 2, SIZE / 4 * 3 + 2558, 4000];
    for at in places {
        let (read, written) =
            pages(&mut b, 1, |b, _| assert_eq!(b.write(&file, at, b"hello").unwrap().count, 5));
        assert!(read <= 16 && written <= 10, "{read} pages read, {written} written");
    }
    let attributes = b.getattr(&file).unwrap();
    // One of the writes is on two pages.
    assert_eq!((attributes.size, attributes.used), (SIZE, 5 * 4096));
    assert_eq!(used - b.fsstat().fbytes, 6 * 4096, "its pages, and a leaf of extents");
    for at in places {
        assert_eq!(b.read(&file, at, 5).unwrap().0, b"hello");
        assert_eq!(b.read(&file, at - 4000, 4000).unwrap().0, [0; 4000], "a hole before {at}");
    }
    let (read, _) = pages(&mut b, 1, |b, _| {
        let (zeros, is_end) = b.read(&file, SIZE / 3, 1 << 20).unwrap();
        assert!(zeros.len() == 1 << 20 && zeros.iter().all(|byte| *byte == 0) && !is_end);
    });
    assert!(read <= 10, "{read} pages read for a hole");

    // Cut in the middle of its pages, to nothing, and up again: what was behind is gone. One of the pages is that of
    // what its owner has.
    for (to, left) in [(SIZE / 2 + 3, 2), (2000, 1), (0, 0), (SIZE, 0)] {
        let (read, written) = pages(&mut b, 1, |b, _| assert!(b.setattr(&file, size(to)).is_ok()));
        assert!(read <= 16 && written <= 11, "to {to}: {read} pages read, {written} written");
        let attributes = b.getattr(&file).unwrap();
        assert_eq!((attributes.size, attributes.used), (to, left * 4096));
        b.assert_clean();
    }
    assert_eq!(b.read(&file, SIZE / 2, 5).unwrap().0, [0; 5]);
    assert_eq!(b.read(&file, SIZE - 5, 5).unwrap(), (vec![0; 5], true));
    assert_eq!(b.write(&file, 16 << 40, b"x").unwrap_err(), Stat::FBig);
}
