//! The replica: its parts, and the dispatch of inputs to the files that handle them.

mod answer_bodies;
pub(crate) mod card;
mod checkpoint;
mod execute;
mod fetch_bodies;
mod new_view;
mod normal;
mod proofs;
mod propose;
mod rejoin;
mod request;
mod request_timer;
pub mod restart;
mod starts;
mod status;
mod transfer;
mod view_change;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use quorate_wire::digest::Domains;
use quorate_wire::id::{Principal, ReplicaId, SeqNum, ViewNum};
use quorate_wire::message::Message;
use quorate_wire::sign::Signer;
use quorate_wire::{Cluster, Digest, Verified};

use crate::io::config::{Config, ConfigError, Durability};
use crate::io::record::Record;
use crate::io::rng::Rng;
use crate::io::step::{Action, Actions, Deadline, Input, Lsn, Now, Reject, Timer};
use crate::order::archive::Archive;
use crate::order::log::Log;
use crate::recovery::lives::LivesKnown;
use crate::replica::answer_bodies::Lookup;
use crate::replica::checkpoint::Checkpoints;
use crate::replica::execute::{Execution, Reads};
use crate::replica::fetch_bodies::Bodies;
use crate::replica::propose::Batcher;
use crate::replica::rejoin::Recovery;
use crate::replica::request_timer::Watch;
use crate::replica::restart::Resume;
use crate::replica::status::PeerStatus;
use crate::replica::transfer::Transfer;
use crate::replica::view_change::ViewChanges;
use crate::requests::table::ClientTable;

/// Whether a replica takes part in its view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It orders requests in its view.
    Normal,
    /// It waits for the NEW-VIEW of its view.
    ViewChange,
}

/// Commits that wait for a message to ride on (PB-1). At most `W`.
#[derive(Debug, Default)]
pub(crate) struct PendingCommits {
    pub(crate) commits: Vec<(SeqNum, Digest)>,
    /// The record that must be durable before they are sent.
    pub(crate) after: Lsn,
}

/// One vote of this replica's own that counts once its record is durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnVote {
    pub(crate) lsn: Lsn,
    pub(crate) view: ViewNum,
    pub(crate) seq: SeqNum,
    pub(crate) digest: Digest,
    pub(crate) commit: bool,
}

/// A replica of the service: a value with one method, [`Replica::step`].
#[derive(Debug)]
pub struct Replica {
    pub(crate) id: ReplicaId,
    pub(crate) config: Config,
    pub(crate) cluster: Cluster,
    pub(crate) domains: Domains,
    pub(crate) null_digest: Digest,
    /// The front of the digest of the settings that all replicas must have alike.
    pub(crate) settings: u64,
    pub(crate) signer: Signer,
    pub(crate) rng: Rng,
    pub(crate) view: ViewNum,
    pub(crate) status: Status,
    pub(crate) log: Log,
    pub(crate) clients: ClientTable,
    pub(crate) batcher: Batcher,
    pub(crate) bodies: Bodies,
    pub(crate) lookup: Lookup,
    pub(crate) archive: Archive,
    pub(crate) exec: Execution,
    pub(crate) reads: Reads,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) transfer: Transfer,
    pub(crate) views: ViewChanges,
    pub(crate) peers: PeerStatus,
    pub(crate) recovery: Recovery,
    pub(crate) lives: LivesKnown,
    pub(crate) watch: Watch,
    pub(crate) piggyback: PendingCommits,
    /// The last choice agreed, in nanoseconds of the day (ND-2).
    pub(crate) last_choice: u64,
    /// It has handed its view over and proposes nothing in it (§14.3).
    pub(crate) handing_off: bool,
    /// The last record written.
    lsn: Lsn,
    /// The last record on disk.
    durable: Lsn,
    own_votes: VecDeque<OwnVote>,
    resume: Option<Resume>,
    scratch: Vec<u64>,
}

impl Replica {
    /// Returns replica `id`, about to start or to start again. Its first input is [`Input::Start`].
    ///
    /// # Errors
    ///
    /// The settings break a rule.
    pub fn new(id: ReplicaId, config: Config, signer: Signer, resume: Resume) -> Result<Self, ConfigError> {
        config.check()?;
        let cluster = config.cluster;
        let domains = config.domains();
        Ok(Self {
            id,
            cluster,
            null_digest: domains.null_batch(),
            settings: config.shared_settings(),
            signer,
            rng: Rng::new(config.seed ^ (u64::from(id.0) << 48)),
            view: ViewNum(0),
            status: Status::Normal,
            log: Log::new(config.window, cluster),
            clients: ClientTable::new(config.clients_max, config.lanes_max),
            batcher: Batcher::new(config.window),
            bodies: Bodies::new(&config),
            lookup: Lookup::default(),
            archive: Archive::new(config.checkpoint_interval),
            exec: Execution::default(),
            reads: Reads::default(),
            checkpoints: Checkpoints::new(cluster),
            transfer: Transfer::default(),
            views: ViewChanges::new(&config),
            peers: PeerStatus::new(cluster),
            recovery: Recovery::default(),
            lives: LivesKnown::default(),
            watch: Watch::new(&config),
            piggyback: PendingCommits::default(),
            last_choice: 0,
            handing_off: false,
            lsn: Lsn(0),
            durable: Lsn(0),
            own_votes: VecDeque::new(),
            resume: Some(resume),
            scratch: Vec::new(),
            domains,
            config,
        })
    }

    /// Takes one input and adds what is to be done about it to `out`.
    ///
    /// The same inputs in the same order give the same actions: there is no clock, no I/O and no
    /// randomness but one seeded generator in here.
    pub fn step(&mut self, now: Now, input: Input<'_>, out: &mut Actions) {
        match input {
            Input::Start => {
                if let Some(resume) = self.resume.take() {
                    self.start(now, &resume, out);
                }
            }
            Input::Message(message) => self.on_message(now, message, out),
            Input::Timer(timer) => self.on_timer(now, timer, out),
            Input::SignatureChecked { request, valid } => self.on_signature_checked(now, request, valid, out),
            Input::Executed { seq, replies } => self.on_executed(now, seq, replies, out),
            Input::Read { ticket, result } => self.on_read(ticket, result, out),
            Input::Cached { client, reply } => self.on_cached(client, reply, out),
            Input::Checkpointed { seq, root } => self.on_checkpointed(now, seq, root, out),
            Input::Fetched { seq, root, clients, lives } => {
                self.finish_transfer(now, (seq, root), clients, lives, out);
            }
            Input::Durable(lsn) => self.on_durable(now, lsn, out),
            Input::Kept { seq } => self.on_kept(now, seq, out),
        }
        // Last of all: it may lead into another view.
        while self.lives.take_news() {
            self.look_at_lives(now, out);
        }
        self.check_invariants();
    }

    fn on_message(&mut self, now: Now, verified: &Verified<Message<'_>>, out: &mut Actions) {
        let sender = verified.sender();
        // A request is its client's, from any sender.
        if let Message::Request(request) = verified.message() {
            return self.on_request(now, request, out);
        }
        let Principal::Replica(from) = sender else { return out.reject(Reject::WrongSender) };
        if from == self.id
            && let Message::ViewChange(m) = verified.message()
        {
            return self.on_own_view_change(now, m, out);
        }
        if let Message::Proof(m) = verified.message() {
            return self.on_proof(now, m, out); // evidence, also where it is this replica's own
        }
        if from == self.id || !self.cluster.contains(from) {
            return out.reject(Reject::WrongSender); // CR-4
        }
        match verified.message() {
            Message::Request(_) | Message::Proof(_) => unreachable!("handled above"),
            Message::Reply(m) => self.on_recovery_reply(now, from, m, out),
            Message::PrePrepare(m) => self.on_pre_prepare(now, from, m, out),
            Message::Prepare(m) => self.on_prepare(now, from, m, out),
            Message::Commit(m) => self.on_commit(now, from, m, out),
            Message::Checkpoint(m) => self.on_checkpoint(now, from, m, out),
            Message::Status(m) => self.on_status(now, from, m, out),
            Message::ViewChange(m) => self.on_view_change(now, m, out),
            Message::NewView(m) => self.on_new_view(now, m, out),
            Message::Suspect(m) => self.on_suspect(now, from, m, out),
            Message::BodyFetch(m) => self.on_body_fetch(now, from, m, out),
            Message::Body(m) => self.on_body(now, m, out),
            Message::Committed(m) => self.on_committed(now, from, m, out),
            Message::ReqAck(m) => self.on_req_ack(now, from, m, out),
            Message::ReqReject(m) => self.on_req_reject(now, from, m, out),
            Message::VcFetch(m) => self.on_vc_fetch(now, from, m, out),
            Message::QueryStable(m) => self.on_query_stable(from, *m, out),
            Message::ReplyStable(m) => self.on_reply_stable(now, from, m, out),
            // The state transfer's own, which the driver hands to the executor; and the node's own.
            Message::MetaData(_)
            | Message::Data(_)
            | Message::Fetch(_)
            | Message::Probe(_)
            | Message::Statement(_) => out.reject(Reject::Unwanted),
        }
    }

    fn on_timer(&mut self, now: Now, timer: Timer, out: &mut Actions) {
        match timer {
            Timer::Request => self.on_request_timer(now, out),
            Timer::NewView => self.on_new_view_timer(now, out),
            Timer::Status => self.on_status_timer(now, out),
            Timer::Flush => self.flush_commits(out),
            Timer::BodyFetch => self.on_body_timer(now, out),
            Timer::Relay => self.on_relay_timer(now, out),
            Timer::Recovery => self.on_recovery_timer(now, out),
            Timer::NullBatch => self.on_null_batch_timer(now, out),
        }
    }

    /// Returns the replica's id.
    pub fn id(&self) -> ReplicaId {
        self.id
    }

    /// Returns the current view.
    pub fn view(&self) -> ViewNum {
        self.view
    }

    /// Returns whether this replica is the primary of its view.
    pub fn is_primary(&self) -> bool {
        self.primary() == self.id
    }

    /// Returns the primary of the current view.
    pub(crate) fn primary(&self) -> ReplicaId {
        self.cluster.primary(self.view)
    }

    /// Returns whether this replica takes part in its view.
    pub(crate) fn is_normal(&self) -> bool {
        self.status == Status::Normal
    }

    /// Writes a record and returns what must wait for it: nothing, unless every promise is to be on
    /// disk before it leaves (§14.2).
    pub(crate) fn persist(&mut self, record: Record<'_>, out: &mut Actions) -> Lsn {
        if self.config.durability == Durability::Memory {
            return Lsn(0);
        }
        self.lsn = Lsn(self.lsn.0 + 1);
        let bytes = out.write(|w| record.encode(w));
        out.push(Action::Persist { lsn: self.lsn, bytes });
        if self.config.durability == Durability::Sync { self.lsn } else { Lsn(0) }
    }

    /// Returns what a statement about everything said so far has to wait for.
    pub(crate) fn last_lsn(&self) -> Lsn {
        if self.config.durability == Durability::Sync { self.lsn } else { Lsn(0) }
    }

    /// Returns whether a record is on disk, or need not be.
    pub(crate) fn is_durable(&self, lsn: Lsn) -> bool {
        lsn <= self.durable
    }

    /// Delays an own vote until its record is durable: it is not counted before (ADR 5).
    pub(crate) fn count_when_durable(&mut self, vote: OwnVote) {
        self.own_votes.push_back(vote);
    }

    /// Forgets own votes that cannot count any more: of an ended view, or at or below the stable
    /// checkpoint. A slow disk would let them add up.
    pub(crate) fn drop_old_votes(&mut self) {
        let (view, stable) = (self.log.view(), self.log.stable());
        self.own_votes.retain(|vote| vote.view == view && vote.seq > stable);
    }

    fn on_durable(&mut self, now: Now, lsn: Lsn, out: &mut Actions) {
        self.watch.note_durable(now.mono_ns);
        self.durable = self.durable.max(lsn.min(self.lsn));
        while let Some(vote) = self.own_votes.front().copied() {
            if !self.is_durable(vote.lsn) {
                break;
            }
            self.own_votes.pop_front();
            self.count_own_vote(&vote);
            self.advance(now, vote.seq, out);
        }
    }

    /// Starts a timer.
    pub(crate) fn set_timer(out: &mut Actions, timer: Timer, at: u64) {
        out.push(Action::SetTimer(timer, Deadline(at)));
    }

    /// Returns room for a few numbers that a handler needs for a moment.
    pub(crate) fn take_scratch(&mut self) -> Vec<u64> {
        let mut scratch = core::mem::take(&mut self.scratch);
        scratch.clear();
        scratch
    }

    /// Gives the room back.
    pub(crate) fn put_scratch(&mut self, scratch: Vec<u64>) {
        self.scratch = scratch;
    }

    /// What holds between any two steps, whatever faulty replicas send (spec §18, "R").
    fn check_invariants(&self) {
        // RC-11a.
        debug_assert_eq!(self.lives.void, self.view_is_void());
        // I6.
        assert!(self.log.stable() <= self.log.low());
        assert!(self.exec.executed <= self.exec.handed_over);
        assert!(self.exec.handed_over <= self.log.high().max(self.exec.base));
        assert!(self.transfer.is_active() || self.log.stable() <= self.exec.handed_over);
        // Above the window only by a transfer, whose checkpoint is not known to be stable yet.
        assert!(self.exec.executed <= self.log.high().max(self.exec.base));
        // I8. What a NEW-VIEW fixed above the window waits there until the water marks rise (spec §11.8).
        let bound = self.log.high().max(self.views.last_fixed).max(self.log.low());
        assert!(self.batcher.assigned <= bound || !self.is_primary());
        // I20.
        assert!(self.own_votes.len() <= 4 * usize::try_from(self.config.window).unwrap_or(usize::MAX));
    }
}
