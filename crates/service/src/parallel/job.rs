//! What a driver of parallel runs hands to workers, gets back, says and counts.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use quorate_wire::{ClientId, Digest, SeqNum, Timestamp};

use crate::executor::{Ran, ServicePart};
use crate::parallel::parallelizer::Position;
use crate::service::{Context, Effort, Service};
use crate::state::cell::Cell;
use crate::state::elsewhere::{Answered, Asked, CellLink};

/// Work for one worker.
#[derive(Debug)]
pub struct Job {
    pub(super) ordinal: u64,
    pub(super) generation: u64,
    pub(super) cx: Context,
    pub(super) operation: Arc<[u8]>,
    pub(super) effort: Effort,
}

/// What a worker hands back.
#[derive(Debug)]
pub struct Done {
    pub(super) ordinal: u64,
    pub(super) generation: u64,
    pub(super) ran: Option<Ran>,
}

/// What a run on another thread asks of the state.
#[derive(Debug)]
pub struct Question {
    pub(super) ordinal: u64,
    pub(super) generation: u64,
    pub(super) asked: Asked,
}

/// The answer to a question.
#[derive(Debug)]
pub struct Answer(pub(super) Answered);

/// The way from a worker to the thread with the state.
pub trait Questions: core::fmt::Debug {
    /// Asks a question, and waits for the answer. None: there is no answer, and the run has become meaningless.
    fn ask(&self, question: Question) -> Option<Answer>;
}

#[derive(Debug)]
struct OfJob<'a> {
    job: &'a Job,
    questions: &'a dyn Questions,
}

impl CellLink for OfJob<'_> {
    fn ask(&self, asked: Asked) -> Option<Answered> {
        let Job { ordinal, generation, .. } = *self.job;
        self.questions.ask(Question { ordinal, generation, asked }).map(|answer| answer.0)
    }
}

impl Job {
    /// Runs the job on another thread than the one with the state.
    pub fn run<S: Service>(&self, service: &S, place: &ServicePart, questions: &dyn Questions) -> Done {
        let link = OfJob { job: self, questions };
        let ran = place.run(service, (self.cx, &self.operation), &link);
        let done = Done { ordinal: self.ordinal, generation: self.generation, ran };
        self.store(service, &done);
        done
    }

    /// Lets the service store the operation, if it has run and changes something (PX-H).
    pub fn store<S: Service>(&self, service: &S, done: &Done) {
        if done.ran.as_ref().is_some_and(Ran::is_to_store) {
            service.store(self.cx, &self.operation);
        }
    }

    /// Returns what of it takes long, as its service declares.
    pub fn effort(&self) -> Effort {
        self.effort
    }

    /// Returns what a worker hands back if the run panicked: the request runs on pages when its turn comes (PX-G).
    pub fn failed(&self) -> Done {
        Done { ordinal: self.ordinal, generation: self.generation, ran: None }
    }
}

/// A reply that may leave before its request settles (PX-C).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Early {
    /// The request.
    pub position: Position,
    /// The requesting client.
    pub client: ClientId,
    /// The client's number for the request.
    pub timestamp: Timestamp,
    /// Digest of the request.
    pub request: Digest,
    /// The replica that returns the whole result, if the client has named one.
    pub replier: Option<u16>,
    /// Its result.
    pub result: Vec<u8>,
}

/// A request, and what its service declares of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its place in the agreed order.
    pub position: Position,
    /// The requesting client.
    pub client: ClientId,
    /// The client's number for the request.
    pub timestamp: Timestamp,
    /// The keys that it is declared to use. None: it may touch anything.
    pub keys: Option<Vec<u64>>,
}

impl fmt::Display for Declared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, client, timestamp, keys } = self;
        write!(
            f,
            "request {} of batch {} ({client}, timestamp {}",
            position.index, position.seq.0, timestamp.0
        )?;
        match keys.as_deref() {
            None => write!(f, ", any key)"),
            Some([]) => write!(f, ", no key)"),
            Some(keys) => {
                let mut before = ", keys";
                for key in keys {
                    write!(f, "{before} {key:x}")?;
                    before = ",";
                }
                write!(f, ")")
            }
        }
    }
}

/// A request ran again with another result: it does depend on a request that the rules call independent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongRule {
    /// The request that ran again.
    pub request: Declared,
    /// The request that wrote what the first run did not see.
    pub other: Declared,
    /// What it wrote.
    pub cell: Cell,
    /// The first result of the request has been sent.
    pub has_replied: bool,
}

impl fmt::Display for WrongRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { request, other, cell, .. } = self;
        write!(f, "{request} depends on {other}: {cell}")
    }
}

/// What `Runs::settle` has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// A request is part of the state; its reply is the last one.
    Request(Position),
    /// All requests of a batch are.
    Batch(SeqNum),
}

/// What a driver counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Runs on cells that were finished.
    pub runs: u64,
    /// Requests that ran again when they settled.
    pub again: u64,
    /// Requests that ran on pages only.
    pub on_pages: u64,
    /// Replies that left early.
    pub early: u64,
    /// Runs on cells that were started.
    pub starts: u64,
    /// The runs that were under way when one was started, itself included: the sum of all starts.
    pub at_once: u64,
    /// The most runs that were under way at once.
    pub most: u64,
    /// Times that settling waited for a page that could not be read.
    pub parked: u64,
    /// Requests whose second result has shown a wrong rule.
    pub wrong_rules: u64,
    /// Reads that were executed while requests were unsettled to which a reply had left.
    pub reads_beside: u64,
    /// Reads that waited for such a request.
    pub reads_kept: u64,
}

impl Counters {
    /// Returns them after one more start, with which `under_way` runs are in progress.
    pub(super) fn with_start(self, under_way: u64) -> Self {
        Self {
            starts: self.starts + 1,
            at_once: self.at_once + under_way,
            most: self.most.max(under_way),
            ..self
        }
    }

    /// Returns the sums of these and other counts.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            runs: self.runs + other.runs,
            again: self.again + other.again,
            on_pages: self.on_pages + other.on_pages,
            early: self.early + other.early,
            starts: self.starts + other.starts,
            at_once: self.at_once + other.at_once,
            most: self.most.max(other.most),
            parked: self.parked + other.parked,
            wrong_rules: self.wrong_rules + other.wrong_rules,
            reads_beside: self.reads_beside + other.reads_beside,
            reads_kept: self.reads_kept + other.reads_kept,
        }
    }
}
