//! The file system in the simulated world: the same answers as one server alone, whatever happens to the
//! replicas, and a state in order at each of them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use quorate_fs::nfs3::{
    Call, CreateArgs, CreateHow, DirOp, MkDirArgs, PROGRAM, Procedure, ReadDirArgs, RenameArgs, SetAttr,
    SetAttrArgs, StableHow, SymLinkArgs, WriteArgs,
};
use quorate_fs::rpc::{AuthSys, CallHead, OpaqueAuth, ReplyHead};
use quorate_fs::xdr::{self, Opaque, Reader, Xdr};
use quorate_fs::{Fs, Operation, Settings, fsck};
use quorate_service::options::Options;
use quorate_service::{Context, Executor, Service, Stop, View};
use quorate_sim::app::{App, Ask, Double, History};
use quorate_sim::describe::Words;
use quorate_sim::network::Profile;
use quorate_sim::rng::Rng;
use quorate_sim::setup::Setup;
use quorate_sim::world::{Load, World};
use quorate_wire::digest::Domains;
use quorate_wire::message::{Proof, Request, RequestFlags};
use quorate_wire::{Batch, ClientId, Cluster, ClusterId, Replies, SeqNum, Timestamp};

/// The file system with clients that all work in its root.
#[derive(Clone)]
struct FsApp {
    fs: Fs,
}

impl FsApp {
    fn new() -> Self {
        Self { fs: Fs::new(Settings { reply_pages: 4, ..Settings::default() }).unwrap() }
    }
}

impl Words for FsApp {
    fn operation(&self, operation: &[u8]) -> String {
        let call = Operation::decode(operation).map(|operation| operation.call);
        match call.and_then(|call| CallHead::decode(&mut Reader::new(call)).ok()) {
            Some(head) => format!("{:?} xid={}", Procedure::from_number(head.procedure), head.xid),
            None => "(malformed)".to_owned(),
        }
    }

    fn result(&self, result: &[u8]) -> String {
        match ReplyHead::decode(&mut Reader::new(result)) {
            Ok(head) => format!("{:?} {:?}", head.status, result.get(24..28)),
            Err(_) => "(malformed)".to_owned(),
        }
    }
}

/// Returns the handle of an inode that was made by a batch; the root's is known.
fn handle(inode: u64, generation: u32) -> Vec<u8> {
    let mut handle = 1_u64.to_be_bytes().to_vec();
    handle.extend_from_slice(&inode.to_be_bytes());
    handle.extend_from_slice(&generation.to_be_bytes());
    handle.extend_from_slice(&[0; 4]);
    handle
}

fn operation(xid: u32, call: &Call<'_>) -> Vec<u8> {
    let auth = AuthSys { stamp: 0, machine: Opaque(b"sim"), uid: 10, gid: 10, gids: vec![] };
    let body = xdr::encode(&auth);
    let head = CallHead {
        credential: OpaqueAuth::sys(&body),
        ..CallHead::new(xid, PROGRAM, 3, call.procedure() as u32)
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

    fn double(&self) -> Box<dyn Double> {
        Box::new(Alone::new(self.fs.clone()))
    }

    fn draw(&self, rng: &mut Rng, tag: u64) -> Ask {
        let root = handle(1, 0);
        let file = handle(rng.between(2, 12), u32::try_from(rng.between(1, 12)).unwrap());
        let (one, two) = (format!("n{}", rng.below(8)), format!("n{}", rng.below(8)));
        let place = |name| DirOp { dir: Opaque(&root), name: Opaque(str::as_bytes(name)) };
        let attributes = SetAttr { mode: Some(0o755), size: Some(rng.below(9000)), ..SetAttr::default() };
        let target = vec![b't'; rng.index(1000) + 1];
        let call = match rng.below(12) {
            0 => Call::GetAttr(Opaque(&root)),
            1 => Call::Lookup(place(&one)),
            2 => Call::ReadDir(ReadDirArgs { dir: Opaque(&root), cookie: 0, verf: [0; 8], count: 4096 }),
            3..=4 => Call::Create(CreateArgs { place: place(&one), how: CreateHow::Unchecked(attributes) }),
            5 => Call::MkDir(MkDirArgs { place: place(&one), attributes }),
            6 => {
                let target = Opaque(&target[..]);
                Call::SymLink(SymLinkArgs { place: place(&one), attributes: SetAttr::default(), target })
            }
            7 => Call::Remove(place(&one)),
            8 => Call::RmDir(place(&one)),
            9 => Call::Rename(RenameArgs { from: place(&one), to: place(&two) }),
            10 => Call::SetAttr(SetAttrArgs { object: Opaque(&file), attributes, guard: None }),
            _ => Call::Write(WriteArgs {
                file: Opaque(&file),
                offset: rng.below(20_000),
                count: u32::try_from(target.len()).unwrap(),
                stable: StableHow::FileSync,
                data: Opaque(&target),
            }),
        };
        let operation = operation(u32::try_from(tag & 0xffff_ffff).unwrap(), &call);
        let read_only = self.fs.is_read_only(&operation) && !rng.one_in(8);
        Ask { operation, read_only }
    }

    fn draw_apart(&self, _rng: &mut Rng, tag: u64) -> Vec<u8> {
        operation(u32::try_from(tag & 0xffff_ffff).unwrap(), &Call::FsStat(Opaque(&handle(1, 0))))
    }

    fn parse(&self, _text: &str) -> Option<Ask> {
        None
    }

    /// Results carry times that rise with every change; the double has already said that each is right at
    /// its place in the order.
    fn check(&self, _history: &History) -> Result<(), (u64, String)> {
        Ok(())
    }
}

/// The file system as a batch of the cluster sees it: its number and time stand before the operation.
struct Framed(Fs);

impl Service for Framed {
    fn is_read_only(&self, _operation: &[u8]) -> bool {
        false
    }

    fn execute(
        &self,
        cx: Context,
        operation: &[u8],
        state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let number = |at: usize| u64::from_le_bytes(operation[at..at + 8].try_into().unwrap());
        let cx = Context { seq: SeqNum(number(0)), time_ns: number(8), ..cx };
        self.0.execute(cx, &operation[16..], state, out)
    }
}

/// One server alone.
struct Alone {
    executor: Executor<Framed>,
    executed: u64,
}

impl Alone {
    fn new(fs: Fs) -> Self {
        let options = Options { pages_max: 1 << 20, clients_max: 4, ..Options::default() };
        let executor = Executor::new(Framed(fs), Domains::new(ClusterId([1; 32])), options);
        Self { executor, executed: 0 }
    }
}

impl Double for Alone {
    fn execute(&mut self, cx: &Context, operation: &[u8]) -> Vec<u8> {
        let mut framed = cx.seq.0.to_le_bytes().to_vec();
        framed.extend_from_slice(&cx.time_ns.to_le_bytes());
        framed.extend_from_slice(operation);
        let domains = Domains::new(ClusterId([1; 32]));
        let client = ClientId::new(1, 0);
        self.executed += 1;
        let mut batch = Batch::default();
        batch.push_inlined(&Request {
            client,
            timestamp: Timestamp(self.executed),
            digest: domains.request(client.0, self.executed, &framed),
            flags: RequestFlags::default(),
            replier: None,
            operation: &framed,
            operation_at: 0,
            frame: &framed,
            proof: Proof::Mac,
        });
        batch.seal(&domains, &[0; 8]);
        let mut replies = Replies::default();
        self.executor.execute(SeqNum(self.executed), &batch, false, &mut replies).unwrap();
        replies.iter().next().unwrap().result.unwrap().to_vec()
    }
}

fn world(seed: u64) -> World<FsApp> {
    let mut setup = Setup::new(seed, Cluster::tolerating(1).unwrap());
    (setup.clients, setup.lanes, setup.page_bytes) = (2, 3, 4096);
    (setup.config.checkpoint_interval, setup.config.window) = (8, 16);
    setup.network = Profile::lan();
    let mut world = World::new(FsApp::new(), setup);
    world.set_load(Load::Busy(0, 2_000_000));
    world
}

/// Every state is in order.
fn assert_clean(world: &World<FsApp>, settings: &Settings) {
    assert!(world.violation().is_none(), "{:?}", world.violation());
    for (name, view) in world.service_states() {
        let report = fsck::check(settings, view).unwrap();
        assert!(report.is_clean(), "{name}: {:?}", report.findings);
    }
}

#[test]
fn replicas_answer_as_one_server_and_their_states_are_in_order() {
    let settings = FsApp::new().fs.settings().clone();
    for seed in 1..4 {
        let mut world = world(seed);
        assert!(
            world.run(20_000_000_000, |w| w.committed() >= 150),
            "seed {seed}: {}",
            world.cards().join("\n")
        );
        assert_clean(&world, &settings);
    }
}

/// The primary crashes, a replica is wiped: the same all the same.
#[test]
fn crashes_and_wiped_disks_do_not_show() {
    let settings = FsApp::new().fs.settings().clone();
    for seed in 10..13 {
        let mut world = world(seed);
        assert!(world.run(20_000_000_000, |w| w.committed() >= 40));
        world.crash(0);
        assert!(
            world.run(60_000_000_000, |w| w.committed() >= 80),
            "seed {seed}: {}",
            world.cards().join("\n")
        );
        assert_clean(&world, &settings);
        world.wipe(0);
        world.restart(0);
        assert!(
            world.run(120_000_000_000, |w| w.committed() >= 140),
            "seed {seed}: {}",
            world.cards().join("\n")
        );
        assert_clean(&world, &settings);
    }
}
