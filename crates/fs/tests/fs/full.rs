//! What is full says so with its own error, changes nothing, and can be emptied again.
#![allow(clippy::unwrap_used, clippy::panic, clippy::result_large_err, reason = "a test may panic")]

use crate::support::*;
use quorate_fs::Settings;
use quorate_fs::nfs3::*;
use quorate_fs::settings::Quota;

/// Pages of a disk that is soon full.
const PAGES: u32 = 314;

fn guarded() -> CreateHow {
    CreateHow::Guarded(mode(0o666))
}

/// Does all that makes something, and returns what it was told.
fn make_all(b: &mut Bench, dir: &[u8], suffix: &str) -> [Result<H, Stat>; 4] {
    let name = |kind: &str| format!("{kind}{suffix}");
    let attributes = SetAttr::default();
    [
        b.create(dir, &name("c"), guarded()),
        b.mkdir(dir, &name("d"), 0o777),
        b.symlink(dir, &name("s"), b"target"),
        b.mknod(dir, &name("p"), MkNodData::Pipe(FileType::Fifo, attributes)),
    ]
}

/// A disk that is full of names, and then of first bytes next to inodes, and then of pages. Whatever is tried
/// there, again and again, succeeds or says that there is no room, and the tree stays whole; what is removed makes
/// room, all of it.
#[test]
fn a_disk_that_is_full_of_small_things_stays_whole_and_can_be_emptied() {
    let mut b = Bench::with(open_settings(), PAGES);
    let root = b.root.clone();
    let long = |i: usize| format!("{i:0255}");
    let free = b.fsstat().fbytes;
    let mut files = Vec::new();
    loop {
        match b.create(&root, &long(files.len()), guarded()) {
            Ok(file) => files.push(file),
            Err(stat) => break assert_eq!(stat, Stat::NoSpc),
        }
    }
    assert!(files.len() > 300 && b.fsstat().abytes == 0, "{} files", files.len());
    b.assert_clean();

    // First bytes: of each file until there is no room, then a page.
    let written = files.iter().take_while(|file| b.write(file, 0, &[7; 512]).is_ok()).count();
    assert!(written < files.len(), "all {written} had room");
    for file in &files {
        assert!(matches!(b.write(file, 0, &[8; 512]).map_err(drop), Ok(_) | Err(())));
        assert_eq!(b.write(file, 8000, &[9; 5000]).unwrap_err(), Stat::NoSpc);
    }
    b.assert_clean();

    // Everything that changes something, in the order of no sense.
    for (i, file) in files.iter().enumerate() {
        let made = make_all(&mut b, &root, &i.to_string());
        assert!(made.iter().all(|made| made.is_ok() || *made == Err(Stat::NoSpc)), "{made:?}");
        let own = SetAttr { uid: Some(u32::try_from(i).unwrap()), ..mode(0o600) };
        let new = format!("n{i}");
        let done = [
            b.setattr(file, own).err(),
            b.setattr(file, size(100)).err(),
            b.setattr(file, size(1 << 30)).err(),
            b.link(file, &root, &new).err(),
            b.rename((&root, &long(i)), (&root, &new)).err(),
        ];
        assert!(done.iter().flatten().all(|stat| *stat == Stat::NoSpc), "{done:?}");
    }
    b.assert_clean();

    for name in b.names(&root, 64 << 10) {
        assert!(b.remove(&root, &name).is_ok() || b.rmdir(&root, &name).is_ok(), "{name}");
    }
    b.assert_clean();
    assert_eq!(b.fsstat().fbytes, free, "every page is free again");
    assert!(b.create(&root, "again", guarded()).is_ok());
}

/// The table of inodes is a bound of its own: what needs none of them continues.
#[test]
fn a_full_table_of_inodes_takes_no_more_until_one_is_free() {
    let mut b = Bench::with(Settings { inodes_max: 6, ..open_settings() }, PAGES);
    let root = b.root.clone();
    let made = make_all(&mut b, &root, "1");
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    let last = b.file(&root, "last");
    assert_eq!(make_all(&mut b, &root, "2"), [const { Err(Stat::NoSpc) }; 4]);
    assert_eq!((b.fsstat().tfiles, b.fsstat().ffiles, b.fsstat().afiles), (6, 0, 0));
    assert!(b.link(&last, &root, "link").is_ok() && b.rename((&root, "link"), (&root, "moved")).is_ok());
    assert_eq!(b.write(&last, 0, &[1; 5000]).unwrap().count, 5000);
    // A name of two is no inode.
    b.remove(&root, "moved").unwrap();
    assert_eq!(b.create(&root, "3", guarded()), Err(Stat::NoSpc));
    b.remove(&root, "last").unwrap();
    assert!(b.create(&root, "3", guarded()).is_ok());
    b.assert_clean();
}

/// A user's share, of files and of pages, is a user's: others and root go on, and a file that is given away
/// counts for whom it is given to.
#[test]
fn a_users_share_is_full_for_that_user_alone() {
    let quota = Quota { bytes_max: 8 * 4096, inodes_max: 5 };
    let mut b = Bench::with(Settings { quota, ..open_settings() }, PAGES);
    let root = b.root.clone();
    b.become_user(10, 10);
    let made = make_all(&mut b, &root, "1");
    assert!(made.iter().all(Result::is_ok), "{made:?}");
    let file = b.file(&root, "f");
    assert_eq!(make_all(&mut b, &root, "2"), [const { Err(Stat::DQuot) }; 4]);
    assert_eq!(b.write(&file, 0, &vec![1; 4096 * 6]).unwrap().count, 4096 * 6);
    assert_eq!(b.write(&file, 1 << 20, &[1; 4096 * 3]).unwrap().count, 4096 * 2, "a part fits");
    assert_eq!(b.write(&file, 2 << 20, &[1; 4096]).unwrap_err(), Stat::DQuot);
    assert_eq!(b.link(&file, &root, "another name of it").unwrap_err(), Stat::DQuot);
    b.become_user(11, 11);
    let others = b.file(&root, "of another");
    b.write(&others, 0, &[2; 4096 * 4]).unwrap();
    b.become_user(0, 0);
    assert!(make_all(&mut b, &root, "3").iter().all(Result::is_ok));
    let to = |uid| SetAttr { uid: Some(uid), ..SetAttr::default() };
    assert_eq!(b.setattr(&others, to(10)).unwrap_err(), Stat::DQuot, "he has all his files");
    b.setattr(&file, to(12)).unwrap();
    b.remove(&root, "c1").unwrap();
    b.become_user(10, 10);
    assert!(b.create(&root, "6", guarded()).is_ok() && b.create(&root, "7", guarded()).is_ok());
    assert_eq!(b.create(&root, "8", guarded()), Err(Stat::DQuot));
    b.assert_clean();
}

/// Each name takes space, so a further one counts like a file, for the file's owner. Those who may not write a file give
/// it none.
#[test]
fn l87_a_link_counts_for_the_owner_of_the_file() {
    let quota = Quota { inodes_max: 5, ..Quota::NONE };
    let mut b = Bench::with(Settings { quota, ..open_settings() }, PAGES);
    let root = b.root.clone();
    let of_root = b.file(&root, "of root");
    b.setattr(&of_root, mode(0o444)).unwrap();
    b.become_user(10, 10);
    let file = b.file(&root, "f");
    let pipe = b.mknod(&root, "p", MkNodData::Pipe(FileType::Fifo, mode(0o666))).unwrap();
    for name in ["1", "2", "3"] {
        b.link(&file, &root, name).unwrap();
    }
    b.assert_clean();
    assert_eq!(b.link(&file, &root, "4").unwrap_err(), Stat::DQuot);
    assert_eq!((b.create(&root, "g", guarded()), b.fsstat().afiles), (Err(Stat::DQuot), 0));
    // A name that moves is the same one. One that is replaced is gone, and so is one that is removed.
    b.rename((&root, "1"), (&root, "a much longer name")).unwrap();
    b.rename((&root, "p"), (&root, "2")).unwrap();
    assert_eq!(b.fsstat().afiles, 1);
    b.remove(&root, "3").unwrap();
    assert_eq!(b.fsstat().afiles, 2);
    // Nobody uses up the share of another, or that of root, by links to files that he may not write.
    b.become_user(11, 11);
    assert_eq!(b.link(&file, &root, "theft").unwrap_err(), Stat::Perm);
    assert_eq!(b.link(&pipe, &root, "theft").unwrap_err(), Stat::Perm);
    assert_eq!(b.link(&of_root, &root, "theft").unwrap_err(), Stat::Perm);
    b.become_user(0, 0);
    b.link(&file, &root, "of the owner").unwrap();
    // A file is given away with its names.
    b.setattr(&file, SetAttr { uid: Some(12), ..SetAttr::default() }).unwrap();
    b.become_user(10, 10);
    assert_eq!(b.fsstat().afiles, 4);
    b.become_user(12, 12);
    assert_eq!(b.fsstat().afiles, 2);
    b.assert_clean();
    for name in ["f", "a much longer name", "of the owner"] {
        b.remove(&root, name).unwrap();
    }
    assert_eq!(b.fsstat().afiles, 5);
    b.assert_clean();
}

/// At the limit each byte that is there can be written over, holes and first bytes next to the inode are counted
/// when they get a page and not before, and a limit that moved under what somebody owns lets him keep it.
#[test]
fn a_share_counts_pages_that_are_not_there_yet() {
    let mut b = Bench::with(Settings { quota: share(4), ..open_settings() }, PAGES);
    let root = b.root.clone();
    b.become_user(10, 10);
    let file = b.file(&root, "f");
    // 100 bytes stand next to the inode. With the page that they move to it would be five.
    b.write(&file, 0, &[1; 100]).unwrap();
    assert_eq!(b.write(&file, 4096, &[2; 4096 * 4]).unwrap().count, 4096 * 3);
    assert_eq!(b.getattr(&file).unwrap().used, 4096 * 4);
    // Over pages that are there, and up to where the next would begin.
    assert_eq!(b.write(&file, 50, &vec![3; 4096 * 5]).unwrap().count, 4096 * 4 - 50);
    assert_eq!(b.write(&file, 4096 * 4 - 1, &[4; 2]).unwrap().count, 1);
    assert_eq!(b.write(&file, 4096 * 4, &[4; 600]).unwrap_err(), Stat::DQuot);
    assert_eq!(b.read(&file, 49, 2).unwrap().0, [1, 3]);
    // Next to the inode nothing is counted; the page that its bytes would need has no room.
    let small = b.file(&root, "small");
    assert_eq!(b.write(&small, 0, &[5; 500]).unwrap().count, 500);
    assert_eq!(b.write(&small, 500, &[5; 100]).unwrap_err(), Stat::DQuot);
    assert_eq!(b.write(&small, 9000, &[5; 600]).unwrap_err(), Stat::DQuot);
    // A hole between pages is filled as far as there is room.
    b.setattr(&file, size(0)).unwrap();
    b.write(&file, 4096 * 3, &[6; 4096]).unwrap();
    b.write(&file, 0, &[6; 4096]).unwrap();
    b.write(&small, 500, &[5; 100]).unwrap();
    assert_eq!(b.write(&file, 0, &[7; 4096 * 4]).unwrap().count, 4096 * 2);
    assert_eq!(b.write(&file, 4096 * 2, &[7; 4096 * 2]).unwrap_err(), Stat::DQuot);
    assert_eq!(b.fsstat().abytes, 0);
    b.assert_clean();
}

/// A limit is no part of the state: what is owned is counted without one, and counts when there is one.
#[test]
fn what_is_owned_is_counted_before_there_is_a_limit() {
    let mut b = Bench::with(open_settings(), PAGES);
    let root = b.root.clone();
    b.become_user(10, 10);
    let file = b.file(&root, "f");
    b.write(&file, 0, &[1; 4096 * 4]).unwrap();
    b.set(Settings { quota: share(2), ..open_settings() });
    assert_eq!(b.write(&file, 0, &[2; 4096 * 4]).unwrap().count, 4096 * 4);
    assert_eq!(b.write(&file, 4096 * 4, &[2; 4096]).unwrap_err(), Stat::DQuot);
    b.setattr(&file, size(4096)).unwrap();
    assert_eq!(b.write(&file, 4096, &[2; 4096 * 2]).unwrap().count, 4096);
    b.assert_clean();
}

/// The capacity acts like a full disk, even if the state has more space; it may be moved.
#[test]
fn a_capacity_is_a_full_disk() {
    let capacity = |pages: u64| Settings { capacity_bytes: pages * 4096, ..open_settings() };
    let mut b = Bench::with(capacity(300), 4 * PAGES);
    let root = b.root.clone();
    let stat = b.fsstat();
    assert_eq!(stat.tbytes, 300 * 4096);
    let file = b.file(&root, "f");
    let free = b.fsstat().abytes;
    let len = usize::try_from(free).unwrap();
    // A page is the table's of where it all is.
    let filled = free - 4096;
    assert_eq!(u64::from(b.write(&file, 0, &vec![1; len + 1]).unwrap().count), filled);
    assert_eq!(b.write(&file, filled, &[1]).unwrap_err(), Stat::NoSpc);
    assert_eq!(b.create(&root, "g", guarded()).unwrap_err(), Stat::NoSpc);
    // Less than is filled, and more.
    b.set(capacity(256));
    assert_eq!((b.fsstat().abytes, b.write(&file, 0, &[2; 4096]).unwrap().count), (0, 4096));
    b.set(capacity(500));
    assert_eq!(b.write(&file, filled, &[1; 4096]).unwrap().count, 4096);
    assert_eq!(b.fsstat().tbytes, 500 * 4096);
    b.assert_clean();
}

fn share(pages: u64) -> Quota {
    Quota { bytes_max: pages * 4096, ..Quota::NONE }
}
