//! The wire types of NFS and MOUNT: bytes as they are on the wire, one encoding for each value, and
//! nothing but an error for anything else.
#![allow(clippy::unwrap_used, clippy::result_large_err, reason = "a test may panic")]

use quorate_fs::nfs3::mount3::{ExportEntry, MountEntry, MountReply, MountStat};
use quorate_fs::nfs3::*;
use quorate_fs::rpc::xdr::{self, Opaque, XdrError};
use quorate_fs::rpc::{AuthSys, CallHead, ReplyHead};

/// A small generator of numbers that look random. Marsaglia's xorshift, 64 bits.
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn index(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() >> 16).unwrap() % bound
    }

    fn below(&mut self, bound: usize) -> u8 {
        u8::try_from(self.index(bound)).unwrap()
    }
}

fn attr() -> Attr {
    let time = |seconds| NfsTime { seconds, nseconds: 7 };
    Attr {
        kind: FileType::Reg,
        mode: 0o644,
        nlink: 1,
        uid: 10,
        gid: 20,
        size: 1 << 33,
        used: 4096,
        rdev: SpecData { major: 1, minor: 2 },
        fsid: 3,
        fileid: 4,
        atime: time(5),
        mtime: time(6),
        ctime: time(7),
    }
}

fn set_attr() -> SetAttr {
    SetAttr {
        mode: Some(0o600),
        uid: None,
        gid: Some(9),
        size: Some(0),
        atime: SetTime::Server,
        mtime: SetTime::Client(NfsTime { seconds: 1, nseconds: 2 }),
    }
}

fn place(name: &[u8]) -> DirOp<'_> {
    DirOp { dir: Opaque(b"directory"), name: Opaque(name) }
}

/// One call of each procedure and form.
fn calls() -> Vec<Call<'static>> {
    let (file, dir) = (Opaque(b"file handle".as_slice()), Opaque(b"directory".as_slice()));
    vec![
        Call::Null(()),
        Call::GetAttr(file),
        Call::SetAttr(SetAttrArgs { object: file, attributes: set_attr(), guard: Some(NfsTime::of(5)) }),
        Call::Lookup(place(b"name")),
        Call::Access(AccessArgs { object: file, access: 0x3f }),
        Call::ReadLink(file),
        Call::Read(ReadArgs { file, offset: 1 << 40, count: 4096 }),
        Call::Write(WriteArgs {
            file,
            offset: 3,
            count: 5,
            stable: StableHow::FileSync,
            data: Opaque(b"hello"),
        }),
        Call::Create(CreateArgs { place: place(b"a"), how: CreateHow::Unchecked(set_attr()) }),
        Call::Create(CreateArgs { place: place(b"a"), how: CreateHow::Guarded(SetAttr::default()) }),
        Call::Create(CreateArgs { place: place(b"a"), how: CreateHow::Exclusive(*b"verifier") }),
        Call::MkDir(MkDirArgs { place: place(b"d"), attributes: set_attr() }),
        Call::SymLink(SymLinkArgs { place: place(b"l"), attributes: set_attr(), target: Opaque(b"../x") }),
        Call::MkNod(MkNodArgs {
            place: place(b"n"),
            what: MkNodData::Device(FileType::Blk, set_attr(), SpecData { major: 8, minor: 1 }),
        }),
        Call::MkNod(MkNodArgs { place: place(b"n"), what: MkNodData::Pipe(FileType::Sock, set_attr()) }),
        Call::MkNod(MkNodArgs { place: place(b"n"), what: MkNodData::Other(FileType::Dir) }),
        Call::Remove(place(b"r")),
        Call::RmDir(place(b"r")),
        Call::Rename(RenameArgs { from: place(b"from"), to: place(b"to") }),
        Call::Link(LinkArgs { file, link: place(b"link") }),
        Call::ReadDir(ReadDirArgs { dir, cookie: 3, verf: [0; 8], count: 512 }),
        Call::ReadDirPlus(ReadDirPlusArgs { dir, cookie: 0, verf: [1; 8], dircount: 512, maxcount: 4096 }),
        Call::FsStat(dir),
        Call::FsInfo(dir),
        Call::PathConf(dir),
        Call::Commit(CommitArgs { file, offset: 0, count: 0 }),
    ]
}

/// A result of each procedure that went well.
fn replies() -> Vec<Reply<'static>> {
    let wcc = || Wcc {
        before: Some(WccAttr { size: 1, mtime: NfsTime::of(2), ctime: NfsTime::of(3) }),
        after: Some(attr()),
    };
    let (object, attributes) = (Opaque(b"object".as_slice()), Some(attr()));
    let made = || Ok(CreateOk { object: Some(object), attributes: Some(attr()), wcc: wcc() });
    vec![
        Reply::Null(()),
        Reply::GetAttr(Ok(attr())),
        Reply::SetAttr(Ok(wcc())),
        Reply::Lookup(Ok(LookupOk { object, attributes: None, dir: attributes.clone() })),
        Reply::Access(Ok(AccessOk { attributes: attributes.clone(), access: 1 })),
        Reply::ReadLink(Ok(ReadLinkOk { attributes: None, target: Opaque(b"target") })),
        Reply::Read(Ok(ReadOk { attributes: None, count: 3, eof: true, data: Opaque(b"abc") })),
        Reply::Write(Ok(WriteOk { wcc: wcc(), count: 5, committed: StableHow::FileSync, verf: [9; 8] })),
        Reply::Create(made()),
        Reply::MkDir(made()),
        Reply::SymLink(made()),
        Reply::MkNod(made()),
        Reply::Remove(Ok(wcc())),
        Reply::RmDir(Ok(Wcc::default())),
        Reply::Rename(Ok(RenameWcc { from: wcc(), to: Wcc::default() })),
        Reply::Link(Ok(LinkWcc { attributes: None, wcc: wcc() })),
        Reply::ReadDir(Ok(ReadDirOk {
            dir: None,
            verf: [0; 8],
            entries: vec![ListEntry { fileid: 1, name: Opaque(b"."), cookie: 1 }],
            eof: false,
        })),
        Reply::ReadDirPlus(Ok(ReadDirPlusOk {
            dir: None,
            verf: [0; 8],
            entries: vec![EntryPlus {
                fileid: 1,
                name: Opaque(b"."),
                cookie: 1,
                attributes: attributes.clone(),
                object: Some(object),
            }],
            eof: true,
        })),
        Reply::FsStat(Ok(FsStatOk {
            attributes: None,
            tbytes: 1,
            fbytes: 2,
            abytes: 3,
            tfiles: 4,
            ffiles: 5,
            afiles: 6,
            invarsec: 0,
        })),
        Reply::FsInfo(Ok(FsInfoOk {
            attributes: None,
            rtmax: 1,
            rtpref: 2,
            rtmult: 3,
            wtmax: 4,
            wtpref: 5,
            wtmult: 6,
            dtpref: 7,
            maxfilesize: 8,
            time_delta: NfsTime::of(1),
            properties: 0x1b,
        })),
        Reply::PathConf(Ok(PathConfOk {
            attributes: None,
            linkmax: 1,
            name_max: 255,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        })),
        Reply::Commit(Ok(CommitOk { wcc: wcc(), verf: [9; 8] })),
    ]
}

fn call_bytes(call: &Call<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    call.encode(&mut bytes);
    bytes
}

fn reply_bytes(reply: &Reply<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    reply.encode(&mut bytes);
    bytes
}

/// The numbers are those of the RFC.
#[test]
fn calls_are_as_on_the_wire() {
    let write = Call::Write(WriteArgs {
        file: Opaque(&[0xaa, 0xbb]),
        offset: 0x0102,
        count: 3,
        stable: StableHow::Unstable,
        data: Opaque(&[1, 2, 3]),
    });
    #[rustfmt::skip]
    assert_eq!(call_bytes(&write), [
        0, 0, 0, 2, 0xaa, 0xbb, 0, 0,
        0, 0, 0, 0, 0, 0, 1, 2,
        0, 0, 0, 3,
        0, 0, 0, 0,
        0, 0, 0, 3, 1, 2, 3, 0,
    ]);
    let set = Call::MkDir(MkDirArgs {
        place: DirOp { dir: Opaque(&[]), name: Opaque(b"ab") },
        attributes: set_attr(),
    });
    #[rustfmt::skip]
    assert_eq!(call_bytes(&set), [
        0, 0, 0, 0,
        0, 0, 0, 2, b'a', b'b', 0, 0,
        0, 0, 0, 1, 0, 0, 1, 0x80, // mode
        0, 0, 0, 0, // uid
        0, 0, 0, 1, 0, 0, 0, 9, // gid
        0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, // size
        0, 0, 0, 1, // atime: the server's
        0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, // mtime: the client's
    ]);
    let stale = Reply::failed(Procedure::Remove, Stat::Stale).unwrap();
    assert_eq!(reply_bytes(&stale), [0, 0, 0, 70, 0, 0, 0, 0, 0, 0, 0, 0]);
    let jukebox = Reply::failed(Procedure::GetAttr, Stat::Jukebox).unwrap();
    assert_eq!(reply_bytes(&jukebox), 10008_u32.to_be_bytes());
}

#[test]
fn every_call_decodes_to_itself() {
    let mut seen: Vec<Procedure> = Vec::new();
    for call in calls() {
        let bytes = call_bytes(&call);
        assert_eq!(Call::decode(call.procedure(), &bytes), Ok(call.clone()));
        for len in 0..bytes.len() {
            assert!(Call::decode(call.procedure(), &bytes[..len]).is_err(), "{call:?} cut to {len}");
        }
        let mut longer = bytes.clone();
        longer.extend_from_slice(&[0; 4]);
        assert_eq!(Call::decode(call.procedure(), &longer), Err(XdrError::Trailing));
        seen.push(call.procedure());
    }
    seen.dedup();
    assert_eq!(seen, Procedure::ALL, "one of each at least");
}

#[test]
fn every_reply_decodes_to_itself() {
    let failures = Procedure::ALL.iter().filter_map(|p| Reply::failed(*p, Stat::Jukebox));
    for reply in replies().into_iter().chain(failures) {
        let bytes = reply_bytes(&reply);
        assert_eq!(Reply::decode(reply.procedure(), &bytes), Ok(reply.clone()));
        for len in 0..bytes.len() {
            assert!(Reply::decode(reply.procedure(), &bytes[..len]).is_err(), "{reply:?} cut to {len}");
        }
    }
    assert_eq!(replies().len(), Procedure::ALL.len());
}

#[test]
fn mount_values_decode_to_themselves() {
    let done = MountReply::Done { handle: Opaque(b"root"), flavors: vec![1, 0] };
    assert_eq!(xdr::decode(&xdr::encode(&done)), Ok(done));
    let failed = MountReply::Failed(MountStat::Access);
    assert_eq!(xdr::encode(&failed), [0, 0, 0, 13]);
    assert_eq!(xdr::decode(&xdr::encode(&failed)), Ok(failed));
    let mounts = vec![MountEntry { host: Opaque(b"h"), dir: Opaque(b"/") }];
    assert_eq!(xdr::decode(&xdr::encode(&mounts)), Ok(mounts));
    let exports = vec![ExportEntry { dir: Opaque(b"/"), groups: vec![Opaque(b"10.0.0.0/8")] }];
    assert_eq!(xdr::decode(&xdr::encode(&exports)), Ok(exports));
    let many = [0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
    assert_eq!(xdr::decode::<MountReply<'_>>(&many), Err(XdrError::TooLong));
}

/// Seconds have 32 bits on the wire and 64 inside.
#[test]
fn times_beyond_2106_lose_their_high_bits_on_the_wire_alone() {
    assert_eq!(NfsTime::of(((1 << 32) + 5) * 1_000_000_000 + 9), NfsTime { seconds: 5, nseconds: 9 });
    assert_eq!(NfsTime { seconds: u32::MAX, nseconds: 0 }.ns(), Some(4_294_967_295_000_000_000));
    assert_eq!(NfsTime { seconds: 0, nseconds: 1_000_000_000 }.ns(), None);
}

/// Random bytes, and valid ones with some bytes changed: an error or a value that encodes to them.
#[test]
fn what_decodes_has_one_encoding() {
    let mut random = Xorshift(0x9e37_79b9);
    let (calls, replies) = (calls(), replies());
    let mut valid = 0;
    for round in 0..60_000_usize {
        let call = round % 2 == 0;
        let at = round / 2 % if call { calls.len() } else { replies.len() };
        let mut bytes = if call { call_bytes(&calls[at]) } else { reply_bytes(&replies[at]) };
        if round % 10 == 9 {
            for byte in &mut bytes {
                *byte = random.below(4);
            }
        }
        for _ in 0..random.below(4) {
            let at = random.index(bytes.len().max(1));
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.below(256);
            }
        }
        let procedure = Procedure::ALL[random.index(22)];
        for procedure in [procedure, if call { calls[at].procedure() } else { replies[at].procedure() }] {
            if let Ok(call) = Call::decode(procedure, &bytes) {
                assert_eq!(call_bytes(&call), bytes);
                valid += 1;
            }
            if let Ok(reply) = Reply::decode(procedure, &bytes) {
                assert_eq!(reply_bytes(&reply), bytes);
                valid += 1;
            }
        }
        let _ = xdr::decode::<MountReply<'_>>(&bytes);
        let _ = xdr::decode::<ReplyHead>(&bytes);
        if let Ok(head) = xdr::decode::<CallHead<'_>>(&bytes)
            && head.rpc_version == 2
        {
            assert_eq!(xdr::encode(&head), bytes);
        }
        if let Ok(auth) = xdr::decode::<AuthSys<'_>>(&bytes) {
            assert_eq!(xdr::encode(&auth), bytes);
        }
    }
    assert!(valid > 10_000, "the test decodes something: {valid}");
}
