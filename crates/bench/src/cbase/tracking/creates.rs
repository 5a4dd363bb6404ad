//! Creates in 16 directories of the file system, while one slow call has not settled.

use anyhow::{Context as _, Result, anyhow, bail};
use quorate_fs::nfs3::calls::{Calls, mount_reply, nfs_reply};
use quorate_fs::nfs3::rules::FsRules;
use quorate_fs::nfs3::{
    Call, CreateArgs, CreateHow, DirOp, MkDirArgs, Procedure, Reply, SetAttr, StableHow, WriteArgs,
};
use quorate_fs::rpc::xdr::Opaque;
use quorate_fs::settings::{Export, Squash};
use quorate_fs::{Fs, Operation, Settings};
use quorate_service::parallel::{Counters, EngineKind, Runs};
use quorate_service::{Executor, Options};
use quorate_wire::digest::Domains;
use quorate_wire::{Batch, ClientId, ClusterId, Replies, SeqNum, Timestamp};

use super::window;
use crate::files::Chance;

const DIRS: usize = 16;
/// Batches that run while one call takes 20 ms. Each has a create in each directory.
const BATCHES: usize = 32;

/// The lane of the slow call: the others have those above it.
const SLOW: u64 = 1;

/// The file system, and a client that makes its calls.
struct Files {
    executor: Executor<Fs>,
    domains: Domains,
    calls: Calls,
    seq: SeqNum,
}

impl Files {
    fn new(fs: &Fs) -> Self {
        let domains = Domains::new(ClusterId([1; 32]));
        let options = Options { clients_max: 64, lanes_max: 64, ..Options::default() };
        let executor = Executor::new(fs.clone(), domains.clone(), options);
        Self { executor, domains, calls: Calls::new("bench", 0, 0, &[], 1), seq: SeqNum(0) }
    }

    /// Returns the next batch, with each call from a lane of its own, from lane `first` on.
    fn batch(&mut self, first: u64, calls: &[Vec<u8>]) -> Batch {
        self.seq = self.seq.next();
        let mut batch = Batch::default();
        for (lane, call) in (first..).zip(calls) {
            let mut operation = Vec::new();
            Operation { address: [0; 16], call }.encode(&mut operation);
            let client = ClientId::new(lane, 0);
            batch.push_operation(&self.domains, client, Timestamp(self.seq.0), &operation);
        }
        batch.seal(&self.domains, &(1_000_000 * self.seq.0).to_le_bytes());
        batch
    }

    /// Executes a batch on pages. Returns the results.
    fn order(&mut self, calls: &[Vec<u8>]) -> Result<Vec<Vec<u8>>> {
        let (batch, mut replies) = (self.batch(SLOW, calls), Replies::new());
        let done = self.executor.execute(self.seq, &batch, false, &mut replies);
        done.map_err(|_| anyhow!("a page is missing"))?;
        Ok(replies.iter().map(|reply| reply.result.unwrap_or_default().to_vec()).collect())
    }

    fn create(&mut self, dir: &[u8], name: &str) -> Vec<u8> {
        let place = DirOp { dir: Opaque(dir), name: Opaque(name.as_bytes()) };
        self.calls.nfs(&Call::Create(CreateArgs { place, how: CreateHow::Guarded(SetAttr::default()) }))
    }

    /// Makes directories and a file in the root, each by a lane of its own, which has an entry in the client table then.
    /// Returns the handle of the file, and those of the directories.
    fn prepare(&mut self) -> Result<(Vec<u8>, Vec<Vec<u8>>)> {
        let mount = self.calls.mount("/");
        let root = self.order(&[mount])?.pop().context("a call has a result")?;
        let root = mount_reply(&root)?.map_err(|stat| anyhow!("{stat:?}"))?.to_vec();
        let mut calls = vec![self.create(&root, "file")];
        for dir in 0..DIRS {
            let name = format!("dir-{dir}");
            let place = DirOp { dir: Opaque(&root), name: Opaque(name.as_bytes()) };
            calls.push(self.calls.nfs(&Call::MkDir(MkDirArgs { place, attributes: SetAttr::default() })));
        }
        let mut handles = Vec::new();
        for (made, result) in self.order(&calls)?.iter().enumerate() {
            let procedure = if made == 0 { Procedure::Create } else { Procedure::MkDir };
            let (Reply::Create(made) | Reply::MkDir(made)) = nfs_reply(procedure, result)? else {
                bail!("another reply")
            };
            let made = made.map_err(|(stat, _)| anyhow!("{stat:?}"))?;
            handles.push(made.object.context("it has a handle")?.0.to_vec());
        }
        Ok((handles.remove(0), handles))
    }
}

/// Executes creates with runs. Returns what was counted.
pub(super) fn execute(windows: usize) -> Result<Counters> {
    let export = Export { squash: Squash::Nobody, ..Export::of("/") };
    let settings = Settings { exports: vec![export], ..Settings::default() };
    let fs = Fs::new(settings).map_err(|error| anyhow!("fs_{error}"))?;
    let mut files = Files::new(&fs);
    let (file, dirs) = files.prepare()?;
    let mut runs =
        Runs::new(EngineKind::GroupIndex, FsRules::new(fs), 7, true).map_err(|error| anyhow!("{error}"))?;
    let mut ends = Chance::new(5);
    for window in 0..windows {
        for batch in 0..BATCHES {
            let (data, stable) = ([7; 64], StableHow::FileSync);
            let write = WriteArgs { file: Opaque(&file), offset: 0, count: 64, stable, data: Opaque(&data) };
            // The first call is the slow one.
            let mut calls = if batch == 0 { vec![files.calls.nfs(&Call::Write(write))] } else { Vec::new() };
            for dir in &dirs {
                calls.push(files.create(dir, &format!("{window}-{batch}-{}", calls.len())));
            }
            let batch = files.batch(if batch == 0 { SLOW } else { SLOW + 1 }, &calls);
            runs.insert(&mut files.executor, files.seq, &batch).map_err(|_| anyhow!("no room"))?;
        }
        window::settle(&mut runs, &mut files.executor, &mut ends)?;
    }
    Ok(runs.counters())
}
