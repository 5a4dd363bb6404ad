//! The replica: its parts, and the dispatch of inputs to the files that handle them.
//!
//! Handlers are in the child modules. They change parts by the verbs of those, and use each other only by the verbs of
//! this table. `cargo xtask tidy` compares it with the code.
//!
//! | Verb | File | What it does |
//! |---|---|---|
//! | `recheck_proposals` | `authentic` | looks again at proposals with requests that were not authentic |
//! | `judge_checkpoints` | `checkpoint` | decides that for all own checkpoints above the stable one |
//! | `make_stable` | `checkpoint` | moves the low water mark |
//! | `adopt_rest_of_new_view` | `enter_view` | votes for numbers of the NEW-VIEW that the window admits by now |
//! | `enter_view` | `enter_view` | enters the view of a NEW-VIEW |
//! | `hand_over` | `execute` | gives a committed batch to the executor |
//! | `serve_reads` | `read` | serves the reads that wait, where that is allowed |
//! | `on_read_request` | `read` | takes a read-only request |
//! | `try_execute` | `execute` | gives batches to the executor as far as the log allows |
//! | `undo_tentative` | `execute` | drops the tentative execution |
//! | `recheck_hungry` | `fetch_bodies` | looks again at proposals that miss bodies |
//! | `want_batches` | `fetch_bodies` | asks for batches until they come |
//! | `judge_view` | `lives` | decides again whether this replica may vote in its view |
//! | `examine_new_views` | `new_view` | checks the NEW-VIEWs at hand |
//! | `own_proof` | `new_view` | makes this replica's PROOF of a claim |
//! | `try_new_view` | `new_view` | makes a NEW-VIEW, if that is possible |
//! | `advance` | `normal` | takes the steps that the log allows at one number |
//! | `record_vote` | `normal` | records a pre-prepare or prepare, and counts it once it is durable |
//! | `propose` | `propose` | notes that waiting requests may be proposed, at the end of the burst |
//! | `propose_null` | `propose` | proposes a null batch, if that is allowed |
//! | `look_at_rejoin` | `rejoin` | ends the rejoin, if that is possible |
//! | `start_rejoin` | `rejoin` | starts over without the earlier state |
//! | `watch_recoveries` | `rejoin` | runs the timer for null batches while a recovery needs it |
//! | `watch_relays` | `request` | runs the timer for requests that no request timer covers |
//! | `watch_requests` | `request_timer` | runs the request timer while something waits for the primary |
//! | `look_after_transfer` | `transfer` | fetches state, if batches do not reach the goal |
//! | `note_certified` | `transfer` | makes the highest certified checkpoint the goal |
//! | `set_goal` | `transfer` | makes a certified checkpoint the goal |
//! | `start_transfer` | `transfer` | fetches a checkpoint |
//! | `follow_kept` | `view_change` | leaves a view that it has come to, if what it has kept ends it |
//! | `on_view_changes_grown` | `view_change` | looks again at the VIEW-CHANGEs for this view |
//! | `stop_normal_operation` | `view_change` | ends normal operation |
//! | `suspect` | `view_change` | tells all that this replica wishes to leave its view |

mod answer_bodies;
mod authentic;
pub(crate) mod card;
mod checkpoint;
mod enter_view;
mod execute;
mod fetch_bodies;
mod lives;
mod new_view;
mod normal;
mod propose;
mod read;
mod rejoin;
mod request;
mod request_timer;
mod restart;
mod starts;
mod status;
mod transfer;
mod view_change;

use alloc::vec::Vec;

use quorate_wire::digest::Domains;
use quorate_wire::id::{Principal, ReplicaId, ViewNum};
use quorate_wire::message::Message;
use quorate_wire::sign::Signer;
use quorate_wire::{Cluster, Digest, Verified};

use crate::checkpoint::checkpoints::Checkpoints;
use crate::checkpoint::target::Target;
use crate::execution::progress::Execution;
use crate::execution::reads::Reads;
use crate::io::config::{Config, ConfigError};
use crate::io::resume::Resume;
use crate::io::rng::Rng;
use crate::io::step::{Action, Actions, Deadline, Input, Lsn, Now, Reject, Timer};
use crate::order::archive::Archive;
use crate::order::batcher::Batcher;
use crate::order::bodies::Bodies;
use crate::order::log::Log;
use crate::order::lookup::Lookup;
use crate::order::piggyback::Piggyback;
use crate::order::promises::Promises;
use crate::recovery::lives::LivesKnown;
use crate::recovery::phase::Recovery;
use crate::requests::table::RequestTable;
use crate::requests::watch::Watch;
use crate::status::peers::Peers;
use crate::view::evidence::ViewEvidence;
use crate::view::views::Views;

/// A replica of the service: a value with one method, [`Replica::step`].
#[derive(Debug)]
pub struct Replica {
    id: ReplicaId,
    config: Config,
    cluster: Cluster,
    domains: Domains,
    null_digest: Digest,
    /// The front of the digest of the settings that all replicas must have alike.
    settings: u64,
    signer: Signer,
    rng: Rng,
    log: Log,
    clients: RequestTable,
    batcher: Batcher,
    bodies: Bodies,
    lookup: Lookup,
    archive: Archive,
    exec: Execution,
    reads: Reads,
    checkpoints: Checkpoints,
    target: Target,
    views: Views,
    evidence: ViewEvidence,
    peers: Peers,
    recovery: Recovery,
    lives: LivesKnown,
    watch: Watch,
    piggyback: Piggyback,
    promises: Promises,
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
            log: Log::new(config.window, cluster),
            clients: RequestTable::new(config.clients_max, config.lanes_max, (cluster, id)),
            batcher: Batcher::new(config.window),
            bodies: Bodies::new(&config),
            lookup: Lookup::default(),
            archive: Archive::new(config.checkpoint_interval),
            exec: Execution::new(mutant!(M163, config.workers > 1, false)),
            reads: Reads::default(),
            checkpoints: Checkpoints::new(cluster),
            target: Target::default(),
            views: Views::new(&config),
            evidence: ViewEvidence::new(cluster.n()),
            peers: Peers::new(cluster, config.status_min_ns),
            recovery: Recovery::default(),
            lives: LivesKnown::default(),
            watch: Watch::new(&config),
            piggyback: Piggyback::default(),
            promises: Promises::new(config.durability, config.window),
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
            Input::Replied { seq, reply } => self.on_replied(seq, &reply, out),
            Input::Executed { seq, replies, took_ns } => {
                self.exec.note_took(seq, replies.len(), took_ns);
                self.on_executed(now, seq, replies, out);
            }
            Input::Read { ticket, result } => self.on_read(ticket, result, out),
            Input::Cached { client, reply } => self.on_cached(client, reply, out),
            Input::Checkpointed { seq, root } => self.on_checkpointed(now, seq, root, out),
            Input::Fetched { seq, root, clients, lives, time_ns } => {
                self.exec.note_time(time_ns);
                self.finish_transfer(now, (seq, *root), clients, lives, out);
            }
            Input::Durable(lsn) => self.on_durable(now, lsn, out),
            Input::Kept { seq } => self.on_kept(now, seq, out),
            Input::Unreadable { executed } => self.on_unreadable(now, executed, out),
            Input::BurstEnd => self.on_burst_end(now, out),
        }
        let records_wait = !self.promises.is_durable(self.promises.last());
        self.watch.note_records(records_wait, now.mono_ns);
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
            // SR-4: a body that an ordered batch names is needed whatever its authenticator says here.
            self.supply_body(now, request, out);
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
            Message::Status(m) => {
                self.on_start(now, from, m, out);
                self.on_status(now, from, m, out);
            }
            Message::ViewChange(m) => self.on_view_change(now, m, out),
            Message::NewView(m) => self.on_new_view(now, m, out),
            Message::Suspect(m) => self.on_suspect(now, from, m, out),
            Message::BodyFetch(m) => self.on_body_fetch(now, from, m, out),
            Message::Body(m) => {
                let is_taken = self.take_vouched(now, m, out);
                // SR-4: a batch may need it as well, and needs it whether or not this replica has room for it (L127).
                if mutant!(M181, true, !is_taken) {
                    self.on_body(now, m, is_taken, out);
                }
            }
            Message::Committed(m) => self.on_committed(now, from, m, out),
            Message::ReqAck(m) => {
                self.on_req_ack(now, from, m, out);
                self.count_voucher(now, from, m, out);
            }
            Message::ReqReject(m) => self.on_req_reject(now, from, m, out),
            Message::VcFetch(m) => self.on_vc_fetch(now, from, m, out),
            Message::QueryStable(m) => self.on_query_stable(now, from, *m, out),
            Message::ReplyStable(m) => self.on_reply_stable(now, from, m, out),
            // The state transfer's own, which the driver hands to the executor; and those of the node itself.
            Message::Collect(_)
            | Message::MetaData(_)
            | Message::Data(_)
            | Message::Fetch(_)
            | Message::Probe(_)
            | Message::Statement(_) => out.reject(Reject::Unwanted),
        }
    }

    #[cold]
    fn on_timer(&mut self, now: Now, timer: Timer, out: &mut Actions) {
        match timer {
            Timer::Request => self.on_request_timer(now, out),
            Timer::NewView => self.on_new_view_timer(now, out),
            Timer::Status => self.on_status_timer(now, out),
            Timer::Flush => self.piggyback.flush(self.log.view(), out),
            Timer::BodyFetch => {
                let unproven = self.complain(now, out);
                self.on_body_timer(now, unproven.as_deref(), out);
            }
            Timer::Relay => self.on_relay_timer(now, out),
            Timer::Recovery => self.on_recovery_timer(now, out),
            Timer::NullBatch => self.on_null_batch_timer(now, out),
            Timer::Pause => self.propose(),
        }
    }

    /// Returns the replica's id.
    pub fn id(&self) -> ReplicaId {
        self.id
    }

    /// Returns the current view.
    pub fn view(&self) -> ViewNum {
        self.views.view()
    }

    /// Returns what this replica takes for the lives of the others, as of what it has executed (RC-11).
    pub fn lives(&self) -> Option<&crate::recovery::lives::Table> {
        self.lives.newest_known()
    }

    /// Returns whether this replica is the primary of its view.
    pub fn is_primary(&self) -> bool {
        self.primary() == self.id
    }

    /// Returns the primary of the current view.
    fn primary(&self) -> ReplicaId {
        self.views.primary()
    }

    /// Returns whether this replica takes part in its view.
    fn is_normal(&self) -> bool {
        self.views.is_normal()
    }

    fn on_durable(&mut self, now: Now, lsn: Lsn, out: &mut Actions) {
        self.watch.note_durable(now.mono_ns);
        self.promises.reached(lsn);
        while let Some(vote) = self.promises.next_durable() {
            self.count_own_vote(&vote);
            self.advance(now, vote.seq, out);
        }
    }

    /// Starts a timer.
    fn set_timer(out: &mut Actions, timer: Timer, at: u64) {
        out.push(Action::SetTimer(timer, Deadline(at)));
    }

    /// What holds between any two steps, whatever faulty replicas send (spec §18, "R").
    fn check_invariants(&self) {
        // RC-11a.
        debug_assert_eq!(self.lives.is_void(), self.view_is_void());
        // I6.
        assert!(self.log.stable() <= self.log.low());
        self.exec.check(self.log.high());
        assert!(self.target.is_active() || self.log.stable() <= self.exec.handed_over());
        // I8. What a NEW-VIEW fixed above the window waits there until the water marks rise (spec §11.8).
        let bound = self.log.high().max(self.views.last_fixed()).max(self.log.low());
        assert!(self.batcher.assigned() <= bound || !self.is_primary());
    }
}
