//! The file system in the simulated world: the replicas give the same answers as a single server, under all faults, and
//! the state of each is consistent.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use quorate_fs::nfs3::calls::nfs_reply;
use quorate_fs::nfs3::rules::FsRules;
use quorate_fs::nfs3::{
    Call, CreateArgs, CreateHow, CreateOk, DirOp, LinkArgs, MkDirArgs, Procedure, ReadArgs, ReadDirArgs,
    ReadDirPlusArgs, RenameArgs, Reply, SetAttr, SetAttrArgs, StableHow, SymLinkArgs, WriteArgs,
};
use quorate_fs::rpc::xdr::{self, Opaque, Reader, Xdr as _};
use quorate_fs::rpc::{AuthSys, CallHead, OpaqueAuth, ReplyHead};
use quorate_fs::settings::Quota;
use quorate_fs::{Fs, Operation, Settings, fsck, nfs3};
use quorate_service::options::Options;
use quorate_service::parallel::Rules;
use quorate_service::{Context, Executor, Service, Stop, View};
use quorate_sim::app::{App, Ask, Double, History};
use quorate_sim::describe::Words;
use quorate_sim::rng::{Concern, Rng};
use quorate_sim::swarm::{self, Run};
use quorate_wire::digest::Domains;
use quorate_wire::{Batch, ClientId, ClusterId, Digest, Replies, SeqNum, Timestamp};

/// How many handles the clients remember.
const KNOWN_MAX: usize = 12;
/// Maximum offset of writes, except in files with holes.
const NEAR_BYTES: u64 = 60_000;
/// Maximum offset of writes in files with holes.
const FAR_BYTES: u64 = 1 << 40;
/// The root's handle, of inode 1 of service 1.
const ROOT: [u8; 24] = [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];

/// Runs one seed of the swarm.
pub(super) fn run(seed: u64, ask: &swarm::Ask<'_>) -> Run {
    swarm::run_service(FsApp::draw(seed), seed, ask)
}

/// The file system, with clients that know a few of its files.
#[derive(Clone)]
struct FsApp {
    fs: Fs,
    /// The handles of the newest objects, according to the double.
    known: Rc<RefCell<VecDeque<Vec<u8>>>>,
}

impl FsApp {
    /// Returns the file system of a seed: every other one has little space.
    fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed, Concern::Options);
        // Less than a replica has: otherwise the available pages would be the limit, which differ for a single server.
        let mut settings = Settings { reply_pages: 4, capacity_bytes: 1 << 30, ..Settings::default() };
        if rng.one_in(2) {
            settings.capacity_bytes = 1 << 20;
            settings.inodes_max = rng.between(8, 30);
            settings.quota =
                Quota { bytes_max: rng.between(64 << 10, 512 << 10), inodes_max: rng.between(6, 20) };
        }
        let Ok(fs) = Fs::new(settings) else { unreachable!("the settings obey the rules") };
        Self { fs, known: Rc::default() }
    }

    /// Returns the handle of an object that exists or existed.
    fn pick(&self, rng: &mut Rng) -> Vec<u8> {
        let known = self.known.borrow();
        if known.is_empty() || rng.one_in(3) {
            return ROOT.to_vec();
        }
        known.get(rng.index(known.len())).cloned().unwrap_or_default()
    }
}

impl Words for FsApp {
    fn operation(&self, operation: &[u8]) -> String {
        match head(operation) {
            Some(head) => match Procedure::from_number(head.procedure) {
                Some(procedure) => format!("{procedure:?} xid={}", head.xid).to_lowercase(),
                None => format!("procedure {}", head.procedure),
            },
            None => "(malformed)".to_owned(),
        }
    }

    /// Its status, and the first word of its body, which is 0 for success.
    fn result(&self, result: &[u8]) -> String {
        let Ok(head) = ReplyHead::decode(&mut Reader::new(result)) else { return "(malformed)".to_owned() };
        let stat = result.get(24..28).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
        match stat {
            Some(0) => "ok".to_owned(),
            Some(stat) => format!("fail {stat}"),
            None => format!("{:?}", head.status).to_lowercase(),
        }
    }
}

/// Returns the head of an operation's call.
fn head(operation: &[u8]) -> Option<CallHead<'_>> {
    CallHead::decode(&mut Reader::new(Operation::decode(operation)?.call)).ok()
}

/// Returns a call as an operation, with a number and a user.
fn operation(xid: u32, uid: u32, call: &Call<'_>) -> Vec<u8> {
    let auth = AuthSys { stamp: 0, machine: Opaque(b"sim"), uid, gid: 10, gids: vec![] };
    let body = xdr::encode(&auth);
    let head = CallHead {
        credential: OpaqueAuth::sys(&body),
        ..CallHead::new(xid, nfs3::PROGRAM, 3, call.procedure() as u32)
    };
    let mut bytes = xdr::encode(&head);
    call.encode(&mut bytes);
    let mut operation = Vec::new();
    Operation { address: [1; 16], call: &bytes }.encode(&mut operation);
    operation
}

impl App for FsApp {
    type Service = Fs;

    fn service(&self) -> Fs {
        self.fs.clone()
    }

    fn rules(&self) -> Box<dyn Rules + Send> {
        Box::new(FsRules::new(self.fs.clone()))
    }

    fn double(&self) -> Box<dyn Double> {
        Box::new(Alone::new(self))
    }

    fn draw(&self, rng: &mut Rng, tag: u64) -> Ask {
        let (dir, other, object) = (self.pick(rng), self.pick(rng), self.pick(rng));
        let (one, two) = (format!("n{}", rng.below(8)), format!("n{}", rng.below(8)));
        // Directories have separate names, and few: otherwise no directory would ever be empty.
        let sub = format!("d{}", rng.below(3));
        let sub = DirOp { dir: Opaque(&dir), name: Opaque(sub.as_bytes()) };
        let here = DirOp { dir: Opaque(&dir), name: Opaque(one.as_bytes()) };
        let there = DirOp { dir: Opaque(&other), name: Opaque(two.as_bytes()) };
        let object = Opaque(&object[..]);
        let near = rng.below(NEAR_BYTES);
        let sized = SetAttr { mode: Some(0o777), size: Some(near), ..SetAttr::default() };
        let attributes = SetAttr { size: None, ..sized };
        let data = vec![b'a' + u8::try_from(tag % 26).unwrap_or(0); rng.index(9000) + 1];
        let call = match rng.below(18) {
            0 => Call::GetAttr(object),
            1 => Call::Lookup(if tag.is_multiple_of(2) { here } else { sub }),
            2 => Call::ReadDir(ReadDirArgs { dir: Opaque(&dir), cookie: 0, verf: [0; 8], count: 4096 }),
            3 => {
                let (dircount, maxcount) = (4096, 8192);
                Call::ReadDirPlus(ReadDirPlusArgs {
                    dir: Opaque(&dir),
                    cookie: 0,
                    verf: [0; 8],
                    dircount,
                    maxcount,
                })
            }
            4 => Call::Read(ReadArgs { file: object, offset: near, count: 8192 }),
            5 => Call::Create(CreateArgs { place: here, how: CreateHow::Unchecked(attributes) }),
            6 => Call::Create(CreateArgs { place: here, how: CreateHow::Guarded(sized) }),
            7 => Call::Create(CreateArgs { place: here, how: CreateHow::Exclusive(tag.to_be_bytes()) }),
            8 => Call::MkDir(MkDirArgs { place: sub, attributes }),
            9 => {
                let target = Opaque(&data[..data.len().min(1000)]);
                Call::SymLink(SymLinkArgs { place: here, attributes: SetAttr::default(), target })
            }
            10 => Call::Remove(here),
            11 => Call::RmDir(sub),
            12 => Call::Rename(RenameArgs { from: if rng.one_in(3) { sub } else { here }, to: there }),
            13 => Call::Link(LinkArgs { file: object, link: there }),
            14 => Call::SetAttr(SetAttrArgs { object, attributes: sized, guard: None }),
            _ => Call::Write(WriteArgs {
                file: object,
                offset: if rng.one_in(8) { rng.below(FAR_BYTES) } else { near },
                count: u32::try_from(data.len()).unwrap_or(0),
                stable: StableHow::FileSync,
                data: Opaque(&data),
            }),
        };
        let uid = if rng.one_in(4) { 11 } else { 10 };
        let operation = operation(xid(tag), uid, &call);
        let read_only = self.fs.is_read_only(&operation) && !rng.one_in(8);
        Ask { operation, read_only }
    }

    fn draw_apart(&self, _rng: &mut Rng, tag: u64) -> Vec<u8> {
        operation(xid(tag), 12, &Call::FsStat(Opaque(&ROOT)))
    }

    fn parse(&self, _text: &str) -> Option<Ask> {
        None
    }

    /// Results contain times that rise with every change. The double has already checked each result at its place in the
    /// order.
    fn check(&self, _history: &History) -> Result<(), (u64, String)> {
        Ok(())
    }

    fn page_bytes(&self) -> Option<usize> {
        Some(4096)
    }

    fn audit(&self, state: View<'_>) -> Result<(), String> {
        let report = fsck::check(self.fs.settings(), state).map_err(|stop| format!("fsck: {stop:?}"))?;
        if report.is_clean() { Ok(()) } else { Err(format!("fsck: {:?}", report.findings)) }
    }
}

fn xid(tag: u64) -> u32 {
    u32::try_from(tag & 0xffff_ffff).unwrap_or(0)
}

/// The file system with the number and time of a batch of the cluster and the place in it, which precede the operation.
struct Framed(Fs);

/// The number, the time and the place.
const FRAME_BYTES: usize = 20;

impl Service for Framed {
    fn is_read_only(&self, operation: &[u8]) -> bool {
        self.0.is_read_only(operation.get(FRAME_BYTES..).unwrap_or_default())
    }

    fn execute(
        &self,
        cx: Context,
        operation: &[u8],
        state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let number = |at: usize| {
            operation.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
        };
        let index =
            operation.get(16..20).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
        let cx = Context { seq: SeqNum(number(0)), time_ns: number(8), index, ..cx };
        self.0.execute(cx, operation.get(FRAME_BYTES..).unwrap_or_default(), state, out)
    }
}

/// A single server.
struct Alone {
    executor: Executor<Framed>,
    executed: u64,
    known: Rc<RefCell<VecDeque<Vec<u8>>>>,
}

impl Alone {
    fn new(app: &FsApp) -> Self {
        let options = Options { pages_max: 1 << 20, clients_max: 4, ..Options::default() };
        let domains = Domains::new(ClusterId([1; 32]));
        let executor = Executor::new(Framed(app.fs.clone()), domains, options);
        Self { executor, executed: 0, known: Rc::clone(&app.known) }
    }
}

/// Returns an operation with the number and the time of its batch, and its place there.
fn framed(cx: &Context, operation: &[u8]) -> Vec<u8> {
    let mut framed = cx.seq.0.to_le_bytes().to_vec();
    framed.extend_from_slice(&cx.time_ns.to_le_bytes());
    framed.extend_from_slice(&cx.index.to_le_bytes());
    framed.extend_from_slice(operation);
    framed
}

impl Double for Alone {
    fn read(&mut self, cx: &Context, operation: &[u8]) -> Vec<u8> {
        let mut result = Vec::new();
        let whose = (cx.client, cx.timestamp, &Digest::ZERO);
        let _ = self.executor.read(whose, &framed(cx, operation), &mut result);
        result
    }

    fn execute(&mut self, cx: &Context, operation: &[u8]) -> Vec<u8> {
        let framed = framed(cx, operation);
        let domains = Domains::new(ClusterId([1; 32]));
        let client = ClientId::new(1, 0);
        self.executed += 1;
        let mut batch = Batch::default();
        batch.push_operation(&domains, client, Timestamp(self.executed), &framed);
        batch.seal(&domains, &[0; 8]);
        let mut replies = Replies::default();
        let done = self.executor.execute(SeqNum(self.executed), &batch, false, &mut replies);
        let Some(result) = done.ok().and_then(|()| replies.iter().next()?.result.map(<[u8]>::to_vec)) else {
            unreachable!("one server alone executes everything")
        };
        if let Some(handle) = made(operation, &result) {
            let mut known = self.known.borrow_mut();
            known.truncate(KNOWN_MAX - 1);
            known.push_front(handle);
        }
        result
    }
}

/// Returns the handle of the object that a call created.
fn made(operation: &[u8], result: &[u8]) -> Option<Vec<u8>> {
    let procedure = Procedure::from_number(head(operation)?.procedure)?;
    let (Reply::Create(Ok(CreateOk { object, .. }))
    | Reply::MkDir(Ok(CreateOk { object, .. }))
    | Reply::SymLink(Ok(CreateOk { object, .. }))) = nfs_reply(procedure, result).ok()?
    else {
        return None;
    };
    object.map(|handle| handle.0.to_vec())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quorate_fs::nfs3::Stat;
    use quorate_wire::Cluster;

    use super::*;

    /// Every drawn call succeeds at some time, and is refused for lack of space at another.
    #[test]
    fn what_clients_ask_for_meets_something() {
        let mut answers = BTreeSet::new();
        for seed in 0..8 {
            let app = FsApp::draw(seed);
            let mut alone = Alone::new(&app);
            let mut rng = Rng::new(seed, Concern::Options);
            for tag in 1..600 {
                let Ask { operation, .. } = app.draw(&mut rng, tag);
                let (client, timestamp) = (ClientId::new(1, 0), Timestamp(tag));
                let (seq, time_ns) = (SeqNum(tag), tag * 1_000_000);
                let cx = Context { client, timestamp, seq, index: 0, time_ns, read_only: false };
                let result = alone.execute(&cx, &operation);
                let Some(head) = head(&operation) else { unreachable!("a call is drawn") };
                answers.insert((head.procedure, app.result(&result)));
            }
            assert_eq!(app.audit(alone.executor.view()), Ok(()));
        }
        let did =
            |procedure: Procedure, answer: &str| answers.contains(&(procedure as u32, answer.to_owned()));
        for number in 1..=17 {
            let Some(procedure) = Procedure::from_number(number) else { continue };
            let is_drawn = !matches!(procedure, Procedure::Access | Procedure::ReadLink | Procedure::MkNod);
            assert_eq!(did(procedure, "ok"), is_drawn, "{procedure:?} {answers:?}");
        }
        for stat in [Stat::NoSpc, Stat::DQuot, Stat::NotEmpty, Stat::Stale, Stat::Access] {
            let says = format!("fail {}", stat as u32);
            assert!(answers.iter().any(|(_, answer)| *answer == says), "{stat:?}: {answers:?}");
        }
    }

    /// With liars, crashes, wiped disks and bad networks, the answers equal a single server's, and the states are consistent.
    #[test]
    fn replicas_answer_as_one_server_and_their_states_are_in_order() {
        let seeds = std::env::var("QUORATE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
        let Ok(cluster) = Cluster::tolerating(1) else { unreachable!("four replicas are a cluster") };
        for seed in 1..=seeds {
            let ask = swarm::Ask {
                cluster,
                config: None,
                batches: 200,
                steps: 0,
                lines: 0,
                workers: None,
                plain: false,
            };
            let run = run(seed, &ask);
            assert!(
                run.failure.is_none(),
                "{}",
                run.failure.map(|failure| failure.to_string()).unwrap_or_default()
            );
        }
    }
}
