//! A client without a thread of its own: it takes an operation, and turns until the operation has ended.
//!
//! Its owner gets a result before anything is sent that is off its path (RC of MINIMAL): that goes out with the next turn,
//! packed with what follows.

mod fetches;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::Arc;

use quorate_node::error::NodeErrorKind;
use quorate_node::wake::Waker;
use quorate_node::{Clock, Idle, Member, NodeError, Waiting};
use quorate_quorum::access::{ACCESS, AccessList, SignedList};
use quorate_quorum::accusation::Accusation;
use quorate_quorum::crypto::Crypto;
use quorate_quorum::settings::Protocol;
use quorate_quorum::step::{Call, Failure, Outcome, Reject};
use quorate_quorum::{Body, Input, Message, ObjectId, Process, ServerId, Settings, Thresholds, Version};
use quorate_wire::{ClientId, Digest, Principal};

use self::fetches::Fetches;
use crate::config::Config;
use crate::crypto::{Secrets, Spent};
use crate::drive::{Drive, Sink};
use crate::evidence::Kept;
use crate::link::{Carried, Carrier, Letter, Link};
use crate::note::{Note, State};
use crate::suspicion::{Suspicion, Suspicions, Wrong};

/// Maximum number of datagrams taken between two flushes.
const BURST_MAX: usize = 64;
/// News and states that wait for their owner; more are dropped, since they are asked for again.
const NEWS_MAX: usize = 1024;
/// An access list and a part of the evidence are long: they are dropped if more than this waits.
const LARGE_MAX: usize = 64;

/// An operation that has ended.
pub type Done = (ObjectId, Result<Outcome, Failure>);

/// What servers have said beside the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// This server stored a version of this object.
    News(ServerId, ObjectId, Version),
    /// Its state, with the number of the question.
    State(ServerId, u64, State),
    /// It has this access list, or none.
    Access(ServerId, Option<Arc<SignedList>>),
    /// Some of its accusations: from this number on, of how many.
    Evidence(ServerId, u16, u16, Arc<[Accusation]>),
}

/// A client. See the module.
#[derive(Debug)]
pub struct Core {
    me: ClientId,
    config: Arc<Config>,
    settings: Arc<Settings>,
    link: Link,
    drive: Drive,
    fetches: Fetches,
    suspicions: Suspicions,
    evidence: Kept,
    /// Objects with an operation under way: what servers forward of others is not wanted.
    busy: BTreeSet<ObjectId>,
    done: VecDeque<Done>,
    said: VecDeque<Said>,
    waiting: Waiting,
}

/// Where the actions of a client go.
struct Out<'a> {
    now_ns: u64,
    link: &'a mut Link,
    done: &'a mut VecDeque<Done>,
    suspicions: &'a mut Suspicions,
}

impl Sink for Out<'_> {
    #[inline]
    fn send(&mut self, to: Principal, message: Message) {
        self.suspicions.sent(self.now_ns, message.object, &message.body);
        self.link.send(to, &message);
    }

    fn persist(&mut self, _process: &dyn Process, _object: ObjectId) {}

    fn done(&mut self, object: ObjectId, result: Result<Outcome, Failure>) {
        if let Ok(outcome) = &result {
            self.suspicions.ended(self.now_ns, object, outcome.version);
        }
        self.done.push_back((object, result));
    }

    fn rejected(&mut self, from: Principal, reason: Reject) {
        if let (Principal::Replica(server), Reject::BadProof) = (from, reason) {
            self.suspicions.note(self.now_ns, server, Wrong::Invalid);
        }
    }
}

/// Returns the number of a client's directory.
fn number_of(dir: &Path) -> Result<u64, NodeError> {
    let full = std::fs::canonicalize(dir).map_err(|error| {
        NodeError::new(NodeErrorKind::Unreadable, format!("cannot be read: {error}"))
            .in_file(dir)
            .next("create the directories of a register with: quorate quorum init")
    })?;
    let name = full.file_name().and_then(|name| name.to_str()).unwrap_or("");
    quorate_node::members::client_number(name).ok_or_else(|| {
        let what = "not a client's directory: its name is not client-0, client-1, ...";
        NodeError::new(NodeErrorKind::Unreadable, what).in_file(dir)
    })
}

impl Core {
    /// Opens the client in `dir`.
    ///
    /// # Errors
    ///
    /// A file is missing, invalid, or accessible to other users; a port is taken; another process uses the identity.
    pub fn open(dir: &Path, carrier: Carrier) -> Result<Self, NodeError> {
        let config = Config::read(dir)?;
        let identity = quorate_node::members::client_identity(number_of(dir)?);
        let member = Member::open(dir, identity, config.epoch, carrier.above())?;
        let start = member.count_start()?;
        // What a client of BFT-BC knew of its last write is gone: it comes back as a new client (§6.6, H6). The
        // others are known by the number of their start.
        let lane = match config.protocol {
            Protocol::BftBc(_) => u16::try_from(start).map_err(|_| {
                let what = "this client has started 65,535 times, as a new one each time: no number is left";
                NodeError::new(NodeErrorKind::Rule, what)
                    .in_file(dir)
                    .next("use another client of the register")
            })?,
            Protocol::Phalanx | Protocol::MinimalC | Protocol::MinimalF => 0,
        };
        let me = ClientId::new(identity.as_client().principal(), lane);
        let cluster = member.members.cluster;
        let thresholds = Thresholds::new(
            u16::try_from(cluster.n()).unwrap_or(u16::MAX),
            u16::try_from(cluster.f()).unwrap_or(u16::MAX),
        )
        .map_err(|error| NodeError::new(NodeErrorKind::Rule, error.to_string()).in_file(dir))?;
        let settings = Arc::new(config.settings(thresholds, &member.members.administrators));
        let of = (member.members.cluster_id(), config.epoch);
        let secrets =
            Secrets::new(of, me.into(), member.signer.clone(), member.verifier.clone(), member.entropy);
        let waiting = member.settings.waiting;
        member.pin()?;
        let (auth, socket, directory, lock) = member.into_parts();
        let process = quorate_quorum::client(me, start, Arc::clone(&settings));
        let suspicions = Suspicions::new(settings.thresholds.n());
        Ok(Self {
            me,
            config: Arc::new(config),
            link: Link::new(me.into(), (auth, socket, directory, Some(lock)), carrier),
            drive: Drive::new(process, secrets).collecting(Arc::clone(&settings)),
            evidence: Kept::open(dir, of),
            settings,
            fetches: Fetches::default(),
            suspicions,
            busy: BTreeSet::new(),
            done: VecDeque::new(),
            said: VecDeque::new(),
            waiting,
        })
    }

    /// Returns its number among clients and lanes.
    pub fn me(&self) -> ClientId {
        self.me
    }

    /// Returns its register.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Returns the settings of the protocol.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns how it waits.
    pub fn waiting(&self) -> Waiting {
        self.waiting
    }

    /// Returns what its link has carried.
    pub fn carried(&self) -> &Carried {
        self.link.carried()
    }

    /// Returns the signatures that it has made and looked at.
    pub fn spent(&self) -> Spent {
        self.drive.crypto().spent()
    }

    /// Returns what this client has seen of servers that are wrong.
    pub fn suspicions(&self) -> Vec<Suspicion> {
        self.suspicions.list(self.me.into())
    }

    /// Returns how many objects have a STORE that some server has not acknowledged.
    pub fn backlog(&self) -> usize {
        self.drive.process().backlog()
    }

    /// Returns when it has to turn, if nothing comes before.
    pub fn due(&self) -> u64 {
        self.drive.due().min(self.fetches.due()).min(self.suspicions.due())
    }

    /// Begins an operation.
    pub fn invoke(&mut self, now_ns: u64, object: ObjectId, call: Call) {
        self.busy.insert(object);
        let Self { drive, link, done, suspicions, .. } = self;
        drive.step(now_ns, Input::Invoke { object, call }, &mut Out { now_ns, link, done, suspicions });
        self.forget_fetches();
    }

    /// Sends a note to all servers.
    pub fn tell(&mut self, note: &Note) {
        for server in self.settings.thresholds.servers() {
            self.link.note(server.into(), note);
        }
    }

    /// Signs an access list.
    pub(crate) fn sign(&mut self, list: AccessList) -> SignedList {
        let signature = self.drive.crypto_mut().sign(&ACCESS, &list.statement());
        SignedList { list, administrator: self.me, signature }
    }

    /// Sends an access list to all servers, and asks for theirs.
    pub(crate) fn compare(&mut self, signed: Option<&Arc<SignedList>>) {
        let offer = signed.map(|signed| Body::Access { signed: Arc::clone(signed) });
        let ask = Body::AccessRank { number: 0, digest: Digest::ZERO };
        for body in offer.into_iter().chain([ask]) {
            let message = Message { object: ACCESS, body };
            for server in self.settings.thresholds.servers() {
                self.link.send(server.into(), &message);
            }
        }
    }

    /// Sends a note to one server.
    pub(crate) fn tell_one(&mut self, server: ServerId, note: &Note) {
        self.link.note(server.into(), note);
    }

    /// Sends the servers this client's keys again.
    pub fn announce(&mut self) {
        self.link.announce();
    }

    /// Returns the next operation that has ended.
    pub fn take_done(&mut self) -> Option<Done> {
        self.done.pop_front()
    }

    /// Returns the next thing that a server has said.
    pub fn take_said(&mut self) -> Option<Said> {
        self.said.pop_front()
    }

    /// Sends, takes what has come, and runs what is due. Returns at once when an operation has ended; what is off its
    /// path is then sent by the next turn. Returns whether there was anything.
    ///
    /// # Errors
    ///
    /// The sockets have failed.
    #[inline]
    pub fn turn(&mut self, now_ns: u64) -> io::Result<bool> {
        self.link.flush(now_ns);
        let mut burst = 0;
        while burst < BURST_MAX && self.link.poll(now_ns)? {
            burst += 1;
            while let Some((from, letter)) = self.link.next() {
                self.take(now_ns, from, letter);
            }
            if !self.done.is_empty() {
                return Ok(true);
            }
            // The next phase begins before the answers that are late for the last one are looked at.
            self.link.flush_packed();
        }
        self.expire(now_ns);
        Ok(burst > 0)
    }

    /// Like [`Self::turn`] and [`Self::rest`] of one that sleeps at once, with fewer system calls: sends what is to be
    /// sent, and waits for one datagram, until `until_ns` at most.
    ///
    /// # Errors
    ///
    /// The sockets have failed.
    pub fn await_turn(&mut self, clock: &Clock, until_ns: u64) -> io::Result<()> {
        let now_ns = clock.mono_ns();
        self.expire(now_ns);
        self.link.flush(now_ns);
        let due = (now_ns, self.due().min(until_ns));
        if self.link.await_one(clock, due)? {
            let now_ns = clock.mono_ns();
            while let Some((from, letter)) = self.link.next() {
                self.take(now_ns, from, letter);
            }
        }
        Ok(())
    }

    /// Runs the timers that are due.
    fn expire(&mut self, now_ns: u64) {
        if self.due() <= now_ns {
            let Self { me, drive, link, done, fetches, suspicions, .. } = self;
            drive.expire(now_ns, &mut Out { now_ns, link, done, suspicions });
            fetches.again(now_ns, link);
            let told = suspicions.tell(now_ns, (*me).into());
            self.forget_fetches();
            for one in told {
                self.tell(&Note::Suspect(one));
            }
        }
    }

    fn take(&mut self, now_ns: u64, from: Principal, letter: Letter) {
        let Self { drive, link, done, fetches, said, suspicions, .. } = self;
        let Principal::Replica(server) = from else { return };
        let note = match letter {
            Letter::Message(Message { body: Body::Access { signed }, .. }) if said.len() < LARGE_MAX => {
                return said.push_back(Said::Access(server, Some(signed)));
            }
            Letter::Message(Message { body: Body::AccessRank { number: 0, .. }, .. })
                if said.len() < NEWS_MAX =>
            {
                return said.push_back(Said::Access(server, None));
            }
            Letter::Message(message) => {
                suspicions.heard(now_ns, server, message.object, &message.body);
                let input = Input::Message { from, message: &message };
                drive.step(now_ns, input, &mut Out { now_ns, link, done, suspicions });
                self.keep_evidence();
                return self.forget_fetches();
            }
            Letter::Note(note) => note,
        };
        match note {
            Note::Forwarded(object, rid, version) if self.busy.contains(&object) => {
                fetches.forwarded(now_ns, server, (object, rid, version), link);
            }
            Note::Fetched(object, version, value) => fetches.fetched(object, version, &value),
            Note::News(object, version) if said.len() < NEWS_MAX => {
                said.push_back(Said::News(server, object, version));
            }
            Note::State(number, state) if said.len() < NEWS_MAX => {
                said.push_back(Said::State(server, number, state));
            }
            Note::Evidence(from, total, items) if said.len() < LARGE_MAX => {
                said.push_back(Said::Evidence(server, from, total, items));
            }
            Note::Forwarded(..)
            | Note::News(..)
            | Note::State(..)
            | Note::Evidence(..)
            | Note::AskEvidence(_)
            | Note::Watch(_)
            | Note::Unwatch(_)
            | Note::Fetch(..)
            | Note::Suspect(_)
            | Note::Probe(_) => {}
        }
        while let Some((server, message)) = self.fetches.take() {
            let Self { drive, link, done, suspicions, .. } = self;
            let input = Input::Message { from: server.into(), message: &message };
            drive.step(now_ns, input, &mut Out { now_ns, link, done, suspicions });
        }
        self.forget_fetches();
    }

    /// Keeps what can be proved by what it has verified (§15).
    #[inline]
    fn keep_evidence(&mut self) {
        self.evidence.take(self.drive.take_accusations());
    }

    /// An operation that has ended is not under way, and what was to be fetched for it is not needed.
    #[inline]
    fn forget_fetches(&mut self) {
        for (object, result) in &self.done {
            // The operation that was there before goes on.
            if *result != Err(Failure::Busy) && self.busy.remove(object) && !self.fetches.is_empty() {
                self.fetches.forget(*object);
            }
        }
    }

    /// Rests until something comes or is due.
    ///
    /// # Errors
    ///
    /// The wait has failed.
    pub fn rest(
        &self,
        idle: &mut Idle,
        (now_ns, due_ns): (u64, u64),
        waker: Option<&Waker>,
        news: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        self.link.rest(idle, (now_ns, due_ns), waker, news)
    }

    /// Runs one operation to its end, or until a moment of `clock`. None: it has not ended, and may still take effect.
    ///
    /// # Errors
    ///
    /// The sockets have failed.
    pub fn run(
        &mut self,
        clock: &Clock,
        until_ns: u64,
        object: ObjectId,
        call: Call,
    ) -> io::Result<Option<Done>> {
        let mut idle = Idle::new(self.waiting);
        self.invoke(clock.mono_ns(), object, call);
        loop {
            let now_ns = clock.mono_ns();
            let blocks = self.waiting == Waiting::Block;
            let worked = if blocks { false } else { self.turn(now_ns)? };
            if let Some(done) = self.take_done() {
                return Ok(Some(done));
            }
            if now_ns >= until_ns {
                return Ok(None);
            }
            if blocks {
                self.await_turn(clock, until_ns)?;
            } else if worked {
                idle.reset();
            } else {
                self.rest(&mut idle, (now_ns, self.due().min(until_ns)), None, || false)?;
            }
        }
    }
}
