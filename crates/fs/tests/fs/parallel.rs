//! Calls of the file system that run on cells, with the seed picking among all steps that are possible: replies, digests
//! and contents are those of sequential execution (PX-11).
#![allow(clippy::unwrap_used, clippy::panic, clippy::wildcard_imports, reason = "a test may panic")]

use std::collections::{BTreeMap, VecDeque};

use crate::support::*;
use quorate_fs::fsck;
use quorate_fs::nfs3::calls::nfs_reply;
use quorate_fs::nfs3::rules::FsRules;
use quorate_fs::nfs3::*;
use quorate_fs::rpc::xdr::Opaque;
use quorate_fs::settings::{Atime, Quota};
use quorate_fs::{Fs, Settings};
use quorate_service::Executor;
use quorate_service::options::Options;
use quorate_service::parallel::{
    Answer, Arguments, Counters, Done, EngineKind, Job, Matrices, MatrixError, Question, Questions, Rules,
    Runs, Settled,
};
use quorate_wire::digest::Domains;
use quorate_wire::{Batch, ClientId, ClusterId, Digest, Replies, SeqNum, Timestamp};

const KINDS: [EngineKind; 4] =
    [EngineKind::Sequential, EngineKind::Matrix, EngineKind::GroupIndex, EngineKind::Free];
const WORKERS: [usize; 4] = [1, 2, 8, 16];
const CLIENTS: u64 = 8;
const START_NS: u64 = 1_700_000_000_000_000_000;
/// Maximum offset of writes.
const NEAR_BYTES: u64 = 20_000;

#[derive(Clone, Copy, Debug)]
struct Plan {
    kind: EngineKind,
    workers: usize,
    batches: usize,
    atime: Atime,
    /// Little space, and quotas.
    is_small: bool,
    /// Pages turn out to be away again and again.
    faults: bool,
    /// All calls are declared to be independent.
    hides_all: bool,
}

const PLAN: Plan = Plan {
    kind: EngineKind::GroupIndex,
    workers: 8,
    batches: 40,
    atime: Atime::Relatime,
    is_small: false,
    faults: false,
    hides_all: false,
};

struct PlanRules {
    rules: FsRules,
    hides_all: bool,
}

impl Rules for PlanRules {
    fn matrices(&self) -> Result<Matrices, MatrixError> {
        self.rules.matrices()
    }

    fn parse(&self, operation: &[u8], arguments: &mut Arguments) {
        if self.hides_all {
            arguments.begin(0);
        } else {
            self.rules.parse(operation, arguments);
        }
    }
}

/// Answers questions immediately.
#[derive(Debug)]
struct Direct<'a>(&'a Runs<PlanRules>, &'a Executor<Fs, Store>);

impl std::fmt::Debug for PlanRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlanRules")
    }
}

impl Questions for Direct<'_> {
    fn ask(&self, question: Question) -> Option<Answer> {
        self.0.answer(self.1, &question)
    }
}

/// Draws calls on the newest objects.
struct Draw {
    bench: Bench,
    known: VecDeque<H>,
    recent: VecDeque<Vec<u8>>,
    timestamps: BTreeMap<u64, u64>,
    time_ns: u64,
}

impl Draw {
    fn new() -> Self {
        Self {
            bench: Bench::with(open_settings(), 1 << 10),
            known: VecDeque::new(),
            recent: VecDeque::new(),
            timestamps: BTreeMap::new(),
            time_ns: START_NS,
        }
    }

    fn object(&self, random: &mut Xorshift) -> H {
        if self.known.is_empty() || random.below(4) == 0 {
            return self.bench.root.clone();
        }
        let at = usize::try_from(random.below(self.known.len() as u64)).unwrap();
        self.known[at].clone()
    }

    fn operation(&mut self, random: &mut Xorshift) -> Vec<u8> {
        // A client without a reply sends its call again, through another gateway.
        if !self.recent.is_empty() && random.below(12) == 0 {
            let at = usize::try_from(random.below(self.recent.len() as u64)).unwrap();
            return self.recent[at].clone();
        }
        let (dir, other, object) = (self.object(random), self.object(random), self.object(random));
        let (one, two) = (format!("n{}", random.below(6)), format!("n{}", random.below(6)));
        let (here, there) = (place(&dir, &one), place(&other, &two));
        let offset = if random.below(8) == 0 { random.below(1 << 40) } else { random.below(NEAR_BYTES) };
        let byte = b'a' + u8::try_from(random.below(26)).unwrap();
        let data = vec![byte; usize::try_from(random.below(9000)).unwrap() + 1];
        let attributes = mode(0o777);
        let call = match random.below(24) {
            0 => Call::GetAttr(fh(&object)),
            1 => Call::Lookup(here),
            2 => Call::ReadDir(ReadDirArgs { dir: fh(&dir), cookie: 0, verf: [0; 8], count: 4096 }),
            3 => Call::ReadDirPlus(ReadDirPlusArgs {
                dir: fh(&dir),
                cookie: 0,
                verf: [0; 8],
                dircount: 4096,
                maxcount: 8192,
            }),
            4..=7 => Call::Read(ReadArgs { file: fh(&object), offset: random.below(9000), count: 9000 }),
            8 => Call::Create(CreateArgs { place: here, how: CreateHow::Unchecked(size(0)) }),
            9 | 10 => Call::Create(CreateArgs { place: here, how: CreateHow::Guarded(attributes) }),
            11 => Call::MkDir(MkDirArgs { place: here, attributes }),
            12 => Call::SymLink(SymLinkArgs {
                place: here,
                attributes: SetAttr::default(),
                target: Opaque(&data[..data.len().min(1000)]),
            }),
            13 => Call::Remove(here),
            14 => Call::RmDir(here),
            15 => Call::Rename(RenameArgs { from: here, to: there }),
            16 => Call::Link(LinkArgs { file: fh(&object), link: there }),
            17 => {
                let set = SetAttr { uid: Some(10 + u32::from(byte % 3)), ..size(offset % 9000) };
                Call::SetAttr(SetAttrArgs { object: fh(&object), attributes: set, guard: None })
            }
            18 => Call::FsStat(fh(&object)),
            19 => Call::Commit(CommitArgs { file: fh(&object), offset: 0, count: 0 }),
            _ => Call::Write(WriteArgs {
                file: fh(&object),
                offset,
                count: u32::try_from(data.len()).unwrap(),
                stable: StableHow::FileSync,
                data: Opaque(&data),
            }),
        };
        (self.bench.uid, self.bench.gid) = [(0, 0), (10, 10), (11, 10)][usize::from(byte % 3)];
        let operation = self.bench.nfs_operation(&call);
        self.recent.push_front(operation.clone());
        self.recent.truncate(12);
        operation
    }

    fn batch(&mut self, random: &mut Xorshift, domains: &Domains) -> Batch {
        let mut batch = Batch::default();
        // A primary's clock may stand still or go back.
        if random.below(8) > 0 {
            self.time_ns += 1 + random.below(1_000_000);
        }
        for _ in 0..random.below(7) {
            let client = 1 + random.below(CLIENTS);
            let timestamp = self.timestamps.entry(client).or_default();
            *timestamp += 1;
            let timestamp = Timestamp(*timestamp);
            let operation = self.operation(random);
            batch.push_operation(domains, ClientId::new(client, 0), timestamp, &operation);
        }
        batch.seal(domains, &self.time_ns.to_le_bytes());
        batch
    }

    /// Remembers the objects that the calls of a batch have made.
    fn learn(&mut self, said: &[Vec<u8>]) {
        for reply in said {
            for procedure in [Procedure::Create, Procedure::MkDir, Procedure::SymLink] {
                let Ok(reply) = nfs_reply(procedure, reply) else { continue };
                let (Reply::Create(Ok(made)) | Reply::MkDir(Ok(made)) | Reply::SymLink(Ok(made))) = reply
                else {
                    continue;
                };
                let Some(handle) = made.object else { continue };
                if !self.known.iter().any(|known| known == handle.0) {
                    self.known.push_front(handle.0.to_vec());
                    self.known.truncate(10);
                }
            }
        }
    }
}

fn said(replies: &Replies) -> Vec<Vec<u8>> {
    replies.iter().map(|reply| reply.result.unwrap_or_default().to_vec()).collect()
}

fn options() -> Options {
    Options { pages_max: 1 << 10, clients_max: 32, lanes_max: 32, checkpoints_max: 2, ..Options::default() }
}

fn settings(plan: Plan) -> Settings {
    let mut settings =
        Settings { atime: plan.atime, reply_pages: 4, capacity_bytes: 1 << 30, ..open_settings() };
    if plan.is_small {
        settings.capacity_bytes = 1 << 20;
        settings.inodes_max = 25;
        settings.quota = Quota { bytes_max: 15 << 12, inodes_max: 12 };
    }
    settings
}

/// Runs the same batches sequentially and in parallel.
fn compare(plan: Plan, seed: u64) -> Result<Counters, String> {
    let mut random = Xorshift::new(seed);
    let domains = Domains::new(ClusterId([7; 32]));
    let fs = Fs::new(settings(plan)).unwrap();
    let executor = || Executor::with_store(fs.clone(), domains.clone(), options(), Store::default());
    let (mut sequential, mut ahead, mut draw) = (executor(), executor(), Draw::new());
    let rules = PlanRules { rules: FsRules::new(fs.clone()), hides_all: plan.hides_all };
    let mut runs = Runs::new(plan.kind, rules, random.next(), true).unwrap();
    let mut batches: Vec<Batch> = Vec::new();
    // Replies, and the root where there is a checkpoint.
    let mut expected: Vec<(Vec<Vec<u8>>, Option<Digest>)> = Vec::new();
    let (mut inserted, mut waiting, mut done) = (0, Vec::<Job>::new(), Vec::<Done>::new());
    let mut replies = Replies::new();
    let at = |seq: SeqNum| usize::try_from(seq.0).unwrap();
    while at(ahead.last_executed()) < plan.batches {
        let pick = |random: &mut Xorshift, len: usize| usize::try_from(random.below(len as u64)).unwrap();
        let away_in = if plan.faults && random.below(2) == 0 { 1 + random.below(25) } else { 0 };
        ahead.store().touched.away_in.set(away_in);
        match random.below(10) {
            0 | 1 if inserted < plan.batches => {
                if inserted == batches.len() {
                    let batch = draw.batch(&mut random, &domains);
                    let (seq, mut expect) = (SeqNum(inserted as u64 + 1), Replies::new());
                    sequential.execute(seq, &batch, false, &mut expect).unwrap();
                    draw.learn(&said(&expect));
                    let root = seq.0.is_multiple_of(4).then(|| sequential.checkpoint(seq));
                    batches.push(batch);
                    expected.push((said(&expect), root));
                }
                if runs.insert(&mut ahead, SeqNum(inserted as u64 + 1), &batches[inserted]).is_ok() {
                    inserted += 1;
                }
            }
            2..=4 if waiting.len() + done.len() < plan.workers => waiting.extend(runs.start(&mut ahead)),
            5 if !waiting.is_empty() => {
                let job = waiting.swap_remove(pick(&mut random, waiting.len()));
                // On this thread, or now and then as on another one, which asks for each cell.
                done.push(if random.below(8) > 0 {
                    runs.run(&ahead, &job)
                } else {
                    job.run(&fs, &ahead.service_part(), &Direct(&runs, &ahead))
                });
            }
            6 if !done.is_empty() => {
                let early = runs.finish(done.swap_remove(pick(&mut random, done.len())));
                assert_eq!(early, None, "the space that a call takes is not known before");
            }
            // A transfer, a rollback, a shutdown: no worker is waited for.
            7 if random.below(60) == 0 => {
                runs.drain(&mut ahead);
                inserted = at(ahead.last_executed());
                replies.clear();
            }
            8 | 9 => {
                let settled = runs.settle(&mut ahead, &mut replies);
                ahead.store().touched.away_in.set(0);
                assert!(plan.faults || settled.is_ok());
                let Ok(Some(Settled::Batch(seq))) = settled else { continue };
                let (left, root) = &expected[at(seq) - 1];
                if *left != said(&replies) {
                    return Err(format!("{seq:?}: the replies differ"));
                }
                replies.clear();
                if root.is_some_and(|root| root != ahead.checkpoint(seq)) {
                    return Err(format!("{seq:?}: the roots differ"));
                }
            }
            _ => {}
        }
    }
    ahead.store().touched.away_in.set(0);
    let report = fsck::check(fs.settings(), ahead.view()).unwrap();
    if !report.is_clean() {
        return Err(format!("{:?}", report.findings));
    }
    Ok(runs.counters())
}

fn sum(plan: Plan, seeds: core::ops::Range<u64>) -> Counters {
    let mut sum = Counters::default();
    for seed in seeds {
        let counters = compare(plan, seed).unwrap_or_else(|error| panic!("seed {seed} {plan:?}: {error}"));
        sum = sum.plus(counters);
    }
    sum
}

#[test]
fn px11_calls_on_cells_give_what_sequential_execution_gives() {
    for kind in KINDS {
        for workers in WORKERS {
            let found = sum(Plan { kind, workers, ..PLAN }, 1..8);
            println!("{kind:?} {workers}: {found:?}");
            assert!(found.runs > 2 * found.on_pages, "{found:?}");
            assert!(kind == EngineKind::Sequential || workers < 8 || found.most >= 4, "{found:?}");
        }
    }
}

/// PX-D: what every call writes is settled in order: space, inodes, quotas.
#[test]
fn px_d_full_disks_and_quotas_are_found_when_calls_settle() {
    for kind in [EngineKind::GroupIndex, EngineKind::Free] {
        let found = sum(Plan { kind, is_small: true, batches: 80, ..PLAN }, 1..15);
        println!("{kind:?}: {found:?}");
        assert!(found.again > 10, "{found:?}");
    }
}

#[test]
fn px11_access_times_are_those_of_sequential_execution() {
    for atime in [Atime::Strict, Atime::None] {
        for kind in KINDS {
            sum(Plan { kind, atime, ..PLAN }, 1..6);
        }
    }
}

/// PX-F: a call that needs a page that is away waits, and others run.
#[test]
fn px_f_pages_that_are_away_change_nothing() {
    for kind in KINDS {
        let found = sum(Plan { kind, faults: true, ..PLAN }, 1..6);
        println!("{kind:?}: {found:?}");
        assert!(found.parked > 10 && found.runs > found.on_pages, "{found:?}");
    }
}

/// PX-B: rules that call everything independent cost time, and change nothing else.
#[test]
fn px_b_wrong_rules_change_nothing() {
    let found = sum(Plan { hides_all: true, ..PLAN }, 1..10);
    println!("{found:?}");
    assert!(found.again > 50, "{found:?}");
}
