//! One replica on a desk: the test speaks as everyone else, with their real authenticators, and sees what the
//! replica says and reports. For the clauses of the paper, one at a time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "a test may panic")]
#![allow(unreachable_pub, clippy::wildcard_enum_match_arm, reason = "a test looks for what it asks for")]

use std::collections::BTreeMap;

use quorate_pbft::step::{
    Action, Actions, CachedReply, Form, Input, Milestone, Now, ReadResult, Recipient, Reject, Timer,
};
use quorate_pbft::{Config, Replica, Restart, Resume};
use quorate_wire::Admitted;
use quorate_wire::codec::Writer;
use quorate_wire::digest::{ClusterId, Domains};
use quorate_wire::frame::Frame;
use quorate_wire::id::{ClientId, Principal, ReplicaId, SeqNum, Timestamp, ViewNum};
use quorate_wire::life::{Life, Lives, Recovered, Recovery};
use quorate_wire::message::{
    Checkpoint, Commit, Kind, Prepare, RequestBody, RequestFlags, Start, Suspect, SuspectReason,
    encode_pre_prepare,
};
use quorate_wire::reply::{Replies, Reply, ReplyOutcome};
use quorate_wire::sign::{Signer, Verifier};
use quorate_wire::{Batch, Cluster, Digest, Door};

mod signed;

pub const MS: u64 = 1_000_000;
pub const R0: ReplicaId = ReplicaId(0);
pub const R1: ReplicaId = ReplicaId(1);
pub const R2: ReplicaId = ReplicaId(2);
pub const R3: ReplicaId = ReplicaId(3);
const CLUSTER_ID: ClusterId = ClusterId([9; 32]);

/// What the replica did, in order.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "all of it is shown when an assertion fails")]
pub enum Did {
    Sent { to: Recipient, kind: Kind, bytes: Vec<u8>, form: Form, after: u64 },
    Executed { seq: SeqNum, tentative: bool, operations: Vec<Vec<u8>> },
    Merged(SeqNum),
    Undid(SeqNum),
    Checkpointed(SeqNum),
    Discarded(SeqNum),
    Fetches(SeqNum, Digest),
    Reads(Vec<u8>),
    Timer(Timer),
    Persisted,
    Said(Milestone),
}

#[expect(clippy::struct_excessive_bools, reason = "each is a switch that a test sets")]
pub struct Desk {
    pub replica: Replica,
    pub config: Config,
    doors: Vec<Door>,
    pub now: Now,
    pub did: Vec<Did>,
    pub domains: Domains,
    lsn: u64,
    /// The log.
    pub records: Vec<Vec<u8>>,
    /// Tell the replica that its records are durable as soon as it writes them, and that what it has fetched is.
    pub disk_is_fast: bool,
    /// Signatures that are to be checked are not, yet.
    pub checks_wait: bool,
    /// Digests of the state take time: the test gives them.
    pub roots_wait: bool,
    /// Workers say that results are certain before their batch is executed as a whole.
    pub workers_reply: bool,
    /// The service has no room: it refuses requests, and holds no replies.
    pub is_full: bool,
    /// The last request of each client that was executed.
    replied: BTreeMap<ClientId, Timestamp>,
    /// The agreed time of a state that is fetched.
    pub agreed_ns: u64,
    /// The executor keeps reads.
    pub reads_wait: bool,
    /// The batches whose results are still to come, if executions take time.
    waiting: Option<Vec<SeqNum>>,
    /// A burst ends after each input.
    pub bursts_end: bool,
    deadlines: [Option<u64>; Timer::COUNT],
}

pub fn c(index: u64) -> ClientId {
    ClientId::new(index + 1, 0)
}

fn signer(holder: u64) -> Signer {
    Signer::Toy([u8::try_from(holder % 251).unwrap() + 1; 32])
}

impl Desk {
    /// Replica `id` of four, with small checkpoints: K = 4, L = 8.
    pub fn new(id: ReplicaId) -> Self {
        Self::with(id, 4, 1, |_| {})
    }

    pub fn with(id: ReplicaId, n: u16, f: u16, change: impl FnOnce(&mut Config)) -> Self {
        let mut desk = Self::make(id, n, f, Resume::Fresh { incarnation: 1 << 20 }, change);
        desk.did.clear();
        desk
    }

    /// One of four that starts from what its disk gives back.
    pub fn resumed(id: ReplicaId, resume: Resume, change: impl FnOnce(&mut Config)) -> Self {
        Self::make(id, 4, 1, resume, change)
    }

    /// One of four that has recorded what `before` has, and starts a second time before its first checkpoint.
    pub fn restarted(before: &Self, id: ReplicaId, change: impl FnOnce(&mut Config)) -> Self {
        Self::recorded(id, before.records.clone(), 0, change)
    }

    /// One of four that finds these records, and the initial state with this agreed time.
    pub fn recorded(
        id: ReplicaId,
        records: Vec<Vec<u8>>,
        time_ns: u64,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let resume = Resume::Restart(Restart {
            incarnation: 2 << 20,
            records,
            checkpoint: (SeqNum(0), root(SeqNum(0))),
            clients: vec![],
            lives: vec![],
            time_ns,
        });
        Self::resumed(id, resume, change)
    }

    /// One of four at its first start that does not know the digest of its initial state yet.
    pub fn starting(id: ReplicaId) -> Self {
        let mut desk = Self::seated(id, 4, 1, Resume::Fresh { incarnation: 1 << 20 }, |_| {});
        desk.roots_wait = true;
        desk.input(Input::Start);
        desk
    }

    fn make(id: ReplicaId, n: u16, f: u16, resume: Resume, change: impl FnOnce(&mut Config)) -> Self {
        let mut desk = Self::seated(id, n, f, resume, change);
        desk.input(Input::Start);
        desk
    }

    fn seated(id: ReplicaId, n: u16, f: u16, resume: Resume, change: impl FnOnce(&mut Config)) -> Self {
        let cluster = Cluster::new(n, f).unwrap();
        let mut config = Config::new(cluster, CLUSTER_ID);
        config.checkpoint_interval = 4;
        config.window = 8;
        config.pipeline = 4;
        config.separate_above = 255;
        config.piggyback = false;
        config.durability = quorate_pbft::config::Durability::Memory;
        change(&mut config);
        let people: Vec<Principal> = (0..n)
            .map(|i| Principal::Replica(ReplicaId(i)))
            .chain((0..9).map(|i| Principal::Client(c(i))))
            .collect();
        let mut verifier = Verifier::default();
        for who in &people {
            verifier.insert(*who, &signer(who.key_holder()).public());
        }
        let mut doors: Vec<Door> = people
            .iter()
            .enumerate()
            .map(|(at, who)| {
                let entropy = [u8::try_from(at).unwrap() + 101; 32];
                Door::new(
                    *who,
                    cluster,
                    CLUSTER_ID,
                    0,
                    signer(who.key_holder()),
                    verifier.clone(),
                    entropy,
                    1,
                )
            })
            .collect();
        exchange_keys(&mut doors, &people);
        let replica =
            Replica::new(id, config.clone(), signer(Principal::Replica(id).key_holder()), resume).unwrap();
        let now = Now { mono_ns: 1_000 * MS, wall_ns: 1_700_000_000_000 * MS };
        let domains = config.domains();
        Self {
            replica,
            config,
            doors,
            now,
            did: Vec::new(),
            domains,
            lsn: 0,
            records: Vec::new(),
            disk_is_fast: true,
            checks_wait: false,
            roots_wait: false,
            workers_reply: false,
            is_full: false,
            replied: BTreeMap::new(),
            agreed_ns: 0,
            reads_wait: false,
            waiting: None,
            bursts_end: true,
            deadlines: [None; Timer::COUNT],
        }
    }

    fn door(&mut self, who: Principal) -> &mut Door {
        self.doors.iter_mut().find(|d| d.own().key_holder() == who.key_holder()).unwrap()
    }

    /// A start of the desk's replica with its token, as the others echo it (§14.3).
    pub fn start(&self, incarnation: u64) -> Start {
        let id = self.replica.id();
        let mut covered = [0; 16];
        covered[..8].copy_from_slice(&u64::from(id.0).to_le_bytes());
        covered[8..].copy_from_slice(&incarnation.to_le_bytes());
        let signature = signer(Principal::Replica(id).key_holder()).sign(&self.domains.message(&covered));
        Start { incarnation, token: u64::from_le_bytes(signature[..8].try_into().unwrap()) }
    }

    /// What a STATUS echoes whose sender has seen this start of replica `of`, and none of the others'. It has the token
    /// of the second start only.
    pub fn echoes(&self, of: ReplicaId, incarnation: u64) -> Vec<u8> {
        let token = if incarnation == 2 << 20 { self.start(incarnation).token } else { 0 };
        self.echoes_of(of, Start { incarnation, token })
    }

    pub fn echoes_of(&self, of: ReplicaId, start: Start) -> Vec<u8> {
        let mut bytes = Vec::new();
        for id in self.config.cluster.replicas() {
            let seen = if id == of { start } else { Start::default() };
            seen.encode(&mut Writer::new(&mut bytes));
        }
        bytes
    }

    /// The replica takes an input; execution and checkpoints are done at once.
    pub fn input(&mut self, input: Input<'_>) {
        let mut out = Actions::new();
        self.replica.step(self.now, input, &mut out);
        let mut todo = Vec::new();
        for action in out.list() {
            match action {
                Action::Send { to, kind, form, bytes, after } => {
                    let bytes = out.bytes(*bytes).to_vec();
                    self.did.push(Did::Sent { to: *to, kind: *kind, bytes, form: *form, after: after.0 });
                }
                Action::Persist { lsn, bytes } => {
                    self.lsn = lsn.0;
                    self.records.push(out.bytes(*bytes).to_vec());
                    self.did.push(Did::Persisted);
                }
                Action::SetTimer(timer, at) => {
                    self.deadlines[timer.index()] = Some(at.0);
                    self.did.push(Did::Timer(*timer));
                }
                Action::StopTimer(timer) => self.deadlines[timer.index()] = None,
                Action::CheckSignature { .. } if self.checks_wait => {}
                Action::CheckSignature { client, request } => {
                    // Any authenticator will do: all know the same public keys, and its own may be in use.
                    let valid = self.doors[0].check_signature(*client, &request.request, &request.signature);
                    todo.push(Todo::Signature(request.request, valid));
                }
                Action::Execute { seq, batch, tentative } => {
                    let operations = batch.requests().map(|r| r.operation.to_vec()).collect();
                    self.did.push(Did::Executed { seq: *seq, tentative: *tentative, operations });
                    self.replied.extend(batch.requests().map(|r| (r.client, r.timestamp)));
                    match &mut self.waiting {
                        Some(waiting) => waiting.push(*seq),
                        None => todo.push(Todo::Executed(*seq, self.replies(*seq, batch))),
                    }
                }
                Action::Merge { seq } => self.did.push(Did::Merged(*seq)),
                Action::Undo { after } => self.did.push(Did::Undid(*after)),
                Action::Read { ticket, request } => {
                    self.did.push(Did::Reads(request.operation().to_vec()));
                    if !self.reads_wait {
                        todo.push(Todo::Read(*ticket, request.client, request.timestamp));
                    }
                }
                Action::Resend { client } => todo.push(Todo::Cached(*client)),
                Action::Checkpoint { seq } => {
                    self.did.push(Did::Checkpointed(*seq));
                    if !self.roots_wait {
                        todo.push(Todo::Checkpointed(*seq));
                    }
                }
                Action::Discard { below } => self.did.push(Did::Discarded(*below)),
                Action::Fetch { seq, root, .. } => self.did.push(Did::Fetches(*seq, *root)),
                Action::Report(milestone) => self.did.push(Did::Said(*milestone)),
            }
        }
        for item in todo {
            match item {
                Todo::Executed(seq, replies) => {
                    let workers_reply = self.workers_reply;
                    for reply in replies.iter().filter(|_| workers_reply) {
                        self.input(Input::Replied { seq, reply });
                    }
                    self.input(Input::Executed { seq, replies: &replies, took_ns: 0 });
                }
                Todo::Checkpointed(seq) => self.input(Input::Checkpointed { seq, root: root(seq) }),
                Todo::Signature(request, valid) => self.input(Input::SignatureChecked { request, valid }),
                Todo::Read(ticket, client, t) => {
                    let digest = self.domains.reply(client.0, t.0, &Digest::ZERO, b"read");
                    self.input(Input::Read { ticket, result: ReadResult::Done { result: b"read", digest } });
                }
                Todo::Cached(client) => {
                    let timestamp = self.replied.get(&client).copied().unwrap_or(Timestamp(1));
                    let digest = self.domains.reply(client.0, timestamp.0, &Digest::ZERO, b"ok");
                    let reply = CachedReply { timestamp, digest, result: Some(b"ok") };
                    self.input(Input::Cached { client, reply: (!self.is_full).then_some(reply) });
                }
            }
        }
        if self.disk_is_fast {
            self.flush();
        }
        // Each input is a burst of its own, unless the test holds the end back.
        if self.bursts_end && self.replica.owes_proposal() {
            self.input(Input::BurstEnd);
        }
    }

    /// Everything written so far is on disk.
    pub fn flush(&mut self) {
        let lsn = quorate_pbft::step::Lsn(core::mem::take(&mut self.lsn));
        if lsn.0 > 0 {
            self.input(Input::Durable(lsn));
        }
    }

    /// The state that was being fetched is here.
    pub fn fetched(&mut self, seq: u64) {
        self.fetched_with(seq, &[]);
        if self.disk_is_fast {
            self.input(Input::Kept { seq: SeqNum(seq) });
        }
    }

    /// The state that was being fetched is here, and notes these lives.
    pub fn fetched_with(&mut self, seq: u64, lives: &[(ReplicaId, Lives)]) {
        let seq = SeqNum(seq);
        self.input(Input::Fetched {
            seq,
            root: &root(seq),
            clients: &[],
            lives: Some(lives),
            time_ns: self.agreed_ns,
        });
    }

    /// Executions take time from now on, until [`Self::end_executions`].
    pub fn hold_executions(&mut self) {
        self.waiting = Some(Vec::new());
    }

    /// The executions that wait come to an end, without replies.
    pub fn end_executions(&mut self) {
        for seq in self.waiting.take().unwrap_or_default() {
            self.input(Input::Executed { seq, replies: &Replies::new(), took_ns: 0 });
        }
    }

    fn replies(&self, seq: SeqNum, batch: &Batch) -> Replies {
        let mut replies = Replies::new();
        for r in batch.requests() {
            // A recovery request opens a life (RC-6).
            let mut result = Vec::new();
            match Recovery::decode(r.operation) {
                Some(Recovery { bits, floor, .. }) => {
                    let life = Life { timestamp: r.timestamp, bits };
                    Recovered { seq, life, floor }.encode(&mut result);
                }
                None => result.extend_from_slice(b"ok"),
            }
            let digest = self.domains.reply(r.client.0, r.timestamp.0, &r.digest, &result);
            replies.push(Reply {
                client: r.client,
                timestamp: r.timestamp,
                digest,
                replier: r.replier,
                outcome: if self.is_full { ReplyOutcome::Refused } else { ReplyOutcome::Executed },
                result: Some(&result),
            });
        }
        replies
    }

    /// The replica receives a frame.
    pub fn frame(&mut self, frame: &[u8]) {
        let own = Principal::Replica(self.replica.id());
        let at = self.doors.iter().position(|d| d.own() == own).unwrap();
        let mut door = self.doors.swap_remove(at);
        let admitted =
            door.admit(self.now.mono_ns, Frame::decode(frame).unwrap()).expect("the frame is authentic");
        if let Admitted::Message(message) = &admitted {
            self.input(Input::Message(message));
        }
        drop(admitted);
        self.doors.push(door);
    }

    /// The replica receives a message of replica `from`.
    pub fn hear(&mut self, from: ReplicaId, kind: Kind, body: impl FnOnce(&mut Writer<'_>)) {
        let mut bytes = Vec::new();
        body(&mut Writer::new(&mut bytes));
        let to = Principal::Replica(self.replica.id());
        let mut frame = Vec::new();
        self.door(from.into()).seal(kind, Some(to), &bytes, &mut frame);
        self.frame(&frame);
    }

    pub fn request_frame(&mut self, client: ClientId, t: u64, operation: &[u8]) -> Vec<u8> {
        self.request_frame_with(client, t, operation, false, false)
    }

    pub fn request_frame_with(
        &mut self,
        client: ClientId,
        t: u64,
        operation: &[u8],
        read_only: bool,
        sign: bool,
    ) -> Vec<u8> {
        let flags = RequestFlags { read_only, signed: sign };
        let body = RequestBody { timestamp: Timestamp(t), flags, replier: None, operation };
        let mut frame = Vec::new();
        self.door(client.into()).seal_request(&body, client, sign, &mut frame);
        frame
    }

    pub fn request(&mut self, client: ClientId, t: u64, operation: &[u8]) {
        let frame = self.request_frame(client, t, operation);
        self.frame(&frame);
    }

    /// A batch of one request, as a primary would make it.
    pub fn batch(&mut self, client: ClientId, t: u64, operation: &[u8]) -> Batch {
        let frame = self.request_frame(client, t, operation);
        self.batch_of(&[frame])
    }

    pub fn batch_of(&mut self, frames: &[Vec<u8>]) -> Batch {
        let mut batch = Batch::default();
        for frame in frames {
            let decoded = Frame::decode(frame).unwrap();
            batch.push_inlined(&quorate_wire::message::Request::decode(&decoded, &self.domains).unwrap());
        }
        batch.seal(&self.domains, &self.now.wall_ns.to_le_bytes());
        batch
    }

    /// A batch of separate requests, whose bodies come apart from it.
    pub fn separate_batch_of(&mut self, frames: &[Vec<u8>]) -> Batch {
        let mut batch = Batch::default();
        for frame in frames {
            let decoded = Frame::decode(frame).unwrap();
            let request = quorate_wire::message::Request::decode(&decoded, &self.domains).unwrap();
            batch.push_separate(request.digest, None);
        }
        batch.seal(&self.domains, &self.now.wall_ns.to_le_bytes());
        batch
    }

    pub fn pre_prepare(&mut self, from: ReplicaId, view: u64, seq: u64, batch: &Batch) {
        self.hear(from, Kind::PrePrepare, |w| encode_pre_prepare(ViewNum(view), SeqNum(seq), batch, &[], w));
    }

    pub fn prepare(&mut self, from: ReplicaId, view: u64, seq: u64, digest: Digest) {
        self.hear(from, Kind::Prepare, |w| Prepare::encode(ViewNum(view), SeqNum(seq), &digest, &[], w));
    }

    pub fn commit(&mut self, from: ReplicaId, view: u64, seq: u64, digest: Digest) {
        self.hear(from, Kind::Commit, |w| Commit { view: ViewNum(view), seq: SeqNum(seq), digest }.encode(w));
    }

    pub fn checkpoint(&mut self, from: ReplicaId, seq: u64, digest: Digest, stable: bool) {
        self.hear(from, Kind::Checkpoint, |w| Checkpoint { seq: SeqNum(seq), digest, stable }.encode(w));
    }

    pub fn suspect(&mut self, from: ReplicaId, view: u64) {
        self.hear(from, Kind::Suspect, |w| self::suspect(view).encode(w));
    }

    /// A batch goes through all three phases, as seen by a backup of view 0.
    pub fn order(&mut self, seq: u64, client: ClientId, t: u64, operation: &[u8]) -> Digest {
        let me = self.replica.id();
        let batch = self.batch(client, t, operation);
        let digest = batch.digest();
        self.pre_prepare(R0, 0, seq, &batch);
        for from in [R1, R2, R3] {
            if from != me {
                self.prepare(from, 0, seq, digest);
            }
        }
        for from in [R0, R1, R2, R3] {
            if from != me {
                self.commit(from, 0, seq, digest);
            }
        }
        digest
    }

    /// Time passes; timers that run out are handled.
    pub fn pass(&mut self, ms: u64) {
        let end = self.now.mono_ns + ms * MS;
        loop {
            let due = Timer::ALL
                .into_iter()
                .filter_map(|t| Some((self.deadlines[t.index()]?, t)))
                .filter(|(at, _)| *at <= end)
                .min();
            let Some((at, timer)) = due else { break };
            self.deadlines[timer.index()] = None;
            let step = at.saturating_sub(self.now.mono_ns);
            self.now = Now { mono_ns: self.now.mono_ns + step, wall_ns: self.now.wall_ns + step };
            self.input(Input::Timer(timer));
        }
        let step = end - self.now.mono_ns;
        self.now = Now { mono_ns: end, wall_ns: self.now.wall_ns + step };
    }

    pub fn sent(&self, kind: Kind) -> usize {
        self.did.iter().filter(|d| matches!(d, Did::Sent { kind: k, .. } if *k == kind)).count()
    }

    pub fn sent_to(&self, id: ReplicaId, kind: Kind) -> usize {
        let it = |d: &&Did| matches!(d, Did::Sent { kind: k, to, .. } if *k == kind && *to == Recipient::Replica(id));
        self.did.iter().filter(it).count()
    }

    pub fn last_sent(&self, kind: Kind) -> Option<(Recipient, Vec<u8>)> {
        self.did.iter().rev().find_map(|d| match d {
            Did::Sent { kind: k, to, bytes, .. } if *k == kind => Some((*to, bytes.clone())),
            _ => None,
        })
    }

    pub fn rejected(&self, reason: Reject) -> bool {
        self.said(|m| *m == Milestone::Rejected(reason))
    }

    pub fn said(&self, what: impl Fn(&Milestone) -> bool) -> bool {
        self.did.iter().any(|d| matches!(d, Did::Said(m) if what(m)))
    }

    pub fn executed(&self) -> Vec<(u64, bool)> {
        self.did
            .iter()
            .filter_map(|d| match d {
                Did::Executed { seq, tentative, .. } => Some((seq.0, *tentative)),
                _ => None,
            })
            .collect()
    }

    /// Forgets what was done so far.
    pub fn forget(&mut self) {
        self.did.clear();
    }
}

enum Todo {
    Executed(SeqNum, Replies),
    Checkpointed(SeqNum),
    Signature(Digest, bool),
    Read(quorate_pbft::step::Ticket, ClientId, Timestamp),
    Cached(ClientId),
}

/// The state's digest after `seq`, as every replica on the desk has it.
pub fn root(seq: SeqNum) -> Digest {
    Digest([u8::try_from(seq.0 % 200).unwrap() + 1; 32])
}

pub fn suspect(view: u64) -> Suspect {
    Suspect { view: ViewNum(view), reason: SuspectReason::Timeout, signature: [0; 64] }
}

fn exchange_keys(doors: &mut [Door], people: &[Principal]) {
    let mut quiet = false;
    while !quiet {
        quiet = true;
        for from in 0..doors.len() {
            doors[from].tick(0, 0);
            while let Some((to, frame)) = doors[from].take_outgoing() {
                quiet = false;
                let at = people.iter().position(|p| p.key_holder() == to.key_holder()).unwrap();
                doors[at].admit(0, Frame::decode(&frame).unwrap()).unwrap();
            }
        }
    }
}
