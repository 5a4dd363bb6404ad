//! What a serious NFS server gets right, points 1 to 9: objects and names.
#![allow(clippy::unwrap_used, clippy::panic, clippy::result_large_err, reason = "a test may panic")]

use crate::support::*;
use quorate_fs::Settings;
use quorate_fs::nfs3::*;
use quorate_fs::rpc::xdr::{self, Opaque};
use quorate_fs::settings::Quota;

/// Handles: stable, STALE for a dead object, BADHANDLE for nonsense, never NOENT without a name.
#[test]
fn nfs01_handles_are_stable_then_stale_and_nonsense_is_bad() {
    let mut b = Bench::new();
    let root = b.root.clone();
    let file = b.file(&root, "a");
    let dir = b.mkdir(&root, "d", 0o755).unwrap();
    b.rename((&root, "a"), (&dir, "b")).unwrap();
    b.write(&file, 0, b"x").unwrap();
    assert_eq!(b.lookup(&dir, "b"), Ok(file.clone()), "the same handle after a renaming");
    assert_eq!(b.mount("/"), Ok(root.clone()));
    b.remove(&dir, "b").unwrap();
    let again = b.file(&dir, "b");
    assert_ne!(again, file, "a new file has a new handle");
    for _ in 0..2 {
        assert_eq!(b.getattr(&file), Err(Stat::Stale));
        assert_eq!(b.read(&file, 0, 1), Err(Stat::Stale));
        assert_eq!(b.write(&file, 0, b"x").unwrap_err(), Stat::Stale);
        assert_eq!(b.link(&file, &root, "l").unwrap_err(), Stat::Stale);
    }
    let mut other = again.clone();
    other[19] ^= 1;
    assert_eq!(b.getattr(&other), Err(Stat::Stale), "another generation");
    for nonsense in [&b""[..], b"x", &again[1..], &[0xff; 64], &[0; 24]] {
        assert_eq!(b.getattr(nonsense), Err(Stat::BadHandle));
        assert_eq!(b.lookup(nonsense, "a"), Err(Stat::BadHandle));
        assert_eq!(b.remove(nonsense, "a").unwrap_err(), Stat::BadHandle);
    }
    assert_eq!(b.lookup(&again, "a"), Err(Stat::NotDir));
    assert_eq!(b.lookup(&root, "nothing"), Err(Stat::NoEnt));
}

/// Attributes on every reply, on errors too; wcc before and after from inside the same operation.
#[test]
fn nfs02_attributes_come_with_every_reply_and_wcc_from_inside_the_operation() {
    let mut b = Bench::new();
    let root = b.root.clone();
    let file = b.file(&root, "a");
    let before = b.getattr(&file).unwrap();
    let wcc = b.write(&file, 0, b"hello").unwrap().wcc;
    let after = b.getattr(&file).unwrap();
    let known = WccAttr { size: before.size, mtime: before.mtime, ctime: before.ctime };
    assert_eq!(wcc, Wcc { before: Some(known), after: Some(after.clone()) });
    assert!(after.ctime.ns() > before.ctime.ns() && after.mtime == after.ctime);
    let dir = b.getattr(&root).unwrap();
    let wcc = b.remove(&root, "a").unwrap();
    assert_eq!((wcc.before.unwrap().ctime, wcc.after.clone()), (dir.ctime, b.getattr(&root).ok()));
    // On errors.
    let now = b.getattr(&root).unwrap();
    let body = b.call(&Call::Lookup(place(&root, "a")));
    assert_eq!(xdr::decode(&body), Ok(NfsResult::<LookupOk<'_>, _>::Err((Stat::NoEnt, Some(now.clone())))));
    let body = b.call(&Call::Remove(place(&root, "a")));
    let same = WccAttr { size: now.size, mtime: now.mtime, ctime: now.ctime };
    let wcc = Wcc { before: Some(same), after: Some(now.clone()) };
    assert_eq!(xdr::decode(&body), Ok(NfsResult::<Wcc, _>::Err((Stat::NoEnt, wcc.clone()))));
    let args = RenameArgs { from: place(&root, "a"), to: place(&root, "b") };
    let body = b.call(&Call::Rename(args));
    let both = RenameWcc { from: wcc.clone(), to: wcc };
    assert_eq!(xdr::decode(&body), Ok(NfsResult::<RenameWcc, _>::Err((Stat::NoEnt, both))));
    let body = b.call(&Call::Read(ReadArgs { file: fh(&root), offset: 0, count: 1 }));
    assert_eq!(xdr::decode(&body), Ok(NfsResult::<ReadOk<'_>, _>::Err((Stat::IsDir, Some(now)))));
}

/// READDIR: cookies unique and stable while others come and go; going on behind an entry that is gone;
/// counts in encoded bytes; TOOSMALL; an exact end; "." and ".."; the verifier.
#[test]
fn nfs03_listing_goes_on_behind_its_cookie_whatever_happens_meanwhile() {
    let mut b = Bench::new();
    let root = b.root.clone();
    let dir = b.mkdir(&root, "d", 0o755).unwrap();
    for i in 0..100 {
        b.file(&dir, &format!("kept{i:03}"));
        b.file(&dir, &format!("gone{i:03}"));
    }
    let (mut seen, mut cookie, mut round) = (Vec::new(), 0, 0);
    loop {
        let (entries, eof) = b.readdir(&dir, cookie, 700).unwrap();
        assert!(!entries.is_empty() || eof);
        for (at, fileid, name) in entries {
            assert!(at > cookie);
            cookie = at;
            match name.as_str() {
                "." => assert_eq!(fileid, b.getattr(&dir).unwrap().fileid),
                ".." => assert_eq!(fileid, b.getattr(&root).unwrap().fileid),
                _ => seen.push(name),
            }
        }
        if eof {
            break;
        }
        // The last one that was seen is removed, and others around it; others are made.
        let last = seen.last().unwrap().clone();
        if last.starts_with("gone") {
            b.remove(&dir, &last).unwrap();
        }
        let _ = b.remove(&dir, &format!("gone{:03}", 99 - round));
        b.file(&dir, &format!("new{round}"));
        b.rename((&dir, &format!("new{round}")), (&dir, &format!("kept{round:03}"))).unwrap();
        round += 1;
    }
    let mut kept: Vec<&String> = seen.iter().filter(|name| name.starts_with("kept")).collect();
    assert_eq!(kept.len(), 100, "each once, none skipped");
    kept.dedup();
    assert_eq!(kept.len(), 100);
    assert_eq!(b.readdir(&dir, cookie, 700), Ok((Vec::new(), true)));
    assert_eq!(b.readdir(&dir, u64::MAX, 700), Ok((Vec::new(), true)));
    assert_eq!(b.readdir(&dir, 0, 100), Err(Stat::TooSmall));
    let args = ReadDirArgs { dir: fh(&dir), cookie: 5, verf: [1; 8], count: 700 };
    let body = b.call(&Call::ReadDir(args));
    assert!(matches!(
        xdr::decode::<NfsResult<ReadDirOk<'_>, Option<Attr>>>(&body),
        Ok(Err((Stat::BadCookie, _)))
    ));
    let file = b.file(&root, "f");
    assert_eq!(b.readdir(&file, 0, 700), Err(Stat::NotDir));
}

/// READDIRPLUS keeps both of its counts, and says of each entry what LOOKUP and GETATTR say.
#[test]
fn nfs03_readdirplus_keeps_both_counts() {
    let mut b = Bench::new();
    let root = b.root.clone();
    for i in 0..50 {
        b.file(&root, &format!("file{i}"));
    }
    // The first listing makes the time of last access; the second finds it.
    for (dircount, maxcount) in [(1 << 16, 1 << 16), (1 << 16, 2000), (200, 1 << 16), (1, 1 << 16)] {
        let (mut names, mut cookie) = (0, 0);
        loop {
            let args = ReadDirPlusArgs { dir: fh(&root), cookie, verf: [0; 8], dircount, maxcount };
            let body = b.call(&Call::ReadDirPlus(args));
            assert!(body.len() <= maxcount as usize);
            let list = match xdr::decode::<NfsResult<ReadDirPlusOk<'_>, Option<Attr>>>(&body).unwrap() {
                Ok(list) => list,
                Err((stat, _)) => {
                    assert_eq!((stat, dircount), (Stat::TooSmall, 1));
                    break;
                }
            };
            let bytes: usize = list.entries.iter().map(|e| 24 + e.name.0.len().next_multiple_of(4)).sum();
            assert!(bytes <= dircount as usize);
            for entry in &list.entries {
                let name = std::str::from_utf8(entry.name.0).unwrap();
                let handle = entry.object.unwrap().0.to_vec();
                assert_eq!(b.lookup(&root, name), Ok(handle.clone()));
                assert_eq!(b.getattr(&handle).ok(), entry.attributes);
                cookie = entry.cookie;
                names += 1;
            }
            if list.eof {
                assert_eq!(names, 52);
                break;
            }
        }
    }
}

/// WRITE: stable, one verifier, partial counts, times, setuid gone; NOSPC, FBIG, DQUOT.
#[test]
fn nfs04_a_write_is_stable_counts_what_it_wrote_and_has_its_errors() {
    let quota = Quota { bytes_max: 20 * 4096, inodes_max: 5 };
    let mut b = Bench::with(Settings { quota, ..open_settings() }, 1 << 12);
    let root = b.root.clone();
    let file = b.file(&root, "a");
    let done = b.write(&file, 10, b"hello").unwrap();
    assert_eq!((done.count, done.committed), (5, StableHow::FileSync));
    let after = done.wcc.after.unwrap();
    assert_eq!((after.size, after.mtime), (15, after.ctime));
    let body = b.call(&Call::Commit(CommitArgs { file: fh(&file), offset: 0, count: 0 }));
    let committed = xdr::decode::<NfsResult<CommitOk, Wcc>>(&body).unwrap().unwrap();
    assert_eq!(committed.verf, done.verf);
    // Set user and group go when someone else writes, and when the owner changes.
    b.setattr(&file, mode(0o6777)).unwrap();
    b.become_user(10, 10).write(&file, 0, b"x").unwrap();
    assert_eq!(b.become_user(0, 0).getattr(&file).unwrap().mode, 0o777);
    b.setattr(&file, mode(0o6755)).unwrap();
    b.setattr(&file, SetAttr { uid: Some(10), ..SetAttr::default() }).unwrap();
    assert_eq!(b.getattr(&file).unwrap().mode, 0o755);
    // Too large, and up to where it may be.
    let max = 16 << 40;
    assert_eq!(b.write(&file, max, b"x").unwrap_err(), Stat::FBig);
    assert_eq!(b.write(&file, u64::MAX, b"x").unwrap_err(), Stat::FBig);
    assert_eq!(b.write(&file, max - 2, b"xyz").unwrap().count, 2);
    assert_eq!(b.setattr(&file, size(max + 1)).unwrap_err(), Stat::FBig);
    // The quota of pages, and that of inodes.
    let many = vec![7; 15 * 4096];
    b.become_user(10, 10);
    assert_eq!(b.write(&file, 0, &many).unwrap().count, 15 * 4096);
    // One page is behind the 15, at the end of all: 4 more fit.
    assert_eq!(b.write(&file, 15 * 4096, &many).unwrap().count, 4 * 4096);
    assert_eq!(b.write(&file, 19 * 4096, &many).unwrap_err(), Stat::DQuot);
    assert_eq!(b.write(&file, 0, &many).unwrap().count, 15 * 4096, "what is there can be written over");
    for name in ["1", "2", "3", "4"] {
        b.file(&root, name);
    }
    assert_eq!(b.create(&root, "5", CreateHow::Guarded(mode(0))), Err(Stat::DQuot));
    b.assert_clean();
    // A full disk: as much as there is room for, then NOSPC; what was written stays.
    b.become_user(0, 0);
    let big = b.file(&root, "big");
    let (piece, mut written) = (vec![9; 100_000], 0);
    let stat = loop {
        match b.write(&big, written, &piece) {
            Ok(done) => written += u64::from(done.count),
            Err(stat) => break stat,
        }
    };
    assert_eq!((stat, written % 4096), (Stat::NoSpc, 0), "the last one was partial");
    assert_eq!(b.getattr(&big).unwrap().size, written);
    assert_eq!(b.create(&root, "n", CreateHow::Guarded(mode(0))), Err(Stat::NoSpc));
    assert_eq!(b.write(&big, 5, b"over").unwrap().count, 4, "what is there can be written over");
    b.assert_clean();
    b.remove(&root, "big").unwrap();
    b.file(&root, "n");
    b.assert_clean();
}

/// CREATE: UNCHECKED truncates at size 0, GUARDED, EXCLUSIVE keeps all of its verifier.
#[test]
fn nfs05_creating_unchecked_guarded_and_exclusive() {
    let mut b = Bench::new();
    let root = b.root.clone();
    let file = b.create(&root, "a", CreateHow::Unchecked(mode(0o640))).unwrap();
    b.write(&file, 0, b"data").unwrap();
    assert_eq!(b.create(&root, "a", CreateHow::Unchecked(mode(0o777))), Ok(file.clone()));
    let attr = b.getattr(&file).unwrap();
    assert_eq!((attr.size, attr.mode), (4, 0o640), "what is there stays as it is");
    b.create(&root, "a", CreateHow::Unchecked(size(0))).unwrap();
    assert_eq!(b.getattr(&file).unwrap().size, 0);
    assert_eq!(b.create(&root, "a", CreateHow::Guarded(mode(0))), Err(Stat::Exist));
    b.mkdir(&root, "d", 0o755).unwrap();
    assert_eq!(b.create(&root, "d", CreateHow::Unchecked(mode(0))), Err(Stat::Exist));
    let verf = *b"8 bytes!";
    let made = b.create(&root, "e", CreateHow::Exclusive(verf)).unwrap();
    b.setattr(&made, mode(0o644)).unwrap();
    assert_eq!(b.create(&root, "e", CreateHow::Exclusive(verf)), Ok(made.clone()), "the same again");
    for at in 0..8 {
        let mut other = verf;
        other[at] ^= 0x80;
        assert_eq!(b.create(&root, "e", CreateHow::Exclusive(other)), Err(Stat::Exist), "byte {at}");
    }
    assert_eq!(b.create(&root, "a", CreateHow::Exclusive([0; 8])), Err(Stat::Exist), "not created so");
}

/// SETATTR: the guard, the server's time, the owner's rights, up and down.
#[test]
fn nfs06_setting_attributes_guarded_and_by_whom() {
    let mut b = Bench::new();
    let root = b.root.clone();
    b.become_user(10, 20);
    let file = b.create(&root, "a", CreateHow::Guarded(mode(0o444))).unwrap();
    assert_eq!(b.write(&file, 0, b"mine").unwrap().count, 4, "he may write what he made 0444");
    let ctime = b.getattr(&file).unwrap().ctime;
    let wrong = NfsTime { nseconds: ctime.nseconds ^ 1, ..ctime };
    assert_eq!(b.setattr_guarded(&file, size(1), Some(wrong)).unwrap_err(), Stat::NotSync);
    assert_eq!(b.getattr(&file).unwrap().size, 4);
    b.setattr_guarded(&file, size(1), Some(ctime)).unwrap();
    b.setattr(&file, size(5000)).unwrap();
    assert_eq!(b.read(&file, 0, 3).unwrap().0, b"m\0\0");
    let at = NfsTime { seconds: 77, nseconds: 8 };
    let set = SetAttr { atime: SetTime::Client(at), mtime: SetTime::Server, ..SetAttr::default() };
    b.setattr(&file, set).unwrap();
    let attr = b.getattr(&file).unwrap();
    assert_eq!((attr.atime, attr.mtime), (at, attr.ctime), "the server's time is the agreed one");
    assert!(attr.ctime.ns().unwrap().abs_diff(b.time_ns) < 1_000_000);
    let none = NfsTime { seconds: 0, nseconds: 1_000_000_000 };
    let set = SetAttr { atime: SetTime::Client(none), ..SetAttr::default() };
    assert_eq!(b.setattr(&file, set).unwrap_err(), Stat::Inval);
    // Groups: his own ones only. Owners: root alone.
    b.gids = vec![30];
    b.setattr(&file, SetAttr { gid: Some(30), ..SetAttr::default() }).unwrap();
    let give = |uid, gid| SetAttr { uid, gid, ..SetAttr::default() };
    assert_eq!(b.setattr(&file, give(None, Some(31))).unwrap_err(), Stat::Perm);
    assert_eq!(b.setattr(&file, give(Some(11), None)).unwrap_err(), Stat::Perm);
    b.setattr(&file, give(Some(10), None)).unwrap();
    b.become_user(11, 30);
    assert_eq!(b.setattr(&file, mode(0o777)).unwrap_err(), Stat::Perm);
    assert_eq!(b.setattr(&file, size(0)).unwrap_err(), Stat::Access);
    let set = SetAttr { mtime: SetTime::Client(at), ..SetAttr::default() };
    assert_eq!(b.setattr(&file, set).unwrap_err(), Stat::Perm);
    let set = SetAttr { mtime: SetTime::Server, ..SetAttr::default() };
    assert_eq!(b.setattr(&file, set).unwrap_err(), Stat::Access);
    assert_eq!(b.setattr(&root, size(0)).unwrap_err(), Stat::IsDir);
    b.assert_clean();
}

/// RENAME: same inode, empty directory, EXIST, NOTEMPTY, no cycles, sticky, ".." and links, ctime.
#[test]
fn nfs07_renaming() {
    let mut b = Bench::new();
    let root = b.root.clone();
    let file = b.file(&root, "a");
    b.link(&file, &root, "b").unwrap();
    let ctime = b.getattr(&file).unwrap().ctime;
    b.rename((&root, "a"), (&root, "b")).unwrap();
    assert_eq!(b.names(&root, 1000), ["a", "b"], "onto the same inode: nothing is done");
    assert_eq!(b.getattr(&file).unwrap().ctime, ctime);
    b.rename((&root, "a"), (&root, "c")).unwrap();
    assert_ne!(b.getattr(&file).unwrap().ctime, ctime);
    let one = b.mkdir(&root, "one", 0o755).unwrap();
    let two = b.mkdir(&root, "two", 0o755).unwrap();
    let inner = b.mkdir(&one, "inner", 0o755).unwrap();
    assert_eq!(b.rename((&root, "c"), (&root, "two")).unwrap_err(), Stat::Exist);
    assert_eq!(b.rename((&root, "two"), (&root, "c")).unwrap_err(), Stat::Exist);
    assert_eq!(b.rename((&root, "two"), (&root, "one")).unwrap_err(), Stat::NotEmpty);
    for (dir, name) in [(&one, "x"), (&inner, "x")] {
        assert_eq!(b.rename((&root, "one"), (dir, name)).unwrap_err(), Stat::Inval, "no cycles");
    }
    let links = |b: &mut Bench, dir: &H| b.getattr(dir).unwrap().nlink;
    assert_eq!((links(&mut b, &one), links(&mut b, &two), links(&mut b, &root)), (3, 2, 4));
    b.rename((&one, "inner"), (&two, "moved")).unwrap();
    assert_eq!((links(&mut b, &one), links(&mut b, &two)), (2, 3));
    assert_eq!(b.lookup(&inner, ".."), Ok(two.clone()));
    b.rename((&two, "moved"), (&root, "one")).unwrap();
    assert_eq!((links(&mut b, &two), links(&mut b, &root)), (2, 4), "onto an empty directory");
    assert_eq!(b.getattr(&one), Err(Stat::Stale));
    assert_eq!(b.lookup(&root, "one"), Ok(inner));
    // In a sticky directory only who owns the entry or the directory.
    b.setattr(&root, mode(0o1777)).unwrap();
    b.become_user(10, 10);
    assert_eq!(b.rename((&root, "c"), (&root, "d")).unwrap_err(), Stat::Perm);
    assert_eq!(b.remove(&root, "c").unwrap_err(), Stat::Perm);
    b.file(&root, "his");
    assert_eq!(b.rename((&root, "his"), (&root, "c")).unwrap_err(), Stat::Perm);
    b.rename((&root, "his"), (&root, "still his")).unwrap();
    b.assert_clean();
}

/// A directory that moves elsewhere is written: its ".." changes.
#[test]
fn nfs07_moving_a_directory_needs_the_right_to_write_it() {
    let mut b = Bench::new();
    let root = b.root.clone();
    b.setattr(&root, mode(0o777)).unwrap();
    let to = b.mkdir(&root, "to", 0o777).unwrap();
    b.mkdir(&root, "dir", 0o755).unwrap();
    b.become_user(10, 10);
    assert_eq!(b.rename((&root, "dir"), (&to, "dir")).unwrap_err(), Stat::Access);
    b.rename((&root, "dir"), (&root, "other")).unwrap();
}

/// Link counts, MLINK, EXIST; symbolic links; MKNOD.
#[test]
fn nfs08_links_symbolic_links_and_special_files() {
    let mut b = Bench::with(Settings { links_max: 4, ..open_settings() }, 1 << 14);
    let root = b.root.clone();
    let file = b.file(&root, "a");
    for (name, links) in [("b", 2), ("c", 3), ("d", 4)] {
        assert_eq!(b.link(&file, &root, name).unwrap().attributes.unwrap().nlink, links);
    }
    assert_eq!(b.link(&file, &root, "e").unwrap_err(), Stat::MLink);
    assert_eq!(b.link(&file, &root, "a").unwrap_err(), Stat::Exist);
    b.remove(&root, "a").unwrap();
    assert_eq!(b.getattr(&file).unwrap().nlink, 3);
    for name in ["1", "2"] {
        b.mkdir(&root, name, 0o755).unwrap();
    }
    assert_eq!(b.mkdir(&root, "3", 0o755).unwrap_err(), Stat::MLink);
    assert_eq!(b.link(&root, &root, "dir").unwrap_err(), Stat::Inval);
    for len in [1, 512, 513, 1024, 1025, 4095] {
        let (name, target) = (format!("l{len}"), vec![b't'; len]);
        let link = b.symlink(&root, &name, &target).unwrap();
        assert_eq!(b.readlink(&link), Ok(target));
        let attr = b.getattr(&link).unwrap();
        assert_eq!((attr.kind, attr.size, attr.mode), (FileType::Lnk, len as u64, 0o777));
        assert_eq!(b.read(&link, 0, 1), Err(Stat::Inval));
        b.remove(&root, &name).unwrap();
    }
    assert_eq!(b.symlink(&root, "l", &[b't'; 4096]), Err(Stat::NameTooLong));
    assert_eq!(b.readlink(&file), Err(Stat::Inval));
    let rdev = SpecData { major: 8, minor: 1 };
    let device = MkNodData::Device(FileType::Blk, mode(0o600), rdev);
    let made = b.mknod(&root, "blk", device.clone()).unwrap();
    let attr = b.getattr(&made).unwrap();
    assert_eq!((attr.kind, attr.rdev, attr.mode), (FileType::Blk, rdev, 0o600));
    for kind in [FileType::Fifo, FileType::Sock] {
        let made = b.mknod(&root, &format!("{kind:?}"), MkNodData::Pipe(kind, mode(0o644))).unwrap();
        assert_eq!(b.getattr(&made).unwrap().kind, kind);
        assert_eq!(b.write(&made, 0, b"x").unwrap_err(), Stat::Inval);
    }
    assert_eq!(b.mknod(&root, "x", MkNodData::Other(FileType::Dir)), Err(Stat::BadType));
    // N5: what changes hands loses setuid and setgid, whatever it is, but for a directory.
    for (kind, made) in [(FileType::Fifo, None), (FileType::Sock, None), (FileType::Blk, Some(made))] {
        let pipe = |b: &mut Bench| b.mknod(&root, &format!("of{kind:?}"), MkNodData::Pipe(kind, mode(0o644)));
        let made = made.unwrap_or_else(|| pipe(&mut b).unwrap());
        b.setattr(&made, mode(0o6755)).unwrap();
        b.setattr(&made, SetAttr { gid: Some(20), ..SetAttr::default() }).unwrap();
        assert_eq!(b.getattr(&made).unwrap().mode, 0o755, "{kind:?}");
    }
    let dir = b.lookup(&root, "1").unwrap();
    b.setattr(&dir, mode(0o6755)).unwrap();
    b.setattr(&dir, SetAttr { gid: Some(20), ..SetAttr::default() }).unwrap();
    assert_eq!(b.getattr(&dir).unwrap().mode, 0o6755);
    b.become_user(10, 10);
    assert_eq!(b.mknod(&root, "x", device), Err(Stat::Perm));
    b.mknod(&root, "x", MkNodData::Pipe(FileType::Fifo, mode(0o644))).unwrap();
    b.assert_clean();
}

/// A file that another user has cut is not what its owner has made executable: CREATE is as SETATTR and WRITE.
#[test]
fn l88_a_creation_that_cuts_a_file_takes_setuid_and_setgid() {
    let mut b = Bench::new();
    let root = b.root.clone();
    let file = b.file(&root, "f");
    let cut = || CreateHow::Unchecked(size(0));
    for (uid, set, left) in [(0, 0o6777, 0o6777), (10, 0o6777, 0o777), (10, 0o2666, 0o2666)] {
        b.become_user(0, 0).setattr(&file, mode(set)).unwrap();
        b.become_user(uid, uid);
        b.create(&root, "f", cut()).unwrap();
        assert_eq!(b.getattr(&file).unwrap().mode, left, "user {uid}, {set:o}");
    }
}

/// A client that repeats a change gets its reply, whatever others have done since, and whatever has failed.
#[test]
fn l86_a_reply_outlives_the_calls_of_others() {
    let mut b = Bench::new();
    let root = b.root.clone();
    let file = b.file(&root, "f");
    b.file(&root, "g");
    let removal = b.nfs_operation(&Call::Remove(place(&root, "g")));
    let reply = b.order(&removal);
    let (own, other) = (b.address, quorate_fs::nfs3::operation::mapped([10, 0, 0, 2]));
    for address in [other, own] {
        b.address = address;
        for _ in 0..2000 {
            assert_eq!(b.remove(&root, "none").unwrap_err(), Stat::NoEnt);
        }
        assert!(b.order(&removal) == reply, "failures of {address:?}");
    }
    b.address = other;
    for _ in 0..2000 {
        b.setattr(&file, mode(0o600)).unwrap();
    }
    assert!(b.order(&removal) == reply, "changes of another");
    // In the end it goes.
    b.time_ns += 121_000_000_000;
    for _ in 0..2000 {
        b.setattr(&file, mode(0o600)).unwrap();
    }
    assert!(b.order(&removal) != reply, "after two minutes");
    b.assert_clean();
}

/// Space returns with the last link, and only then.
#[test]
fn nfs09_space_returns_with_the_last_link() {
    let mut b = Bench::new();
    let root = b.root.clone();
    let file = b.file(&root, "a");
    let free = b.fsstat().fbytes;
    b.write(&file, 0, &vec![1; 1 << 20]).unwrap();
    b.link(&file, &root, "b").unwrap();
    assert!(b.fsstat().fbytes <= free - (1 << 20));
    b.remove(&root, "a").unwrap();
    assert!(b.fsstat().fbytes <= free - (1 << 20));
    assert_eq!(b.read(&file, 0, 1).unwrap().0, [1]);
    // What a client does with a file that is open: it renames it and removes it later.
    b.rename((&root, "b"), (&root, ".nfs0001")).unwrap();
    assert_eq!(b.read(&file, 0, 1).unwrap().0, [1]);
    b.remove(&root, ".nfs0001").unwrap();
    // A page may stay with a tree that has grown.
    assert!(b.fsstat().fbytes + 4096 >= free);
    assert_eq!(b.remove(&root, "b").unwrap_err(), Stat::NoEnt);
    assert_eq!(b.lookup(&root, "b"), Err(Stat::NoEnt));
    assert_eq!(b.call(&Call::GetAttr(Opaque(&file))), (Stat::Stale as u32).to_be_bytes());
}
