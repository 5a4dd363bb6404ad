//! A server from its directory: opened, run, stopped.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quorate_node::error::NodeErrorKind;
use quorate_node::member::Writes;
use quorate_node::{Clock, Idle, KeyTimes, Member, NodeError, Waiting};
use quorate_quorum::settings::Protocol;
use quorate_quorum::step::{Failure, Outcome, Reject};
use quorate_quorum::{Body, Input, Message, ObjectId, Past, Process, Settings, Thresholds, Value, Version};
use quorate_wire::{Principal, ReplicaId};
use tracing::{info, warn};

use crate::config::Config;
use crate::crypto::Secrets;
use crate::drive::{Drive, Sink};
use crate::evidence::Kept;
use crate::lie::{Falsifier, Lie, Seen};
use crate::link::{Carried, Carrier, LONG_ABOVE, Letter, Link};
use crate::note::Note;
use crate::store::{Durability, Opened, Owner, Store};
use crate::suspicion::{SuspicionTable, Wrong};
use crate::watchers::Watchers;

mod notes;
#[cfg(test)]
mod tests;

/// Maximum number of datagrams taken between two commits.
const BURST_MAX: usize = 64;
/// Forwarded values that are kept for readers that were told the version only.
const FORWARDED_MAX: usize = 32;

/// What a server keeps beside the register itself.
#[derive(Debug)]
struct Around {
    store: Store,
    /// What is sent once the batch is durable.
    held: Vec<(Principal, Message)>,
    notes: Vec<(Principal, Note)>,
    watchers: Watchers,
    /// It pushes news: MINIMAL (§15).
    pushes: bool,
    /// Values that were forwarded by their version, oldest first.
    forwarded: VecDeque<(ObjectId, Version, Value)>,
    lie: Option<Falsifier>,
    now_ns: u64,
    refused: u64,
    rejects: BTreeMap<Reject, u64>,
    own: Principal,
    suspicions: SuspicionTable,
    evidence: Kept,
}

impl Sink for Around {
    fn send(&mut self, to: Principal, mut message: Message) {
        if let Some(lie) = &mut self.lie
            && !lie.outgoing(to, &mut message)
        {
            return;
        }
        if let Body::Val { rid, version, value, forwarded: true, signature: None } = &message.body
            && value.len() > LONG_ABOVE
        {
            // The reader fetches the value once (ADR 14).
            let (object, version) = (message.object, *version);
            if !self.forwarded.iter().any(|(about, other, _)| (*about, *other) == (object, version)) {
                if self.forwarded.len() >= FORWARDED_MAX {
                    self.forwarded.pop_front();
                }
                self.forwarded.push_back((object, version, Arc::clone(value)));
            }
            return self.notes.push((to, Note::Forwarded(object, *rid, version)));
        }
        self.held.push((to, message));
    }

    fn persist(&mut self, process: &dyn Process, object: ObjectId) {
        self.store.put(object);
        if self.pushes
            && let Some(version) = process.held(&object)
        {
            for watcher in self.watchers.of(object, self.now_ns) {
                self.notes.push((watcher, Note::News(object, version)));
            }
        }
    }

    fn done(&mut self, _object: ObjectId, _result: Result<Outcome, Failure>) {}

    fn rejected(&mut self, from: Principal, reason: Reject) {
        self.refused += 1;
        if let (Principal::Replica(peer), Reject::BadProof) = (from, reason) {
            self.suspicions.see(self.now_ns, self.own, peer, Wrong::Invalid);
        }
        *self.rejects.entry(reason).or_default() += 1;
    }
}

/// A server, ready to run.
#[derive(Debug)]
pub struct Server {
    id: ReplicaId,
    dir: PathBuf,
    config: Config,
    settings: Arc<Settings>,
    link: Link,
    drive: Drive,
    around: Around,
    state_bytes_max: usize,
    waiting: Waiting,
    key_interval_ns: u64,
    core: Option<usize>,
    started: bool,
    was_lost: bool,
}

/// Returns the id of a server's directory.
fn id_of(dir: &Path) -> Result<ReplicaId, NodeError> {
    let full = std::fs::canonicalize(dir).map_err(|error| {
        NodeError::new(NodeErrorKind::Unreadable, format!("cannot be read: {error}"))
            .in_file(dir)
            .next("create the directories of a register with: quorate quorum init")
    })?;
    let name = full.file_name().and_then(|name| name.to_str()).unwrap_or("");
    let id = name.strip_prefix("server-").and_then(|id| id.parse().ok()).map(ReplicaId);
    id.ok_or_else(|| {
        NodeError::new(NodeErrorKind::Unreadable, "not a server's directory: its name is not server-N")
            .in_file(dir)
    })
}

impl Server {
    /// Opens the server in `dir`, and reads its disk.
    ///
    /// # Errors
    ///
    /// A file is missing, invalid, or accessible to other users; a port is taken; another process uses the directory.
    pub fn open(dir: &Path, lie: Option<Lie>, carrier: Carrier) -> Result<Self, NodeError> {
        let id = id_of(dir)?;
        let config = Config::read(dir)?;
        let member = Member::open(dir, id.into(), config.epoch, carrier.above())?;
        let cluster = member.members.cluster_id();
        let owner = Owner { cluster, epoch: config.epoch, id };
        let durability = durability_of(&member);
        let Opened { store, past, objects, why } =
            Store::open(dir, owner, durability, member.settings.log_bytes_max)?;
        if let Some(why) = why {
            warn!(why, "this server has lost its disk: it answers nothing until the others have repaired it");
        }
        Self::build(member, config, (store, past, objects), lie, carrier)
    }

    fn build(
        member: Member,
        config: Config,
        (mut store, past, objects): (Store, Past, BTreeMap<ObjectId, Vec<u8>>),
        lie: Option<Lie>,
        carrier: Carrier,
    ) -> Result<Self, NodeError> {
        let Principal::Replica(id) = member.own else {
            return Err(NodeError::new(NodeErrorKind::Rule, "a client is no server").in_file(&member.dir));
        };
        let cluster = member.members.cluster;
        let thresholds = Thresholds::new(
            u16::try_from(cluster.n()).unwrap_or(u16::MAX),
            u16::try_from(cluster.f()).unwrap_or(u16::MAX),
        )
        .map_err(|error| NodeError::new(NodeErrorKind::Rule, error.to_string()).in_file(&member.dir))?;
        let settings = Arc::new(config.settings(thresholds, &member.members.administrators));
        let mut process = quorate_quorum::server(id, Arc::clone(&settings), past);
        for (object, saved) in objects {
            process.load(object, &saved).map_err(|error| {
                let what = format!("an object in the log cannot be read: {error}");
                NodeError::new(NodeErrorKind::OtherFormat, what)
                    .in_file(&member.dir.join("state"))
                    .next("if another protocol wrote it: remove `state`, and the others repair this server")
            })?;
        }
        store.begin(|object, out| _ = process.save(object, out))?;
        let keys = (member.signer.clone(), member.verifier.clone(), member.entropy);
        let epoch = (member.members.cluster_id(), config.epoch);
        let secrets = || Secrets::new(epoch, id.into(), keys.0.clone(), keys.1.clone(), keys.2);
        let (waiting, key_interval_ns, core) =
            (member.settings.waiting, member.settings.key_interval_ns, member.settings.core);
        let state_bytes_max = member.settings.state_memory_max;
        member.pin()?;
        let dir = member.dir.clone();
        let (auth, socket, directory, lock) = member.into_parts();
        let pushes = matches!(config.protocol, Protocol::MinimalC | Protocol::MinimalF);
        let around = Around {
            store,
            held: Vec::new(),
            notes: Vec::new(),
            watchers: Watchers::default(),
            pushes,
            forwarded: VecDeque::new(),
            lie: lie.map(|lie| Falsifier::new(lie, id.into(), secrets())),
            now_ns: 0,
            refused: 0,
            rejects: BTreeMap::new(),
            own: id.into(),
            suspicions: SuspicionTable::default(),
            evidence: Kept::open(&dir, epoch),
        };
        let was_lost = past == Past::Lost;
        Ok(Self {
            id,
            dir,
            config,
            link: Link::new(id.into(), (auth, socket, directory, Some(lock)), carrier),
            drive: Drive::new(process, secrets()).collecting(Arc::clone(&settings)),
            settings,
            around,
            state_bytes_max,
            waiting,
            key_interval_ns,
            core,
            started: false,
            was_lost,
        })
    }

    /// Returns its id.
    pub fn id(&self) -> ReplicaId {
        self.id
    }

    /// Returns its register.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns what its link has carried.
    pub fn carried(&self) -> &Carried {
        self.link.carried()
    }

    /// Returns the signatures that it has made and looked at.
    pub fn spent(&self) -> crate::crypto::Spent {
        self.drive.crypto().spent()
    }

    /// Returns the number of messages that the register refused, by reason.
    pub fn rejects(&self) -> &BTreeMap<Reject, u64> {
        &self.around.rejects
    }

    /// Returns whether it holds everything that it promised.
    pub fn is_repaired(&self) -> bool {
        self.drive.process().is_repaired()
    }

    /// Runs until `stop`.
    ///
    /// # Errors
    ///
    /// The sockets or the disk have failed.
    pub fn run(mut self, stop: &AtomicBool) -> Result<(), NodeError> {
        let (clock, mut idle) = (Clock::new(), Idle::new(self.waiting));
        let mut keys = KeyTimes::new(&self.dir, self.key_interval_ns, clock.mono_ns());
        info!(
            server = %self.id, protocol = self.config.protocol.name(), objects = self.drive.process().objects(),
            repaired = self.is_repaired(), core = ?self.core, "runs"
        );
        while !stop.load(Ordering::Relaxed) {
            let now_ns = clock.mono_ns();
            if let Some(time) = keys.next(now_ns, || clock.now().wall_ns, self.link.key_time()) {
                self.link.refresh(Member::fresh()?, time);
                self.link.flush(now_ns);
            }
            if self.waiting == Waiting::Block {
                self.await_turn(&clock, now_ns)?;
            } else if self.turn(now_ns)? {
                idle.reset();
            } else {
                self.link
                    .rest(&mut idle, (now_ns, self.drive.due()), None, || false)
                    .map_err(|error| failed(&error))?;
            }
        }
        info!(server = %self.id, lies = self.around.lie.as_ref().map_or(0, Falsifier::told), "stops");
        self.around.store.close()
    }

    /// Takes what has come, makes it durable, and answers. Returns whether there was anything.
    ///
    /// # Errors
    ///
    /// The sockets or the disk have failed.
    pub fn turn(&mut self, now_ns: u64) -> Result<bool, NodeError> {
        self.begin(now_ns);
        let burst = self.burst(now_ns)?;
        self.settle(now_ns)?;
        Ok(burst > 0)
    }

    /// The same, but waits for a datagram in the call that receives it.
    fn await_turn(&mut self, clock: &Clock, now_ns: u64) -> Result<(), NodeError> {
        if self.begin(now_ns) {
            self.settle(now_ns)?;
        }
        let due = (now_ns, self.drive.due());
        let came = self.link.await_one(clock, due).map_err(|error| failed(&error))?;
        let now_ns = clock.mono_ns();
        self.around.now_ns = now_ns;
        if came {
            self.take_letters(now_ns)?;
            // Who waits for the disk takes others along. The wait that follows ends at once if there is more.
            if self.was_lost || self.around.store.has_batch() {
                self.burst(now_ns)?;
            }
        }
        self.settle(now_ns)
    }

    /// Starts, and runs the timers that are due. Returns whether there was anything.
    fn begin(&mut self, now_ns: u64) -> bool {
        self.around.now_ns = now_ns;
        let starts = !self.started;
        if starts {
            self.started = true;
            self.drive.step(now_ns, Input::Start, &mut self.around);
        }
        // Before what has come: a timer without a wait is for the turn after the one that set it.
        let due = self.drive.due() <= now_ns;
        if due {
            self.drive.expire(now_ns, &mut self.around);
        }
        starts || due
    }

    /// Takes what has come, and answers what need not wait for the disk. Returns the number of datagrams.
    fn burst(&mut self, now_ns: u64) -> Result<usize, NodeError> {
        let mut burst = 0;
        while burst < BURST_MAX && self.link.poll(now_ns).map_err(|error| failed(&error))? {
            burst += 1;
            self.take_letters(now_ns)?;
            // An answer that promises nothing new does not wait for what else has come.
            if !self.was_lost && !self.around.store.has_batch() {
                self.answer();
                self.link.flush_packed();
            }
        }
        Ok(burst)
    }

    #[inline]
    fn take_letters(&mut self, now_ns: u64) -> Result<(), NodeError> {
        while let Some((from, letter)) = self.link.next() {
            match letter {
                Letter::Message(message) => self.take(now_ns, from, &message),
                Letter::Note(note) => self.note(now_ns, from, &note),
            }
            if self.around.store.has_much() {
                self.commit()?;
            }
        }
        Ok(())
    }

    /// Makes durable what was persisted.
    #[inline]
    fn commit(&mut self) -> Result<(), NodeError> {
        let process = self.drive.process();
        self.around.store.commit(|object, out| _ = process.save(object, out))
    }

    #[inline]
    fn take(&mut self, now_ns: u64, from: Principal, message: &Message) {
        let process = self.drive.process();
        // A server that lost its disk counts as faulty until it is repaired (§15).
        if self.was_lost && !process.is_repaired() && !message.body.is_for_lost_server() {
            self.around.refused += 1;
            return;
        }
        let store = &self.around.store;
        let grows = values(message).map(|(object, bytes)| store.grows_by(object, bytes)).sum();
        if !store.has_room(grows, self.state_bytes_max) {
            return self.around.rejected(from, Reject::Full);
        }
        if let Some(lie) = &mut self.around.lie {
            match lie.incoming(from, message) {
                Seen::Yes => {}
                Seen::Answered(body) => {
                    return self.around.held.push((from, Message { object: message.object, body }));
                }
            }
        }
        self.drive.step(now_ns, Input::Message { from, message }, &mut self.around);
        for (object, bytes) in values(message) {
            self.around.store.note_value(object, bytes);
        }
    }

    /// Makes durable what was persisted, and then sends what promises it.
    #[inline]
    fn settle(&mut self, now_ns: u64) -> Result<(), NodeError> {
        self.commit()?;
        let Self { around, drive, .. } = self;
        around.evidence.take(drive.take_accusations());
        if self.was_lost && drive.process().is_repaired() {
            self.was_lost = false;
            around.store.note_repaired()?;
            info!(objects = drive.process().objects(), "is repaired: it answers from now on");
        }
        if around.store.is_long() {
            let process = drive.process();
            around.store.renew(|object, out| _ = process.save(object, out))?;
        }
        self.answer();
        self.link.flush(now_ns);
        Ok(())
    }

    /// Packs what is ready to be sent: everything that it promises is durable.
    #[inline]
    fn answer(&mut self) {
        let Self { around, link, .. } = self;
        for (to, message) in around.held.drain(..) {
            link.send(to, &message);
        }
        for (to, note) in around.notes.drain(..) {
            link.note(to, &note);
        }
    }
}

/// Returns the objects whose values a message brings, each with the length of its value.
fn values(message: &Message) -> impl Iterator<Item = (ObjectId, usize)> {
    let (mut own, mut copies) = (None, None);
    if let Body::Store { value, .. } | Body::Fstore { value, .. } | Body::Write { value, .. } = &message.body
    {
        own = Some((message.object, value.len()));
    } else if let Body::Copies { items, .. } = &message.body {
        // What a peer sends for a repair.
        copies = Some(items);
    }
    let copies = copies.into_iter().flat_map(|items| items.iter());
    own.into_iter().chain(copies.map(|item| (item.object, item.value.len())))
}

fn failed(error: &std::io::Error) -> NodeError {
    NodeError::new(NodeErrorKind::Network, format!("the sockets have failed: {error}"))
}

fn durability_of(member: &Member) -> Durability {
    match member.writes() {
        Writes::First => Durability::Sync,
        Writes::Later => Durability::Async,
        Writes::Never => Durability::Memory,
    }
}
