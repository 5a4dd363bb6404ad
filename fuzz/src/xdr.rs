//! Every decoder of the file system's wire: RPC, NFS and MOUNT, calls and replies, and the records of a stream.
//!
//! The first byte of an input chooses the decoder. What decodes is encoded again and gives the same bytes,
//! as every value has one encoding; but for the head of a reply, whose verifier is skipped.

use quorate_fs::nfs3::mount3::{ExportEntry, MountEntry, MountReply};
use quorate_fs::nfs3::{Attr, Call, FileType, NfsTime, Procedure, Reply, Stat};
use quorate_fs::rpc::record::{Records, put_record};
use quorate_fs::rpc::xdr::{self, Decoded, Opaque, Reader, Xdr};
use quorate_fs::rpc::{AuthSys, CallHead, RPC_VERSION, ReplyHead, Status};

use crate::{Target, feature, nfs};

/// The target.
pub const TARGET: Target = Target {
    name: "xdr",
    run,
    seeds,
    input_bytes_max: 64 << 10,
    memory_bytes_max: 2 << 20,
    millis_max: 1000,
};

/// Decoders other than those of a procedure's arguments and results.
const OTHERS: usize = 7;
/// The longest record.
const RECORD_BYTES_MAX: usize = 32 << 10;

fn run(input: &[u8]) -> u64 {
    let Some((choice, bytes)) = input.split_first() else { return 0 };
    let choice = usize::from(*choice) % (OTHERS + 2 * Procedure::ALL.len());
    let outcome = match choice {
        0 => head(bytes),
        1 => reply_head(bytes),
        2 => canonical::<AuthSys<'_>>(bytes),
        3 => canonical::<MountReply<'_>>(bytes),
        4 => canonical::<MountEntry<'_>>(bytes),
        5 => canonical::<ExportEntry<'_>>(bytes),
        6 => records(bytes),
        _ => procedure(choice - OTHERS, bytes),
    };
    let size = bytes.len().checked_ilog2().unwrap_or(0);
    feature(&[u64::try_from(choice).unwrap_or(0), outcome, u64::from(size)])
}

/// Says how decoding went, having looked at what came of it.
fn outcome<T>(decoded: Decoded<T>, bytes: &[u8], encode: impl FnOnce(&T) -> Vec<u8>) -> u64 {
    match decoded {
        Err(error) => 2 + error as u64,
        Ok(value) => {
            assert_eq!(encode(&value), bytes, "the encoding is not canonical");
            1
        }
    }
}

fn canonical<'a, T: Xdr<'a>>(bytes: &'a [u8]) -> u64 {
    outcome(xdr::decode::<T>(bytes), bytes, |value| xdr::encode(value))
}

/// The head of a call, in front of anything.
fn head(bytes: &[u8]) -> u64 {
    let mut r = Reader::new(bytes);
    let head = CallHead::decode(&mut r);
    let used = &bytes[..bytes.len() - r.rest().len()];
    match head {
        // Of a head of another time only the beginning is read.
        Ok(head) if head.rpc_version != RPC_VERSION => 1,
        head => outcome(head, used, xdr::encode) + 1,
    }
}

fn reply_head(bytes: &[u8]) -> u64 {
    match ReplyHead::decode(&mut Reader::new(bytes)) {
        Err(error) => 2 + error as u64,
        Ok(head) => {
            let again = ReplyHead::decode(&mut Reader::new(&xdr::encode(&head)));
            assert_eq!(again, Ok(head), "a head decodes to what was encoded");
            1 << 8 | u64::from(head.status == Status::Success)
        }
    }
}

/// A stream of records, in small pieces: they come out as when they are put together again.
fn records(bytes: &[u8]) -> u64 {
    let (mut records, mut count) = (Records::new(RECORD_BYTES_MAX), 0);
    let mut pieces = bytes.chunks(97);
    let mut rest: &[u8] = &[];
    loop {
        if rest.is_empty() {
            let Some(piece) = pieces.next() else { return 1 << 16 | count };
            rest = piece;
        }
        let Ok((taken, record)) = records.take(rest) else { return 2 << 16 | count };
        assert!(taken > 0 || record.is_some(), "bytes are taken");
        // A vector that grows has up to twice the room that it needs.
        assert!(records.held() <= 2 * RECORD_BYTES_MAX, "no more than the longest record is held");
        rest = &rest[taken..];
        if let Some(record) = record {
            let mut stream = Vec::new();
            put_record(&mut stream, &record);
            let again = Records::new(RECORD_BYTES_MAX).take(&stream);
            assert_eq!(again, Ok((stream.len(), Some(record))), "a record comes out as it was put in");
            count += 1;
        }
    }
}

/// The arguments or the result of a procedure.
fn procedure(choice: usize, bytes: &[u8]) -> u64 {
    let of = |encode: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        encode(&mut out);
        out
    };
    let Some(at) = choice.checked_sub(Procedure::ALL.len()) else {
        let call = Call::decode(Procedure::ALL[choice], bytes);
        return outcome(call, bytes, |call| of(&|out| call.encode(out)));
    };
    let reply = Reply::decode(Procedure::ALL[at], bytes);
    outcome(reply, bytes, |reply| of(&|out| reply.encode(out)))
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    let mut add = |choice: usize, bytes: &[u8]| {
        let choice = u8::try_from(choice).unwrap_or(0);
        seeds.push([&[choice], bytes].concat());
    };
    for operation in nfs::operations() {
        let call = &operation[quorate_fs::nfs3::operation::HEAD_BYTES..];
        let mut r = Reader::new(call);
        let Ok(head) = CallHead::decode(&mut r) else { unreachable!("our own call") };
        add(0, call);
        add(2, head.credential.body.0);
        if head.program == quorate_fs::nfs3::PROGRAM {
            add(OTHERS + usize::try_from(head.procedure).unwrap_or(0), r.rest());
        }
        let mut stream = Vec::new();
        put_record(&mut stream, call);
        add(6, &stream);
    }
    for status in [Status::Success, Status::ProgMismatch(2, 3), Status::RpcMismatch(2, 2)] {
        add(1, &xdr::encode(&ReplyHead { xid: 7, status }));
    }
    add(3, &xdr::encode(&MountReply::Done { handle: Opaque(&[7; 24]), flavors: vec![0, 1] }));
    add(4, &xdr::encode(&MountEntry { host: Opaque(b"host"), dir: Opaque(b"/") }));
    add(5, &xdr::encode(&ExportEntry { dir: Opaque(b"/"), groups: vec![Opaque(b"all")] }));
    let time = NfsTime { seconds: 1, nseconds: 2 };
    let attributes = Attr {
        kind: FileType::Reg,
        mode: 0o644,
        nlink: 1,
        uid: 1,
        gid: 1,
        size: 1,
        used: 1,
        rdev: quorate_fs::nfs3::SpecData::default(),
        fsid: 1,
        fileid: 1,
        atime: time,
        mtime: time,
        ctime: time,
    };
    for (at, procedure) in Procedure::ALL.iter().enumerate() {
        if let Some(failed) = Reply::failed(*procedure, Stat::NoSpc) {
            let mut bytes = Vec::new();
            failed.encode(&mut bytes);
            add(OTHERS + Procedure::ALL.len() + at, &bytes);
        }
        // A success with attributes, or what of it many results begin with.
        let done = [&[0; 4][..], &[0, 0, 0, 1], &xdr::encode(&attributes), &[0; 64]].concat();
        add(OTHERS + Procedure::ALL.len() + at, &done);
    }
    seeds
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_seeds_reach_every_decoder() {
        let chosen: BTreeSet<u8> = seeds().iter().map(|seed| seed[0]).collect();
        let decoders = OTHERS + 2 * Procedure::ALL.len();
        assert!(chosen.len() > decoders - 8, "{} of {decoders}", chosen.len());
        let features: BTreeSet<u64> = seeds().iter().map(|seed| run(seed)).collect();
        assert!(features.len() > 40, "{}", features.len());
    }
}
