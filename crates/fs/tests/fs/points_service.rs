//! Requirements of a serious NFS server, points 10 to 17: permissions, limits, RPC and MOUNT. The gateway covers the rest
//! of points 14 and 16.
#![allow(clippy::unwrap_used, clippy::panic, clippy::result_large_err, reason = "a test may panic")]

use crate::support::*;
use quorate_fs::Settings;
use quorate_fs::nfs3::mount3::{self, ExportEntry, MountEntry, MountStat};
use quorate_fs::nfs3::operation::mapped;
use quorate_fs::nfs3::*;
use quorate_fs::rpc::xdr::{self, Opaque};
use quorate_fs::rpc::{AuthStat, CallHead, OpaqueAuth, Status};
use quorate_fs::settings::{Export, Network, Squash};

const READ: u32 = 1;
const LOOKUP: u32 = 2;
const MODIFY: u32 = 4;
const EXTEND: u32 = 8;
const DELETE: u32 = 16;
const EXECUTE: u32 = 32;

/// Makes a call of NFS with this credential and returns how it went.
fn status(b: &mut Bench, credential: OpaqueAuth<'_>, call: &Call<'_>) -> Status {
    let mut args = Vec::new();
    call.encode(&mut args);
    let head = CallHead { credential, ..CallHead::new(7, PROGRAM, VERSION, call.procedure() as u32) };
    let operation = b.wrap(&head, &args);
    split(&b.operate(&operation)).0.status
}

/// ACCESS from user, group and up to 16 groups.
#[test]
fn nfs10_access_is_computed_from_user_and_groups() {
    let mut b = Bench::new();
    let root = b.root.clone();
    b.become_user(10, 20);
    let file = b.create(&root, "a", CreateHow::Guarded(mode(0o641))).unwrap();
    let dir = b.mkdir(&root, "d", 0o750).unwrap();
    assert_eq!(b.access(&file), READ | MODIFY | EXTEND);
    assert_eq!(b.access(&dir), READ | LOOKUP | MODIFY | EXTEND | DELETE);
    b.become_user(11, 5);
    assert_eq!((b.access(&file), b.access(&dir)), (EXECUTE, 0));
    b.gids = (100..115).chain([20]).collect();
    assert_eq!((b.access(&file), b.access(&dir)), (READ, READ | LOOKUP));
    b.become_user(0, 0);
    assert_eq!(b.access(&file), READ | MODIFY | EXTEND | EXECUTE);
    b.setattr(&file, mode(0)).unwrap();
    assert_eq!(b.access(&file), READ | MODIFY | EXTEND, "root does not execute what nobody may");
    b.become_user(11, 5);
    assert_eq!(b.lookup(&dir, "x"), Err(Stat::Access));
    assert_eq!(b.readdir(&dir, 0, 1000), Err(Stat::Access));
    assert_eq!(b.read(&file, 0, 1), Err(Stat::Access));
}

/// Root is squashed unless an export says otherwise; exports have their addresses and may be read-only.
#[test]
fn nfs10_exports_squash_limit_and_protect() {
    let networks = vec![Network { address: mapped([10, 0, 0, 0]), bits: 104 }];
    let squash = Export { networks, ..Export::of("/") };
    let open = Export { squash: Squash::Nobody, ..Export::of("/open") };
    let frozen = Export { read_only: true, squash: Squash::Nobody, ..Export::of("/open/frozen") };
    let everyone =
        Export { squash: Squash::Everyone, anonymous_uid: 7, anonymous_gid: 8, ..Export::of("/all") };
    let exports = vec![squash, open, frozen, everyone];
    let mut b = Bench::with(Settings { exports, ..open_settings() }, 1 << 14);
    let root = b.root.clone();
    let squashed = b.file(&root, "squashed");
    let attr = b.getattr(&squashed).unwrap();
    assert_eq!((attr.uid, attr.gid), (65_534, 65_534));
    for name in ["open", "all"] {
        b.mkdir(&root, name, 0o777).unwrap();
    }
    let open = b.mount("/open").unwrap();
    b.mkdir(&open, "frozen", 0o755).unwrap();
    let file = b.file(&open, "roots");
    assert_eq!(b.getattr(&file).unwrap().uid, 0);
    assert_eq!(b.lookup(&open, ".."), Ok(open.clone()), "there is no way out of an export");
    let all = b.mount("/all").unwrap();
    let file = b.become_user(55, 55).file(&all, "a");
    let attr = b.become_user(0, 0).getattr(&file).unwrap();
    assert_eq!((attr.uid, attr.gid), (7, 8));
    assert_eq!(b.rename((&all, "a"), (&open, "a")).unwrap_err(), Stat::XDev);
    assert_eq!(b.link(&file, &open, "a").unwrap_err(), Stat::XDev);
    let frozen = b.mount("/open/frozen").unwrap();
    assert_eq!(b.mkdir(&frozen, "x", 0o755), Err(Stat::RoFs));
    assert_eq!(b.setattr(&frozen, mode(0)).unwrap_err(), Stat::RoFs);
    assert_eq!(b.access(&frozen), READ | LOOKUP);
    b.address = mapped([11, 0, 0, 1]);
    assert_eq!(b.mount("/"), Err(MountStat::Access));
    assert_eq!(b.getattr(&root), Err(Stat::Access));
    assert!(b.mount("/open").is_ok());
    b.assert_clean();
}

/// Without a credential only what a client asks while it mounts; other flavours are too weak.
#[test]
fn nfs10_a_weak_credential_is_told_so() {
    let mut b = Bench::new();
    let root = b.root.clone();
    let lookup = Call::Lookup(place(&root, "a"));
    assert_eq!(status(&mut b, OpaqueAuth::NONE, &Call::Null(())), Status::Success);
    assert_eq!(status(&mut b, OpaqueAuth::NONE, &Call::FsInfo(fh(&root))), Status::Success);
    let weak = Status::AuthError(AuthStat::TooWeak);
    assert_eq!(status(&mut b, OpaqueAuth::NONE, &lookup), weak);
    assert_eq!(status(&mut b, OpaqueAuth { flavor: 6, body: Opaque(b"gss!") }, &lookup), weak);
    assert_eq!(status(&mut b, OpaqueAuth::sys(b"junk"), &lookup), Status::AuthError(AuthStat::BadCred));
    let mut b = Bench::with(Settings { auth_none: true, ..open_settings() }, 1 << 12);
    assert_eq!(status(&mut b, OpaqueAuth::NONE, &lookup), Status::Success);
}

/// READ past the end, count and eof; holes are zeros; `used` counts what is there.
#[test]
fn nfs11_reading_past_the_end_and_in_holes() {
    let mut b = Bench::new();
    let root = b.root.clone();
    let file = b.file(&root, "a");
    assert_eq!(b.read(&file, 0, 10), Ok((vec![], true)));
    b.write(&file, 0, b"0123456789").unwrap();
    assert_eq!(b.read(&file, 0, 10), Ok((b"0123456789".to_vec(), true)));
    assert_eq!(b.read(&file, 0, 9), Ok((b"012345678".to_vec(), false)));
    assert_eq!(b.read(&file, 10, 5), Ok((vec![], true)));
    assert_eq!(b.read(&file, u64::MAX, 5), Ok((vec![], true)));
    assert_eq!(b.read(&file, 0, 0), Ok((vec![], false)));
    b.write(&file, 20 << 30, b"far").unwrap();
    let attr = b.getattr(&file).unwrap();
    assert_eq!((attr.size, attr.used), ((20 << 30) + 3, 2 * 4096));
    assert_eq!(b.read(&file, 8, 6), Ok((b"89\0\0\0\0".to_vec(), false)));
    assert_eq!(b.read(&file, 1 << 30, 1 << 20), Ok((vec![0; 1 << 20], false)));
    assert_eq!(b.read(&file, (20 << 30) - 2, 9), Ok((b"\0\0far".to_vec(), true)));
    assert_eq!(b.read(&file, 0, u32::MAX).unwrap().0.len(), 1 << 20);
    // What was cut off does not come back.
    b.setattr(&file, size(3)).unwrap();
    b.setattr(&file, size(9000)).unwrap();
    assert_eq!(b.read(&file, 0, 9000), Ok(([&b"012"[..], &[0; 8997]].concat(), true)));
    b.assert_clean();
}

/// FSSTAT: true numbers; FSINFO; PATHCONF.
#[test]
fn nfs12_the_numbers_of_the_file_system_are_true() {
    let mut b = Bench::with(Settings { inodes_max: 4, ..open_settings() }, 1 << 14);
    let root = b.root.clone();
    let before = b.fsstat();
    assert_eq!((before.tfiles, before.ffiles), (4, 3));
    assert!(before.tbytes < (1 << 14) * 4096 && before.abytes < before.fbytes);
    let file = b.file(&root, "a");
    b.write(&file, 0, &vec![1; 100 * 4096]).unwrap();
    let after = b.fsstat();
    assert_eq!((after.ffiles, after.tbytes), (2, before.tbytes));
    let taken = (before.fbytes - after.fbytes) / 4096;
    assert!((100..104).contains(&taken), "100 pages and some of trees: {taken}");
    b.file(&root, "b");
    b.file(&root, "c");
    assert_eq!(
        b.create(&root, "d", CreateHow::Guarded(mode(0))),
        Err(Stat::NoSpc),
        "the inode table is full"
    );
    b.remove(&root, "b").unwrap();
    b.file(&root, "d");
    let body = b.call(&Call::FsInfo(fh(&root)));
    let info = xdr::decode::<NfsResult<FsInfoOk, Option<Attr>>>(&body).unwrap().unwrap();
    assert_eq!((info.rtmax, info.wtmax, info.properties), (1 << 20, 1 << 20, 0x1b));
    assert_eq!((info.time_delta, info.maxfilesize), (NfsTime { seconds: 0, nseconds: 1 }, 16 << 40));
    let body = b.call(&Call::PathConf(fh(&root)));
    let conf = xdr::decode::<NfsResult<PathConfOk, Option<Attr>>>(&body).unwrap().unwrap();
    assert_eq!(
        (conf.name_max, conf.linkmax, conf.no_trunc, conf.chown_restricted),
        (255, 1 << 24, true, true)
    );
}

/// Names: too long, empty, with a slash or a zero, "." and "..".
#[test]
fn nfs13_names_that_are_none() {
    let mut b = Bench::new();
    let root = b.root.clone();
    let file = b.file(&root, "a");
    let (fits, long) = ("n".repeat(255), "n".repeat(256));
    b.file(&root, &fits);
    for (name, stat) in
        [(long.as_str(), Stat::NameTooLong), ("", Stat::Inval), ("a/b", Stat::Inval), ("a\0", Stat::Inval)]
    {
        assert_eq!(b.lookup(&root, name), Err(stat), "{name:?}");
        assert_eq!(b.create(&root, name, CreateHow::Guarded(mode(0))), Err(stat));
        assert_eq!(b.mkdir(&root, name, 0), Err(stat));
        assert_eq!(b.symlink(&root, name, b"t"), Err(stat));
        assert_eq!(b.remove(&root, name).unwrap_err(), stat);
        assert_eq!(b.rmdir(&root, name).unwrap_err(), stat);
        assert_eq!(b.rename((&root, "a"), (&root, name)).unwrap_err(), stat);
        assert_eq!(b.link(&file, &root, name).unwrap_err(), stat);
    }
    for dots in [".", ".."] {
        assert_eq!(b.lookup(&root, dots), Ok(root.clone()));
        assert_eq!(b.create(&root, dots, CreateHow::Unchecked(mode(0))), Err(Stat::Exist));
        assert_eq!(b.mkdir(&root, dots, 0), Err(Stat::Exist));
        assert_eq!(b.link(&file, &root, dots).unwrap_err(), Stat::Exist);
        assert_eq!(b.remove(&root, dots).unwrap_err(), Stat::IsDir);
        assert_eq!(b.rename((&root, dots), (&root, "x")).unwrap_err(), Stat::Inval);
        assert_eq!(b.rename((&root, "a"), (&root, dots)).unwrap_err(), Stat::Inval);
    }
    assert_eq!(b.rmdir(&root, ".").unwrap_err(), Stat::Inval);
    assert_eq!(b.rmdir(&root, "..").unwrap_err(), Stat::Exist);
}

/// RPC: what is not a call of these programs has its answer, and NULL answers.
#[test]
fn nfs14_calls_that_are_none_have_their_answers() {
    let mut b = Bench::new();
    let unknown = u32::try_from(Procedure::ALL.len()).unwrap();
    let head = |program, version, procedure| CallHead::new(9, program, version, procedure);
    let mut answer = |head: CallHead<'_>, args: &[u8]| {
        let operation = b.wrap(&head, args);
        split(&b.operate(&operation)).0.status
    };
    assert_eq!(answer(head(PROGRAM, 3, 0), &[]), Status::Success);
    assert_eq!(answer(head(mount3::PROGRAM, 3, 0), &[]), Status::Success);
    assert_eq!(answer(head(100_000, 2, 0), &[]), Status::ProgUnavail);
    assert_eq!(answer(head(PROGRAM, 4, 0), &[]), Status::ProgMismatch(3, 3));
    assert_eq!(answer(head(mount3::PROGRAM, 1, 0), &[]), Status::ProgMismatch(3, 3));
    assert_eq!(answer(head(PROGRAM, 3, unknown), &[]), Status::ProcUnavail);
    assert_eq!(answer(head(mount3::PROGRAM, 3, 6), &[]), Status::ProcUnavail);
    assert_eq!(answer(head(PROGRAM, 3, 1), &[0, 0, 0, 9]), Status::GarbageArgs);
    assert_eq!(answer(head(PROGRAM, 3, 0), &[0; 4]), Status::GarbageArgs);
    let old = CallHead { rpc_version: 1, ..head(PROGRAM, 3, 0) };
    assert_eq!(answer(old, &[]), Status::RpcMismatch(2, 2));
    // What has not even a number is answered by nothing.
    assert_eq!(b.operate(b"").len(), 0);
    assert_eq!(b.operate(&[1; 18]).len(), 0);
}

/// A call that comes again, over whatever connection, is answered and not done again.
#[test]
fn nfs14_a_call_that_comes_again_is_not_done_again() {
    let mut b = Bench::new();
    let root = b.root.clone();
    b.file(&root, "a");
    let remove = b.nfs_operation(&Call::Remove(place(&root, "a")));
    let first = b.operate(&remove);
    b.file(&root, "a");
    assert_eq!(b.operate(&remove), first, "the previous answer");
    assert_eq!(b.names(&root, 1000), ["a"], "and not the deed");
    // The same number for another call, from another client, or by another user: another call.
    b.xid -= 2;
    assert_eq!(b.remove(&root, "b").unwrap_err(), Stat::NoEnt);
    let mut other = remove.clone();
    other[16] = 99;
    assert_ne!(b.operate(&other), first);
    assert_eq!(b.names(&root, 1000), [""; 0]);
    // An error is an answer too.
    let failed = b.nfs_operation(&Call::Remove(place(&root, "c")));
    let first = b.operate(&failed);
    b.file(&root, "c");
    assert_eq!(b.operate(&failed), first);
    assert_eq!(b.names(&root, 1000), ["c"]);
}

/// MOUNT: MNT, DUMP, UMNT, UMNTALL, EXPORT, flavours.
#[test]
fn nfs15_mounting_without_a_portmapper() {
    let networks = vec![Network { address: mapped([10, 0, 0, 0]), bits: 104 }];
    let exports =
        vec![Export { squash: Squash::Nobody, ..Export::of("/") }, Export { networks, ..Export::of("/sub") }];
    let mut b = Bench::with(Settings { exports, ..open_settings() }, 1 << 12);
    let root = b.root.clone();
    let sub = b.mkdir(&root, "sub", 0o755).unwrap();
    b.file(&root, "file");
    assert_eq!(b.mount("/nothing"), Err(MountStat::NoEnt));
    assert_eq!(b.mount("/file"), Err(MountStat::NotDir));
    assert_eq!(b.mount("relative"), Err(MountStat::Access));
    assert_eq!(b.mount(&format!("/{}", "n".repeat(256))), Err(MountStat::NameTooLong));
    let mounted = b.mount("/sub/").unwrap();
    assert_eq!(mounted[..20], sub[..20], "the same object");
    assert_ne!(mounted, sub, "through another export");
    let call = |b: &mut Bench, procedure: mount3::Procedure, args: &[u8]| {
        let operation = b.operation(mount3::PROGRAM, procedure as u32, args);
        split(&b.operate(&operation)).1.to_vec()
    };
    let host = Opaque(&b"10.0.0.1"[..]);
    let entry = |dir| MountEntry { host, dir: Opaque(dir) };
    let list = call(&mut b, mount3::Procedure::Dump, &[]);
    assert_eq!(xdr::decode(&list), Ok(vec![entry(b"/"), entry(b"/sub")]));
    let list = call(&mut b, mount3::Procedure::Export, &[]);
    let exported = |dir, groups| ExportEntry { dir: Opaque(dir), groups };
    let expected = vec![exported(&b"/"[..], vec![]), exported(b"/sub", vec![Opaque(b"10.0.0.0/8")])];
    assert_eq!(xdr::decode(&list), Ok(expected));
    assert_eq!(call(&mut b, mount3::Procedure::UmntAll, &[]), []);
    let list = call(&mut b, mount3::Procedure::Dump, &[]);
    assert_eq!(xdr::decode::<Vec<MountEntry<'_>>>(&list), Ok(vec![]));
    // An export inside another is unmounted alone, by the path that MNT took; so is the outer one.
    let dirs = |b: &mut Bench, path: &'static [u8]| {
        b.mount("/").unwrap();
        b.mount("/sub/").unwrap();
        call(b, mount3::Procedure::Umnt, &xdr::encode(&Opaque::<1024>(path)));
        let list = call(b, mount3::Procedure::Dump, &[]);
        let list = xdr::decode::<Vec<MountEntry<'_>>>(&list).unwrap();
        list.iter().map(|entry| entry.dir.0.to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(dirs(&mut b, b"/sub"), [b"/"]);
    assert_eq!(dirs(&mut b, b"/sub/below"), [b"/"]);
    assert_eq!(dirs(&mut b, b"/"), [b"/sub"]);
    assert_eq!(dirs(&mut b, b"/subway"), [b"/sub"], "which is in the outer one");
    assert_eq!(dirs(&mut b, b"sub").len(), 2, "a path begins with /");
    b.assert_clean();
}

/// What a gateway says while no quorum answers has the form of each procedure's result.
#[test]
fn nfs16_jukebox_has_the_form_of_every_procedure() {
    for procedure in Procedure::ALL {
        let Some(reply) = Reply::failed(*procedure, Stat::Jukebox) else { continue };
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        assert_eq!(bytes[..4], 10008_u32.to_be_bytes());
        assert_eq!(Reply::decode(*procedure, &bytes), Ok(reply));
    }
}

/// Times inside have 64 bits; the wire has 32 for the seconds.
#[test]
fn nfs17_times_go_on_behind_2038_and_2106() {
    for seconds in [(1_u64 << 31) + 5, (1 << 32) + 5] {
        let mut b = Bench::new();
        let root = b.root.clone();
        let early = b.file(&root, "early");
        b.time_ns = seconds * 1_000_000_000;
        let file = b.file(&root, "late");
        let on_wire = u32::try_from(seconds & 0xffff_ffff).unwrap();
        assert_eq!(b.getattr(&file).unwrap().mtime.seconds, on_wire);
        // Inside the later time is the larger: the time of last access of `early` is a day old.
        let ordered = b.ordered;
        b.write(&early, 0, b"x").unwrap();
        b.read(&early, 0, 1).unwrap();
        assert_eq!(b.ordered, ordered + 2, "the first read after a change is ordered");
        b.read(&early, 0, 1).unwrap();
        assert_eq!(b.ordered, ordered + 2, "the second is not");
    }
}
