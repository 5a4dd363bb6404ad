//! Input of file system clients: streams of bytes on connections of a gateway, whose calls one replica executes.
//!
//! For any input, replies are well-formed, the bounds of the connections hold, and the state is in order at the end. The
//! first byte chooses the size of the pieces and the number of connections. All connections send the same stream in turns,
//! each in pieces of its own size, so the calls of one are repeated on the next. Two belong to one client.

use quorate_fs::nfs3::operation::Operation;
use quorate_fs::nfs3::relay::{Connection, Limits};
use quorate_fs::nfs3::{
    self, Call, CommitArgs, CreateArgs, CreateHow, DirOp, LinkArgs, MkDirArgs, MkNodArgs, MkNodData, PROGRAM,
    ReadArgs, ReadDirArgs, ReadDirPlusArgs, RenameArgs, SetAttr, SetAttrArgs, StableHow, SymLinkArgs,
    WriteArgs, mount3,
};
use quorate_fs::rpc::record::{Records, put_record};
use quorate_fs::rpc::xdr::{self, Opaque, Reader, Xdr};
use quorate_fs::rpc::{AuthSys, CallHead, OpaqueAuth, ReplyHead};
use quorate_fs::{Fs, Settings, fsck};
use quorate_service::options::Options;
use quorate_service::{Executor, Service, View};
use quorate_wire::digest::Domains;
use quorate_wire::{Batch, ClientId, ClusterId, Digest, Replies, SeqNum, Timestamp};

use crate::{Target, feature};

/// The target.
pub const TARGET: Target = Target {
    name: "nfs",
    run,
    seeds,
    input_bytes_max: 8 << 10,
    memory_bytes_max: 32 << 20,
    millis_max: 2000,
};

/// The most calls of one execution.
const CALLS_MAX: u64 = 64;
/// Pages of the state.
const PAGES: u32 = 2048;

/// One replica of the file system.
pub(crate) struct Server {
    executor: Executor<Fs>,
    seq: u64,
}

impl Server {
    /// Returns a replica whose file system has this many pages.
    pub(crate) fn new(pages: u32) -> Option<Self> {
        Self::with(pages, Settings::default())
    }

    /// Returns a replica whose file system has this many pages and these settings, but few replies.
    pub(crate) fn with(pages: u32, settings: Settings) -> Option<Self> {
        let fs = Fs::new(Settings { reply_pages: 2, ..settings }).ok()?;
        let options = Options { clients_max: 1, result_bytes_max: 0, ..Options::default() };
        // The fewest pages in addition to these: those of the one client's replies.
        let options = (pages..).map(|pages_max| Options { pages_max, ..options.clone() });
        let options = options.take(64).find(|options| options.check().is_ok())?;
        let domains = Domains::new(ClusterId([1; 32]));
        Some(Self { executor: Executor::new(fs, domains, options), seq: 0 })
    }

    pub(crate) fn settings(&self) -> &Settings {
        self.executor.service().settings()
    }

    /// Returns the state.
    pub(crate) fn view(&self) -> View<'_> {
        self.executor.view()
    }

    /// Returns what the short way has for an answer, if it has one.
    pub(crate) fn read(&mut self, operation: &[u8]) -> Option<Vec<u8>> {
        let mut result = Vec::new();
        self.executor.read((ClientId::new(1, 0), Timestamp(0), &Digest::ZERO), operation, &mut result)?;
        Some(result)
    }

    /// Has an operation executed in order and returns its result.
    pub(crate) fn order(&mut self, operation: &[u8]) -> Vec<u8> {
        let (client, domains) = (ClientId::new(1, 0), Domains::new(ClusterId([1; 32])));
        self.seq += 1;
        let mut batch = Batch::default();
        batch.push_operation(&domains, client, Timestamp(self.seq), operation);
        batch.seal(&domains, &1_u64.to_le_bytes());
        let mut replies = Replies::default();
        let done = self.executor.execute(SeqNum(self.seq), &batch, false, &mut replies);
        assert_eq!(done, Ok(()), "a store in memory has every page");
        replies.iter().next().and_then(|reply| reply.result).unwrap_or_default().to_vec()
    }

    fn execute(&mut self, operation: &[u8]) -> Vec<u8> {
        match self.read(operation) {
            Some(result) => result,
            None => self.order(operation),
        }
    }
}

/// Whence the connections come.
const ADDRESSES: [[u8; 16]; 3] = [[7; 16], [7; 16], [8; 16]];

fn run(input: &[u8]) -> u64 {
    let (Some((first, stream)), Some(mut server)) = (input.split_first(), Server::new(PAGES)) else {
        return 0;
    };
    let limits = Limits { calls_max: 4, ..Limits::default() };
    let (count, piece) = (usize::from(first / 64) % ADDRESSES.len() + 1, usize::from(first % 64) * 4 + 1);
    let mut connections: Vec<(Connection, Records, &[u8])> = ADDRESSES[..count]
        .iter()
        .map(|address| (Connection::new(*address, limits), Records::new(2 << 20), stream))
        .collect();
    let mut parts = Vec::new();
    while connections.iter().any(|(_, _, rest)| !rest.is_empty()) && server.seq < CALLS_MAX {
        for (number, (connection, _, rest)) in connections.iter_mut().enumerate() {
            let piece = &rest[..rest.len().min(piece * (number + 1))];
            let Ok(taken) = connection.receive(server.executor.service(), piece) else {
                // It is of no more use.
                *rest = &[];
                continue;
            };
            *rest = &rest[taken..];
        }
        // All have sent before any is answered.
        for (connection, replies, _) in connections.iter_mut().rev() {
            while let Some(call) = connection.submit() {
                assert_eq!(call.read_only, server.executor.service().is_read_only(call.operation));
                // Where a call has its procedure, if it comes from here.
                parts.extend(call.operation.get(40).map(|procedure| u64::from(*procedure)));
                let (ticket, reply) = (call.ticket, server.execute(call.operation));
                assert!(!reply.is_empty(), "a call that is understood is answered");
                connection.replied(ticket, &reply);
            }
            assert!(connection.is_idle());
            answers(connection, replies, &mut parts);
        }
    }
    let report = fsck::check(server.executor.service().settings(), server.executor.view());
    assert!(report.as_ref().is_ok_and(fsck::Report::is_clean), "{report:?}");
    feature(&parts)
}

/// Takes the replies: each has a head. Its status and what it begins with are features.
fn answers(connection: &mut Connection, records: &mut Records, parts: &mut Vec<u64>) {
    while !connection.outgoing().is_empty() {
        let Ok((taken, reply)) = records.take(connection.outgoing()) else { unreachable!("our own records") };
        connection.sent(taken);
        let Some(reply) = reply else { continue };
        let mut r = Reader::new(&reply);
        assert!(ReplyHead::decode(&mut r).is_ok(), "a reply has a head");
        let stat = r.rest().first_chunk().map_or(0, |stat| u32::from_be_bytes(*stat));
        parts.push(u64::from(stat));
        parts.push(u64::from(reply.len().checked_ilog2().unwrap_or(0)));
    }
}

/// The handle of an inode through an export: the root's generation is 0, that of what the first batch makes is 1.
fn handle(inode: u64, generation: u32, export: u32) -> Vec<u8> {
    let mut handle = 1_u64.to_be_bytes().to_vec();
    handle.extend_from_slice(&inode.to_be_bytes());
    handle.extend_from_slice(&generation.to_be_bytes());
    handle.extend_from_slice(&export.to_be_bytes());
    handle
}

fn record(stream: &mut Vec<u8>, xid: u32, program: u32, procedure: u32, args: &[u8]) {
    let auth = AuthSys { stamp: 0, machine: Opaque(b"m"), uid: 10, gid: 10, gids: vec![11] };
    let body = xdr::encode(&auth);
    let head = CallHead { credential: OpaqueAuth::sys(&body), ..CallHead::new(xid, program, 3, procedure) };
    let mut call = xdr::encode(&head);
    call.extend_from_slice(args);
    put_record(stream, &call);
}

/// Returns the calls of the seeds as operations: three for each procedure, then those of MOUNT.
pub(crate) fn operations() -> Vec<Vec<u8>> {
    operations_through(0)
}

/// Returns them with what they name through an export.
pub(crate) fn operations_through(export: u32) -> Vec<Vec<u8>> {
    let mut operations = Vec::new();
    for stream in streams(export) {
        let (mut records, mut rest) = (Records::new(2 << 20), &stream[..]);
        while let Ok((taken, Some(call))) = records.take(rest) {
            rest = &rest[taken..];
            let mut operation = Vec::new();
            Operation { address: [7; 16], call: &call }.encode(&mut operation);
            operations.push(operation);
        }
    }
    operations
}

fn seeds() -> Vec<Vec<u8>> {
    // In large pieces on one connection, on two and on three; in small ones on three.
    let on = |first: u8| move |stream: Vec<u8>| [&[first], &stream[..]].concat();
    [63, 127, 191, 130].into_iter().flat_map(|first| streams(0).into_iter().map(on(first))).collect()
}

/// Returns streams of calls: three for each procedure, then one with those of MOUNT.
fn streams(export: u32) -> Vec<Vec<u8>> {
    let (root, file) = (handle(1, 0, export), handle(2, 1, export));
    let (dir, file) = (Opaque(&root[..]), Opaque(&file[..]));
    let place = |name| DirOp { dir, name: Opaque(str::as_bytes(name)) };
    let attributes = || SetAttr { mode: Some(0o755), size: Some(5000), ..SetAttr::default() };
    let create = || Call::Create(CreateArgs { place: place("a"), how: CreateHow::Unchecked(attributes()) });
    let stable = StableHow::Unstable;
    let target = Opaque(&[b't'; 600][..]);
    let calls = [
        Call::Write(WriteArgs { file, offset: 4000, count: 300, stable, data: Opaque(&[7; 300]) }),
        Call::Read(ReadArgs { file, offset: 3900, count: 500 }),
        Call::SetAttr(SetAttrArgs { object: file, attributes: attributes(), guard: None }),
        Call::MkDir(MkDirArgs { place: place("d"), attributes: attributes() }),
        Call::SymLink(SymLinkArgs { place: place("l"), attributes: attributes(), target }),
        Call::MkNod(MkNodArgs {
            place: place("f"),
            what: MkNodData::Pipe(nfs3::FileType::Fifo, attributes()),
        }),
        Call::Rename(RenameArgs { from: place("a"), to: place("b") }),
        Call::Link(LinkArgs { file, link: place("c") }),
        Call::Remove(place("a")),
        Call::RmDir(place("a")),
        Call::ReadDir(ReadDirArgs { dir, cookie: 0, verf: [0; 8], count: 1000 }),
        Call::ReadDirPlus(ReadDirPlusArgs { dir, cookie: 2, verf: [0; 8], dircount: 500, maxcount: 2000 }),
        Call::Lookup(place("a")),
        Call::Commit(CommitArgs { file, offset: 0, count: 0 }),
        Call::FsStat(dir),
        Call::FsInfo(dir),
        Call::PathConf(file),
    ];
    let mut streams: Vec<Vec<u8>> = Vec::new();
    for call in calls {
        let mut stream = Vec::new();
        for (xid, call) in (1..).zip([create(), call, create()]) {
            let mut args = Vec::new();
            call.encode(&mut args);
            record(&mut stream, xid, PROGRAM, call.procedure() as u32, &args);
        }
        streams.push(stream);
    }
    let mut mount = Vec::new();
    for (xid, procedure) in (1..).zip([1, 2, 5, 3, 4, 0]) {
        let args = if procedure == 1 || procedure == 3 { xdr::encode(&Opaque::<9>(b"/")) } else { vec![] };
        record(&mut mount, xid, mount3::PROGRAM, procedure, &args);
    }
    streams.push(mount);
    streams
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_seeds_reach_what_they_are_for() {
        let features: BTreeSet<u64> = seeds().iter().map(|seed| run(seed)).collect();
        assert!(features.len() >= 10, "{}", features.len());
        assert!(!features.contains(&feature(&[])));
    }
}
