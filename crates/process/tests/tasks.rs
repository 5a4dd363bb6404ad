//! The tasks of the executor: when they are done, and what happens when they meet a page that cannot be read.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test may panic")]

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use quorate_pbft::config::{Config, Durability};
use quorate_pbft::step::{Action, Actions, Input, Lsn, Now, Ticket};
use quorate_pbft::{Replica, Resume};
use quorate_process::{
    Core, Directory, DiskQueue, Event, Execution, Observer, Pages, Parallel, Process, Store, Transport,
};
use quorate_service::image::CopiedPages;
use quorate_service::kv::{Kv, Operation};
use quorate_service::page::{Memory, OldPage, PageFault, PageStore};
use quorate_service::parallel::{Counters, EngineKind, KeyRules};
use quorate_service::{Executor, Options};
use quorate_wire::batch::StoredRequest;
use quorate_wire::codec::Writer;
use quorate_wire::digest::{ClusterId, Domains};
use quorate_wire::id::{ClientId, Principal, ReplicaId, SeqNum, Timestamp, ViewNum};
use quorate_wire::life::Life;
use quorate_wire::message::{Kind, Message, NewView, Proof, Request, RequestBody, RequestFlags};
use quorate_wire::sign::{Signer, Verifier};
use quorate_wire::{Batch, Cluster, Digest, Door, Source};

const CLUSTER: ClusterId = ClusterId([9; 32]);
const OWN: ReplicaId = ReplicaId(0);
const MS: u64 = 1_000_000;

fn signer(id: u64) -> Signer {
    Signer::Toy([u8::try_from(id).unwrap() + 1; 32])
}

/// No page is unreadable.
const NONE: u32 = u32::MAX;

/// Pages in memory, some of which cannot be read.
#[derive(Debug)]
struct Flawed {
    pages: Memory,
    /// This page and those above.
    unreadable: Rc<Cell<u32>>,
    /// More pages are in memory than may be.
    is_crowded: Rc<Cell<bool>>,
}

impl PageStore for Flawed {
    fn get(&self, page: u32) -> Result<Option<&[u8]>, PageFault> {
        if page >= self.unreadable.get() { Err(PageFault { page }) } else { self.pages.get(page) }
    }

    fn replace(&mut self, page: u32, content: Option<Box<[u8]>>) -> OldPage {
        self.pages.replace(page, content)
    }

    fn next(&self, from: u32) -> Option<u32> {
        self.pages.next(from)
    }
}

impl Store for Flawed {
    fn pages_max(&self) -> usize {
        if self.is_crowded.get() { 2 } else { usize::MAX }
    }

    fn pages(&self) -> Pages {
        Pages { in_memory: 100, ..Pages::default() }
    }
}

/// A disk that takes everything, and that may be writing an image, or be behind.
#[derive(Debug)]
struct Images(Rc<Cell<bool>>, Rc<Cell<bool>>);

impl DiskQueue for Images {
    fn append(&mut self, _: Lsn, _: &[u8]) {}

    fn flush(&mut self) {}

    fn wants_image(&self, _: SeqNum, _: bool) -> bool {
        false
    }

    fn is_imaging(&self) -> bool {
        self.0.get()
    }

    fn is_behind(&self) -> bool {
        self.1.get()
    }

    fn has_room(&self) -> bool {
        true
    }

    fn pages(&mut self, _: CopiedPages) {}

    fn image(&mut self, _: SeqNum, _: Digest, _: Vec<u32>) {}

    fn image_soon(&mut self) {}

    fn distrust(&mut self, _: u64) {}

    fn rejoined(&mut self) {}
}

/// A core that only notes its inputs: the test acts in its place.
#[derive(Debug)]
struct Silent {
    replica: Replica,
    inputs: Vec<String>,
}

impl Core for Silent {
    fn step(&mut self, _: Now, input: Input<'_>, _: &mut Actions) {
        match input {
            Input::Executed { seq, .. } => self.inputs.push(format!("executed {}", seq.0)),
            Input::Replied { seq, reply } => {
                self.inputs.push(format!("replied {} to {}", seq.0, reply.client.principal()));
            }
            Input::Fetched { seq, lives, .. } => {
                self.inputs.push(format!("fetched {}, lives {}", seq.0, lives.is_some()));
            }
            Input::Read { ticket, .. } => self.inputs.push(format!("read {}", ticket.0)),
            Input::Checkpointed { seq, .. } => self.inputs.push(format!("checkpointed {}", seq.0)),
            Input::Cached { reply, .. } => self.inputs.push(format!("cached {}", reply.is_some())),
            Input::Message(message) => {
                if let Message::NewView(m) = message.message() {
                    self.inputs.push(format!("new view {}", m.body().view.0));
                }
            }
            Input::Start
            | Input::Timer(_)
            | Input::SignatureChecked { .. }
            | Input::Durable(_)
            | Input::Kept { .. }
            | Input::Unreadable { .. }
            | Input::BurstEnd => {}
        }
    }

    fn replica(&self) -> &Replica {
        &self.replica
    }

    fn shut_down(&mut self, _: Now, _: &mut Actions) {}
}

/// Notes which pages could not be read. Each look at its clock finds it later by the second number.
#[derive(Debug, Default)]
struct Watch(Vec<u32>, u64, u64);

impl Observer<Kv, Flawed> for Watch {
    fn clock_ns(&mut self) -> u64 {
        self.2 += self.1;
        self.2
    }

    fn unreadable(&mut self, page: u32) {
        self.0.push(page);
    }
}

struct Nowhere;

impl Transport for Nowhere {
    fn send(&mut self, _: quorate_process::Place, _: &[u8]) {}

    fn send_long(&mut self, _: quorate_process::Place, _: Vec<u8>) {}
}

struct Bench {
    process: Process<Kv, Flawed, Images, Silent>,
    unreadable: Rc<Cell<u32>>,
    /// There is no room for more pages, until an image is written.
    is_crowded: Rc<Cell<bool>>,
    /// Too many records wait for the disk.
    is_behind: Rc<Cell<bool>>,
    domains: Domains,
    watch: Watch,
    now: Now,
}

impl Bench {
    fn new(execution: Execution) -> Self {
        Self::of(Cluster::new(4, 1).unwrap(), execution)
    }

    /// A replica of this cluster.
    fn of(cluster: Cluster, execution: Execution) -> Self {
        let mut config = Config::new(cluster, CLUSTER);
        config.durability = Durability::Memory;
        let mut verifier = Verifier::default();
        for id in cluster.replicas() {
            verifier.insert(Principal::Replica(id), &signer(u64::from(id.0)).public());
        }
        let own = Principal::Replica(OWN);
        let door = Door::new(own, cluster, CLUSTER, 0, signer(0), verifier, [7; 32], 1);
        let replica = Replica::new(OWN, config.clone(), signer(0), Resume::Fresh { incarnation: 1 << 20 });
        let core = Silent { replica: replica.unwrap(), inputs: Vec::new() };
        let unreadable = Rc::new(Cell::new(NONE));
        let is_crowded = Rc::new(Cell::new(false));
        let store = Flawed {
            pages: Memory::new(),
            unreadable: Rc::clone(&unreadable),
            is_crowded: Rc::clone(&is_crowded),
        };
        let options = Options { page_bytes: 512, pages_max: 1 << 16, clients_max: 8, ..Options::default() };
        let executor = Executor::with_store(Kv, config.domains(), options, store);
        let places: Vec<SocketAddr> = (1..=4).map(|port| SocketAddr::from(([127, 0, 0, 1], port))).collect();
        let is_behind = Rc::new(Cell::new(false));
        let disk = Images(Rc::clone(&is_crowded), Rc::clone(&is_behind));
        let process = Process::new(OWN, &config, core, door, Directory::new(&places), executor, disk)
            .with_execution(execution);
        let now = Now { mono_ns: 1, wall_ns: 1 };
        let domains = config.domains();
        let watch = Watch::default();
        let mut bench = Self { process, unreadable, is_crowded, is_behind, domains, watch, now };
        bench.event(Event::Start);
        bench
    }

    /// With two workers.
    fn with_workers(short_on_pages: bool) -> Self {
        let mut bench = Self::new(Execution::Inline);
        let parallel = Parallel {
            workers: 2,
            engine: EngineKind::GroupIndex,
            rules: Box::new(KeyRules::new(Kv)),
            replies_early: true,
            short_on_pages,
            secret: 1,
        };
        bench.process = bench.process.with_workers(parallel).unwrap();
        bench
    }

    /// Workers run all jobs.
    fn work(&mut self) -> usize {
        let mut jobs = 0;
        while let Some(job) = self.process.take_job() {
            let done = self.process.run_job(&job);
            self.event(Event::Ran(done));
            jobs += 1;
        }
        jobs
    }

    fn event(&mut self, event: Event<'_>) {
        self.process.step(self.now, event, &mut self.watch);
    }

    /// The core asks for something. It is done at the next event.
    fn ask(&mut self, action: Action) {
        let mut actions = Actions::new();
        actions.push(action);
        self.process.inject(&actions, &mut self.watch);
    }

    /// A batch with a request of the first client.
    fn order(&mut self, seq: u64) {
        self.order_of(seq, &[(1, seq, b"none")]);
    }

    /// A batch with these requests.
    fn order_of(&mut self, seq: u64, requests: &[(u64, u64, &[u8])]) {
        let mut batch = Batch::default();
        for &(client, timestamp, operation) in requests {
            let (client, timestamp) = (ClientId::new(client, 0), Timestamp(timestamp));
            batch.push_operation(&self.domains, client, timestamp, operation);
        }
        batch.seal(&self.domains, &(seq * MS).to_le_bytes());
        self.ask(Action::Execute { seq: SeqNum(seq), batch: Arc::new(batch), tentative: false });
    }

    /// A read of a client.
    fn ask_read(&mut self, ticket: u64, key: &[u8]) {
        self.ask_read_of(3, ticket, key);
    }

    /// A read of this client.
    fn ask_read_of(&mut self, client: u64, ticket: u64, key: &[u8]) {
        let mut operation = Vec::new();
        Operation::Get { key }.encode(&mut operation);
        let request = Request {
            client: ClientId::new(client, 0),
            timestamp: Timestamp(ticket),
            digest: Digest::ZERO,
            flags: RequestFlags::default(),
            replier: None,
            operation: &operation,
            operation_at: 0,
            frame: &operation,
            proof: Proof::Mac,
        };
        let request = Arc::new(StoredRequest::new(&request));
        self.ask(Action::Read { ticket: Ticket(ticket), request });
    }

    /// Everything that may leave leaves, and time passes.
    fn pass(&mut self, ns: u64) {
        self.process.flush(self.now, &mut Nowhere, &mut self.watch);
        self.now.mono_ns += ns;
        self.event(Event::Clock);
    }

    fn inputs(&self) -> &[String] {
        &self.process.core().inputs
    }
}

/// GC-4, L134: a NEW-VIEW leads to a record of several VIEW-CHANGEs. It is not taken while too many records wait for the disk.
#[test]
fn l134_no_new_view_is_taken_while_the_disk_is_behind() {
    let new_view = NewView {
        view: ViewNum(1),
        life: Life::default(),
        view_changes: (0..3).map(|id| (ReplicaId(id), Digest::ZERO)).collect(),
        checkpoint: (SeqNum(0), Digest::ZERO),
        chosen: vec![],
    };
    let (mut body, mut bytes) = (Vec::new(), Vec::new());
    new_view.encode(&mut Writer::new(&mut body));
    let (r1, cluster) = (Principal::Replica(ReplicaId(1)), Cluster::new(4, 1).unwrap());
    let mut door = Door::new(r1, cluster, CLUSTER, 0, signer(1), Verifier::default(), [8; 32], 1);
    door.seal(Kind::NewView, None, &body, &mut bytes);
    let source = Source { host: 1, port: 2 };
    let mut bench = Bench::new(Execution::Inline);
    bench.event(Event::Datagram { source, bytes: &bytes });
    assert_eq!(bench.inputs(), ["new view 1"]);
    bench.is_behind.set(true);
    bench.event(Event::Datagram { source, bytes: &bytes });
    assert_eq!(bench.inputs(), ["new view 1"]);
    assert_eq!(bench.process.counters().rejected.get("disk-behind"), Some(&1));
}

/// PR-7: after a slow batch everything is sent before the next one begins. What has begun is done when its time is
/// over, although that is an event, too.
#[test]
fn a_deferred_batch_that_has_begun_after_a_slow_one_is_done() {
    let mut bench = Bench::new(Execution::Deferred);
    bench.order(1);
    bench.order(2);
    bench.pass(MS);
    for seq in 1..=2 {
        assert!(bench.process.has_work(), "batch {seq} has begun");
        bench.event(Event::Work { took_ns: 2 * MS });
        assert_eq!(bench.inputs().last(), Some(&format!("executed {seq}")));
        bench.pass(MS);
    }
    assert!(!bench.process.has_work());
}

/// PR-7: after a slow batch, the next one is executed although input comes in every turn, such as garbage that anyone can send.
/// There is one such batch in each turn, with input or without.
#[test]
fn l100_input_in_every_turn_stops_no_execution() {
    let mut bench = Bench::new(Execution::Inline);
    bench.watch.1 = 2 * MS;
    (1..=8).for_each(|seq| bench.order(seq));
    for turn in 1..=8 {
        if turn <= 5 {
            let source = Source { host: 1, port: 9 };
            bench.event(Event::Datagram { source, bytes: b"garbage" });
        }
        if bench.process.due() <= bench.now.mono_ns {
            bench.event(Event::Clock);
        }
        bench.process.flush(bench.now, &mut Nowhere, &mut bench.watch);
        assert_eq!(bench.inputs().len(), turn, "{:?}", bench.inputs());
    }
}

/// D6: what agreement takes from a fetched state is on pages that can be unreadable. It hears of the state when all
/// of it is here.
#[test]
fn d6_a_transfer_is_over_when_the_tables_can_be_read() {
    let mut bench = Bench::new(Execution::Inline);
    let root = bench.process.executor().checkpoints().next().unwrap().1;
    let lives = (1 << 16) - 1;
    bench.unreadable.set(lives);
    bench.ask(Action::Fetch { seq: SeqNum(4), root, check: false });
    bench.pass(MS);
    assert_eq!((bench.inputs(), bench.watch.0.first()), (&[][..], Some(&lives)));
    bench.unreadable.set(NONE);
    bench.pass(100 * MS);
    assert_eq!(bench.inputs(), ["fetched 4, lives true"]);
}

/// L66, ST-8: a page cannot be read, so a checkpoint within the batches that were handed over is to be fetched. The page
/// comes before the fetch begins, and the batches are executed: there is nothing to fetch any more.
#[test]
fn l66_batches_are_executed_before_a_fetch_begins() {
    for workers in [false, true] {
        let mut bench = if workers { Bench::with_workers(false) } else { Bench::new(Execution::Inline) };
        let root = bench.process.executor().checkpoints().next().unwrap().1;
        for seq in 1..4 {
            bench.order(seq);
        }
        bench.pass(MS);
        bench.work();
        for seq in [2, 3] {
            bench.ask(Action::Fetch { seq: SeqNum(seq), root, check: false });
            bench.pass(MS);
        }
        bench.order(4);
        bench.pass(MS);
        bench.work();
        assert_eq!(
            bench.inputs(),
            ["executed 1", "executed 2", "executed 3", "executed 4"],
            "workers: {workers}"
        );
    }
}

/// L66: a fetch drops the batches before it, because the state replaces them. If it is not needed any more, it drops none.
#[test]
fn l66_a_fetch_that_is_not_needed_drops_no_batches() {
    let mut bench = Bench::new(Execution::Inline);
    let root = bench.process.executor().checkpoints().next().unwrap().1;
    // Each batch is slow, so the next one waits for a turn.
    bench.watch.1 = 2 * MS;
    for seq in 1..4 {
        bench.order(seq);
    }
    bench.ask(Action::Fetch { seq: SeqNum(1), root, check: false });
    for _ in 0..9 {
        bench.pass(MS);
        bench.event(Event::Datagram { source: Source::UNKNOWN, bytes: b"?" });
    }
    bench.order(4);
    for _ in 0..9 {
        bench.pass(MS);
    }
    assert_eq!(bench.inputs(), ["executed 1", "executed 2", "executed 3", "executed 4"]);
}

/// D8: a page with a cached reply cannot be read, and no batch needs it. It is brought all the same.
#[test]
fn d8_a_page_is_brought_for_a_cached_reply() {
    let mut bench = Bench::new(Execution::Inline);
    bench.order(1);
    bench.pass(MS);
    bench.unreadable.set(0);
    bench.ask(Action::Resend { client: ClientId::new(1, 0) });
    bench.pass(MS);
    // That no reply is here says nothing about the state (L61).
    assert_eq!((bench.inputs(), bench.watch.0.len()), (&["executed 1".to_owned()][..], 1));
    bench.unreadable.set(NONE);
    bench.ask(Action::Resend { client: ClientId::new(1, 0) });
    bench.pass(MS);
    assert_eq!(bench.inputs().last().unwrap(), "cached true");
}

/// L123, ST-8: a replica that is alone says that it has lost a page.
#[test]
fn l123_a_page_that_nobody_else_can_have_is_lost() {
    for (n, f) in [(1, 0), (4, 1)] {
        let mut bench = Bench::of(Cluster::new(n, f).unwrap(), Execution::Inline);
        bench.order(1);
        bench.pass(MS);
        bench.unreadable.set(0);
        assert!(!bench.process.has_lost_a_page());
        bench.order(2);
        bench.pass(MS);
        assert!(!bench.watch.0.is_empty());
        assert_eq!(bench.process.has_lost_a_page(), n == 1);
    }
}

/// A simulator damages only pages that are here: without that, an unreadable page would turn into an empty one.
#[test]
fn a_page_that_cannot_be_read_is_not_damaged() {
    let mut bench = Bench::new(Execution::Inline);
    bench.order(1);
    bench.pass(MS);
    bench.unreadable.set(0);
    for choice in 0..4 {
        assert!(!bench.process.executor_mut().damage(choice));
    }
    bench.unreadable.set(NONE);
    bench.ask(Action::Resend { client: ClientId::new(1, 0) });
    bench.pass(MS);
    assert_eq!(bench.inputs().last().unwrap(), "cached true");
    assert!(bench.process.executor_mut().damage(0));
}

fn put(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Operation::Put { key, value: b"1" }.encode(&mut out);
    out
}

/// Where pages must be dropped before more are written, no batch settles either. Runs go on.
#[test]
fn batches_settle_when_there_is_room_for_their_pages() {
    let mut bench = Bench::with_workers(false);
    bench.order_of(1, &[(1, 1, &put(b"a"))]);
    bench.pass(MS);
    bench.is_crowded.set(true);
    bench.order_of(2, &[(1, 2, &put(b"b"))]);
    bench.pass(MS);
    assert_eq!(bench.work(), 1);
    bench.pass(MS);
    assert_eq!(bench.inputs(), ["executed 1", "replied 2 to 1"]);
    assert_ne!(bench.process.due(), 0, "it does not ask for the processor while it waits");
    bench.is_crowded.set(false);
    assert_eq!(bench.process.due(), 0);
    bench.pass(MS);
    assert_eq!(bench.inputs().last().unwrap(), "executed 2");
}

/// PX-8: a read that depends on no unsettled request is executed at once, also while a checkpoint waits for the requests. One
/// that depends on a request to which a reply has left sees what that request has written.
#[test]
fn px8_a_read_waits_for_its_own_key_only() {
    let mut bench = Bench::with_workers(false);
    bench.order_of(1, &[(1, 1, &put(b"a")), (2, 1, &put(b"b"))]);
    bench.pass(MS);
    bench.order_of(2, &[(1, 2, &put(b"long")), (2, 2, &put(b"a"))]);
    bench.pass(MS);
    let long = bench.process.take_job().unwrap();
    assert_eq!(bench.work(), 1);
    bench.ask(Action::Checkpoint { seq: SeqNum(2) });
    for (ticket, key) in [(7, b"a"), (8, b"b")] {
        bench.ask_read(ticket, key);
    }
    bench.pass(MS);
    assert_eq!(bench.inputs()[1..], ["replied 2 to 2", "read 8"]);
    let done = bench.process.run_job(&long);
    bench.event(Event::Ran(done));
    bench.pass(MS);
    assert_eq!(bench.inputs()[3..], ["executed 2", "checkpointed 2", "read 7"]);
}

/// RO-7: once the reads of a turn have taken long, others wait until everything that may leave has been sent.
#[test]
fn l46_reads_wait_for_the_next_turn() {
    let mut bench = Bench::new(Execution::Inline);
    bench.watch.1 = 3 * MS;
    (1..=4).for_each(|ticket| bench.ask_read(ticket, b"a"));
    bench.order(1);
    for _ in 0..3 {
        bench.event(Event::Clock);
    }
    assert_eq!(bench.inputs(), ["read 1", "read 2", "executed 1"], "no batch waits for them");
    assert_eq!(bench.process.due(), 0);
    bench.pass(MS);
    bench.event(Event::Clock);
    assert_eq!(bench.inputs()[3..], ["read 3", "read 4"]);
    bench.process.flush(bench.now, &mut Nowhere, &mut bench.watch);
    assert_ne!(bench.process.due(), 0);
}

/// RO-7, PX-8: with workers, no batch waits for such reads. Principals take turns.
#[test]
fn l46_no_batch_waits_for_reads_beside_workers() {
    let mut bench = Bench::with_workers(true);
    bench.watch.1 = 6 * MS;
    (1..=3).for_each(|ticket| bench.ask_read_of(3, ticket, b"a"));
    (4..=5).for_each(|ticket| bench.ask_read_of(4, ticket, b"a"));
    bench.order(1);
    bench.event(Event::Clock);
    assert_eq!(bench.inputs(), ["read 1", "executed 1"]);
    for next in ["read 2", "read 4", "read 3", "read 5"] {
        assert_eq!(bench.process.due(), 0);
        bench.event(Event::Clock);
        assert_ne!(bench.inputs().last().unwrap(), next);
        bench.pass(MS);
        assert_eq!(bench.inputs().last().unwrap(), next);
    }
    bench.process.flush(bench.now, &mut Nowhere, &mut bench.watch);
    assert_ne!(bench.process.due(), 0);
}

/// PX-E: while nothing is unsettled, a batch of short operations is executed on pages, without a job. Behind a batch
/// that is unsettled it is not.
#[test]
fn px_e_short_operations_are_executed_on_pages_while_nothing_is_unsettled() {
    let mut bench = Bench::with_workers(true);
    for seq in 1..=2 {
        bench.order_of(seq, &[(1, seq, &put(b"a"))]);
    }
    bench.pass(MS);
    assert_eq!(bench.inputs(), ["executed 1", "executed 2"]);
    assert_eq!((bench.work(), bench.process.counters().runs), (0, Counters::default()));
    bench.is_crowded.set(true);
    for seq in 3..=4 {
        bench.order_of(seq, &[(1, seq, &put(b"a"))]);
        bench.pass(MS);
        assert_eq!(bench.work(), 1);
    }
    bench.is_crowded.set(false);
    bench.pass(MS);
    assert_eq!(bench.inputs()[4..], ["executed 3", "executed 4"]);
}

/// PX-C, RP-6: no reply leaves early while the next request to settle is a job that nobody has taken. If the batch settles then,
/// its replies leave together.
#[test]
fn px_c_replies_of_a_batch_that_settles_soon_leave_together() {
    let mut bench = Bench::with_workers(false);
    bench.order_of(1, &[(1, 1, &put(b"a")), (2, 1, &put(b"b"))]);
    bench.pass(MS);
    bench.order_of(2, &[(1, 2, &put(b"a")), (2, 2, &put(b"b"))]);
    bench.pass(MS);
    let first = bench.process.take_job().unwrap();
    assert_eq!(bench.work(), 1);
    bench.pass(MS);
    assert_eq!(bench.inputs()[1..], ["replied 2 to 2"], "the first may take long");
    let done = bench.process.run_job(&first);
    bench.event(Event::Ran(done));
    assert_eq!(bench.inputs()[2..], ["executed 2"]);
    bench.order_of(3, &[(1, 3, &put(b"a")), (2, 3, &put(b"b"))]);
    bench.pass(MS);
    assert_eq!(bench.work(), 2);
    assert_eq!(bench.inputs()[3..], ["executed 3"]);
}

/// A5: of the forged frames in a datagram, one in each replica's name is checked. A frame in another name is taken, and
/// so is one in the same name in the next datagram.
#[test]
fn a5_one_forged_frame_in_a_name_is_looked_at_in_a_datagram() {
    let mut bench = Bench::new(Execution::Inline);
    let request = |id: u16, key: u8, timestamp: u64, datagram: &mut Vec<u8>| {
        let (own, cluster) = (Principal::Replica(ReplicaId(id)), Cluster::new(4, 1).unwrap());
        let signer = Signer::Toy([key; 32]);
        let mut door = Door::new(own, cluster, CLUSTER, 0, signer, Verifier::default(), [key; 32], 1);
        let flags = RequestFlags { read_only: false, signed: true };
        let body = RequestBody { timestamp: Timestamp(timestamp), flags, replier: None, operation: b"?" };
        door.seal_request(&body, own.as_client(), true, datagram);
    };
    let looked_at = |bench: &mut Bench, bytes: &[u8]| {
        let before = bench.process.endpoint().door().signatures_checked();
        let refused = |bench: &Bench| bench.process.counters().refused.values().sum::<u64>();
        let refused_before = refused(bench);
        bench.event(Event::Datagram { source: Source::UNKNOWN, bytes });
        let checks = bench.process.endpoint().door().signatures_checked() - before;
        (checks, refused(bench) - refused_before)
    };
    let mut datagram = Vec::new();
    for timestamp in 1..=50 {
        request(1, 99, timestamp, &mut datagram);
        request(2, 99, timestamp, &mut datagram);
    }
    request(3, 4, 1, &mut datagram);
    assert_eq!(looked_at(&mut bench, &datagram), (3, 100));
    datagram.clear();
    request(1, 2, 1, &mut datagram);
    request(1, 2, 2, &mut datagram);
    assert_eq!(looked_at(&mut bench, &datagram), (2, 0));
    // Numbers that no replica has: the sender is in the bytes 8 to 15.
    for id in [63_u64, 64, 1000] {
        datagram.clear();
        request(1, 2, 3, &mut datagram);
        datagram[8..16].copy_from_slice(&id.to_le_bytes());
        assert_eq!(looked_at(&mut bench, &datagram), (0, 1));
    }
}
