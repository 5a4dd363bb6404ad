//! The check of the state finds what is broken.
#![allow(clippy::unwrap_used, clippy::panic, clippy::result_large_err, reason = "a test may panic")]

use crate::support::*;

/// A file system with some of everything.
fn furnished() -> Bench {
    let mut b = Bench::new();
    let root = b.root.clone();
    let dir = b.mkdir(&root, "dir", 0o755).unwrap();
    let inner = b.mkdir(&dir, "inner", 0o755).unwrap();
    for i in 0..200 {
        let file = b.file(if i % 2 == 0 { &dir } else { &inner }, &format!("file{i}"));
        b.write(&file, i * 1000, &vec![1; 3000]).unwrap();
    }
    b.symlink(&root, "link", b"target").unwrap();
    b.assert_clean();
    b
}

/// Each number of the head that is not what it was is a finding.
#[test]
fn a_wrong_number_in_the_head_is_found() {
    for (at, what) in [
        (8, "given out"),
        (16, ""),
        (24, ""),
        (32, ""),
        (40, ""),
        (72, "next"),
        (80, "inodes"),
        (88, "mounts"),
    ] {
        let mut b = furnished();
        b.vandalize(0, at, &[3, 0, 0, 0]);
        let report = b.fsck();
        assert!(!report.is_clean(), "head at {at}");
        assert!(report.findings.iter().any(|finding| finding.contains(what)), "{at}: {:?}", report.findings);
    }
}

/// A changed field of an inode, a name or an extent, wherever it stands.
#[test]
fn a_changed_field_is_found() {
    let b = furnished();
    let view = b.executor.view();
    // Pages of trees begin with the kind of their node; those of files are full of ones.
    let leaves: Vec<u32> = (17..300).filter(|page| view.page(*page).unwrap()[..2] == [1, 0]).collect();
    let used: Vec<usize> = leaves.iter().map(|page| usize::from(view.page(*page).unwrap()[2])).collect();
    assert!(leaves.len() >= 4, "leaves of four trees at least");
    let (mut found, mut tried) = (0, 0);
    for (page, count) in leaves.iter().zip(used) {
        for at in [0, count / 2, count.saturating_sub(1)] {
            let mut b = furnished();
            let (cell, key) = {
                let view = b.executor.view();
                let bytes = view.page(*page).unwrap();
                let u16_at = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
                let cell = u16_at(12 + 2 * at);
                (cell, u16_at(cell))
            };
            // The first byte of the value: a kind, an inode, a first page.
            let at = u32::try_from(cell + 4 + key).unwrap();
            // The tree of mounts has keys alone.
            let Some(old) = b.executor.view().page(*page).unwrap().get(cell + 4 + key).copied() else {
                continue;
            };
            b.vandalize(*page, at, &[old ^ 0x55]);
            tried += 1;
            found += u32::from(!b.fsck().is_clean());
        }
    }
    assert!(tried >= 12);
    assert_eq!(found, tried);
}

/// Whatever is overwritten, the check ends, and so does every call.
#[test]
fn damage_is_survived() {
    let mut random = Xorshift::new(77);
    for _ in 0..30 {
        let mut b = furnished();
        let root = b.root.clone();
        for _ in 0..4 {
            let page = u32::try_from(random.below(60)).unwrap();
            let at = u32::try_from(random.below(if page < 20 { 96 } else { 4000 })).unwrap();
            let bytes = random.next().to_le_bytes();
            b.vandalize(page, at, &bytes);
        }
        let _ = b.fsck();
        for name in ["dir", "link", "new"] {
            for operation in [
                b.nfs_operation(&quorate_fs::nfs3::Call::Lookup(place(&root, name))),
                b.nfs_operation(&quorate_fs::nfs3::Call::Remove(place(&root, name))),
                b.nfs_operation(&quorate_fs::nfs3::Call::MkDir(quorate_fs::nfs3::MkDirArgs {
                    place: place(&root, name),
                    attributes: mode(0o755),
                })),
            ] {
                b.operate(&operation);
            }
        }
    }
}
