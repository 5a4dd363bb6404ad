//! Any bytes as operations: an answer or none, never a panic, and the state stays in order.
#![allow(clippy::unwrap_used, clippy::panic, clippy::result_large_err, reason = "a test may panic")]

use crate::support::*;
use quorate_fs::nfs3::*;
use quorate_fs::rpc::xdr::Opaque;

/// A call with arguments drawn from small sets, most of them possible.
fn some_call<'a>(random: &mut Xorshift, handles: &'a [H], names: &'a [String]) -> Call<'a> {
    let handle = fh(random.pick::<H>(handles));
    let place = |random: &mut Xorshift| DirOp {
        dir: fh(random.pick::<H>(handles)),
        name: Opaque(random.pick(names).as_bytes()),
    };
    let number = |random: &mut Xorshift| match random.below(4) {
        0 => random.next(),
        1 => random.below(1 << 33),
        _ => random.below(5000),
    };
    let [.., a, b, c, d] = number(random).to_be_bytes();
    let count = u32::from_be_bytes([a, b, c, d]);
    let offset = number(random);
    let attributes = SetAttr {
        mode: (random.below(2) == 0).then_some(count),
        uid: (random.below(4) == 0).then_some(count % 3),
        gid: None,
        size: (random.below(2) == 0).then_some(offset),
        atime: SetTime::Keep,
        mtime: SetTime::Client(NfsTime { seconds: count, nseconds: count }),
    };
    match random.below(22) {
        0 => Call::Null(()),
        1 => Call::GetAttr(handle),
        2 => Call::SetAttr(SetAttrArgs { object: handle, attributes, guard: None }),
        3 => Call::Lookup(place(random)),
        4 => Call::Access(AccessArgs { object: handle, access: count }),
        5 => Call::ReadLink(handle),
        6 => Call::Read(ReadArgs { file: handle, offset, count }),
        7 => {
            let stable = StableHow::FileSync;
            let count = count % 6000;
            Call::Write(WriteArgs { file: handle, offset, count, stable, data: Opaque(&[7; 5000]) })
        }
        8 => Call::Create(CreateArgs { place: place(random), how: CreateHow::Unchecked(attributes) }),
        9 => Call::MkDir(MkDirArgs { place: place(random), attributes }),
        10 => Call::SymLink(SymLinkArgs { place: place(random), attributes, target: Opaque(&[b'x'; 600]) }),
        11 => {
            Call::MkNod(MkNodArgs { place: place(random), what: MkNodData::Pipe(FileType::Fifo, attributes) })
        }
        12 => Call::Remove(place(random)),
        13 => Call::RmDir(place(random)),
        14 => Call::Rename(RenameArgs { from: place(random), to: place(random) }),
        15 => Call::Link(LinkArgs { file: handle, link: place(random) }),
        16 => Call::ReadDir(ReadDirArgs { dir: handle, cookie: offset, verf: [0; 8], count }),
        17 => Call::ReadDirPlus(ReadDirPlusArgs {
            dir: handle,
            cookie: offset,
            verf: [0; 8],
            dircount: count,
            maxcount: count,
        }),
        18 => Call::FsStat(handle),
        19 => Call::FsInfo(handle),
        20 => Call::PathConf(handle),
        _ => Call::Commit(CommitArgs { file: handle, offset, count }),
    }
}

/// Whatever is called with whatever arguments, in a state that soon is full.
#[test]
fn any_calls_leave_the_state_in_order() {
    for seed in 0..12 {
        let mut random = Xorshift::new(seed);
        let pages = if seed % 2 == 0 { 400 } else { 1 << 14 };
        let mut b = Bench::with(open_settings(), pages);
        let mut handles = vec![b.root.clone(), vec![0; 24], Vec::new()];
        let names: Vec<String> =
            (0..10).map(|i| format!("n{i}")).chain(["", ".", "..", "a/b"].map(String::from)).collect();
        for step in 0..1500 {
            b.become_user(u32::try_from(random.below(3)).unwrap(), 0);
            let call = some_call(&mut random, &handles, &names);
            let body = b.call(&call);
            if let Ok(Reply::Create(Ok(made)) | Reply::MkDir(Ok(made))) =
                Reply::decode(call.procedure(), &body)
                && handles.len() < 30
            {
                handles.push(made.object.unwrap().0.to_vec());
            }
            if step % 100 == 0 {
                b.assert_clean();
            }
        }
        b.assert_clean();
    }
}

/// A digest of the replies to drawn calls: a reply of another version of the program is another byte for byte. It may only
/// change with the meaning of a call.
const REPLIES: &str = "ac9a7bb606501fff830fc8195e2338dd0df78539d64780373d42a09afb92c6d9";

/// All replicas of a cluster give the same bytes, also while their program is replaced one after the other.
#[test]
fn replies_are_those_of_earlier_versions() {
    let mut hash = blake3::Hasher::new();
    let mut count_ok = 0;
    for seed in 100..104 {
        let mut random = Xorshift::new(seed);
        let mut b = Bench::with(open_settings(), if seed == 103 { 300 } else { 1 << 14 });
        let mut handles = vec![b.root.clone(), vec![0; 24], Vec::new()];
        let names: Vec<String> =
            (0..10).map(|i| format!("n{i}")).chain(["", ".", "..", "a/b"].map(String::from)).collect();
        for _ in 0..4000 {
            b.become_user(u32::try_from(random.below(3)).unwrap(), 0);
            let call = some_call(&mut random, &handles, &names);
            let body = b.call(&call);
            hash.update(&body);
            count_ok += u32::from(body.first_chunk() == Some(&[0; 4]));
            if let Ok(Reply::Create(Ok(made)) | Reply::MkDir(Ok(made)) | Reply::SymLink(Ok(made))) =
                Reply::decode(call.procedure(), &body)
                && handles.len() < 30
            {
                handles.push(made.object.unwrap().0.to_vec());
            }
        }
        b.assert_clean();
    }
    assert!(count_ok > 3000, "{count_ok} of 16000 calls succeed");
    assert_eq!(hash.finalize().to_hex().as_str(), REPLIES);
}

/// Bytes that are no operation, and operations with some bytes changed.
#[test]
fn any_bytes_leave_the_state_in_order() {
    let mut random = Xorshift::new(9);
    let mut b = Bench::with(open_settings(), 1 << 12);
    let root = b.root.clone();
    let handles = [root.clone(), b.file(&root, "a"), b.mkdir(&root, "d", 0o755).unwrap()];
    let names: Vec<String> = (0..5).map(|i| format!("n{i}")).collect();
    for step in 0..20_000 {
        let mut operation = b.nfs_operation(&some_call(&mut random, &handles, &names));
        if step % 7 == 0 {
            operation.truncate(usize::try_from(random.below(operation.len() as u64)).unwrap());
        }
        for _ in 0..random.below(4) {
            let at = usize::try_from(random.below(operation.len().max(1) as u64)).unwrap();
            if let Some(byte) = operation.get_mut(at) {
                *byte = u8::try_from(random.below(256)).unwrap();
            }
        }
        let reply = b.operate(&operation);
        assert!(reply.len() <= (1 << 20) + 4096);
        if step % 1000 == 0 {
            b.assert_clean();
        }
    }
}
