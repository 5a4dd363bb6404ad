//! The execution queue: the work of an executor, in the order in which agreement asked for it (EX-1).
//!
//! Agreement asks for work while it handles an input, and the work is done after that. The queue does not do the work:
//! its owner takes the next task, uses the executor, and passes the result to agreement.
//!
//! A task that cannot be done parks the queue: a page that its batch needs cannot be read. The tasks behind it wait.
//! There are two exceptions, because neither needs the current state. A check, such as that of a signature, is done while the queue waits.
//! A fetch replaces the state: the tasks before it are dropped, and the queue keeps what agreement still expects of them.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::{Batch, Body, ClientId, Digest, SeqNum};

/// Work for an executor. `C` is a check that needs no state.
#[derive(Clone, Debug)]
pub enum Task<C> {
    /// Execute a batch.
    Execute {
        /// The number of the batch.
        seq: SeqNum,
        /// The batch, with all bodies.
        batch: Arc<Batch>,
        /// Whether the batch has not committed yet (TE-2).
        tentative: bool,
    },
    /// Make the tentative batch final.
    Merge(SeqNum),
    /// Drop the tentative batch if it is above this number.
    Undo(SeqNum),
    /// Execute a read-only request.
    Read {
        /// The caller's name for the result.
        ticket: u64,
        /// The request.
        request: Body,
    },
    /// Look up the cached reply of a client.
    Resend(ClientId),
    /// Cut a checkpoint.
    Checkpoint(SeqNum),
    /// Forget the checkpoints below the stable one.
    Discard(SeqNum),
    /// Bring the state to a checkpoint.
    Fetch {
        /// The number of the checkpoint.
        seq: SeqNum,
        /// Its root.
        root: Digest,
        /// Whether to digest the present pages again (CK-6).
        check: bool,
    },
    /// Perform a check.
    Check(C),
}

impl<C> Task<C> {
    /// Returns whether the task runs code of the service, which may take long.
    pub fn is_long(&self) -> bool {
        matches!(self, Self::Execute { .. } | Self::Read { .. })
    }

    /// Returns whether the task needs no current state.
    fn is_ahead(&self) -> bool {
        matches!(self, Self::Check(_) | Self::Fetch { .. })
    }
}

/// A result that agreement expects of a dropped task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The replies of this batch.
    Batch(SeqNum),
    /// The result of the read with this ticket.
    Read(u64),
}

/// Tasks in order. Bounded by what agreement asks for: a window of batches, and the reads of its clients.
#[derive(Debug)]
pub struct Queue<C> {
    tasks: VecDeque<Task<C>>,
    /// The first task cannot be done for now.
    is_parked: bool,
    unanswered: Vec<Unanswered>,
}

impl<C> Default for Queue<C> {
    fn default() -> Self {
        Self { tasks: VecDeque::new(), is_parked: false, unanswered: Vec::new() }
    }
}

impl<C> Queue<C> {
    /// Appends a task.
    #[inline]
    pub fn push(&mut self, task: Task<C>) {
        self.tasks.push_back(task);
    }

    /// Puts a task before the others.
    pub fn push_first(&mut self, task: Task<C>) {
        self.tasks.push_front(task);
    }

    /// Returns whether there is no task.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Returns the first task.
    #[inline]
    pub fn first(&self) -> Option<&Task<C>> {
        self.tasks.front()
    }

    /// Takes the first task, unless the queue is parked.
    #[inline]
    pub fn take(&mut self) -> Option<Task<C>> {
        if self.is_parked { None } else { self.tasks.pop_front() }
    }

    /// Forgets fetches of states up to this batch: since they were put here, execution has reached them (L66). A task that was
    /// parked is tried again.
    #[cold]
    pub fn forget_past(&mut self, executed: SeqNum) {
        let count = self.tasks.len();
        let is_past =
            |task: &Task<C>| matches!(task, Task::Fetch { seq, check: false, .. } if *seq <= executed);
        self.tasks.retain(|task| !is_past(task));
        self.is_parked &= self.tasks.len() == count;
    }

    /// Takes the first task that can be done while the others wait: a check; or a fetch, which drops the tasks before it.
    #[cold]
    pub fn take_ahead(&mut self) -> Option<Task<C>> {
        let index = self.tasks.iter().position(Task::is_ahead)?;
        if let Some(Task::Fetch { .. }) = self.tasks.get(index) {
            self.drop_first(index);
            self.is_parked = false;
            return self.tasks.pop_front();
        }
        self.tasks.remove(index)
    }

    /// Returns whether there is a task that can be done while the others wait.
    pub fn has_ahead(&self) -> bool {
        self.tasks.iter().any(Task::is_ahead)
    }

    /// Puts back a task that cannot be done for now. The queue is parked until [`Self::resume`].
    #[cold]
    pub fn park(&mut self, task: Task<C>) {
        self.tasks.push_front(task);
        self.is_parked = true;
    }

    /// Ends the parking. If a fetch waits, it does not end: the tasks before the fetch are to be dropped, and must not
    /// bring the state beyond what is fetched.
    pub fn resume(&mut self) {
        self.is_parked &= self.tasks.iter().any(|task| matches!(task, Task::Fetch { .. }));
    }

    /// Returns whether the queue is parked.
    #[inline]
    pub fn is_parked(&self) -> bool {
        self.is_parked
    }

    /// Notes results that agreement expects of tasks that were taken and then dropped. They come before those of tasks that
    /// are still here.
    pub fn owe(&mut self, unanswered: impl IntoIterator<Item = Unanswered>) {
        self.unanswered.splice(0..0, unanswered);
    }

    /// Takes the results that agreement expects of dropped tasks, in the order of the tasks.
    pub fn take_unanswered(&mut self) -> Vec<Unanswered> {
        core::mem::take(&mut self.unanswered)
    }

    fn drop_first(&mut self, count: usize) {
        for task in self.tasks.drain(..count) {
            match task {
                Task::Execute { seq, .. } => self.unanswered.push(Unanswered::Batch(seq)),
                Task::Read { ticket, .. } => self.unanswered.push(Unanswered::Read(ticket)),
                Task::Merge(_)
                | Task::Undo(_)
                | Task::Resend(_)
                | Task::Checkpoint(_)
                | Task::Discard(_)
                | Task::Fetch { .. }
                | Task::Check(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use quorate_wire::Timestamp;
    use quorate_wire::batch::StoredRequest;
    use quorate_wire::message::{Proof, Request, RequestFlags};

    use super::*;

    fn execute(seq: u64) -> Task<u8> {
        Task::Execute { seq: SeqNum(seq), batch: Arc::new(Batch::default()), tentative: false }
    }

    fn name(task: Option<Task<u8>>) -> Option<(char, u64)> {
        Some(match task? {
            Task::Execute { seq, .. } => ('x', seq.0),
            Task::Merge(seq) => ('m', seq.0),
            Task::Undo(seq) => ('u', seq.0),
            Task::Read { ticket, .. } => ('r', ticket),
            Task::Resend(client) => ('s', client.0),
            Task::Checkpoint(seq) => ('c', seq.0),
            Task::Discard(seq) => ('d', seq.0),
            Task::Fetch { seq, .. } => ('f', seq.0),
            Task::Check(number) => ('k', u64::from(number)),
        })
    }

    fn read(ticket: u64) -> Task<u8> {
        let request = Request {
            client: ClientId::new(1, 0),
            timestamp: Timestamp(ticket),
            digest: Digest::ZERO,
            flags: RequestFlags::default(),
            replier: None,
            operation: b"get x",
            operation_at: 0,
            frame: b"get x",
            proof: Proof::Mac,
        };
        Task::Read { ticket, request: Arc::new(StoredRequest::new(&request)) }
    }

    fn fetch(seq: u64) -> Task<u8> {
        Task::Fetch { seq: SeqNum(seq), root: Digest::ZERO, check: false }
    }

    /// A parked queue keeps its order. Checks are done during that time, each once.
    #[test]
    fn a_parked_queue_keeps_its_order_and_checks_go_ahead() {
        let mut queue = Queue::default();
        for task in [execute(1), Task::Check(7), execute(2), Task::Check(8)] {
            queue.push(task);
        }
        let first = queue.take().unwrap();
        queue.park(first);
        assert_eq!(name(queue.take()), None);
        assert_eq!(name(queue.take_ahead()), Some(('k', 7)));
        assert_eq!(name(queue.take_ahead()), Some(('k', 8)));
        assert_eq!(name(queue.take_ahead()), None);
        assert!(queue.is_parked() && !queue.is_empty());
        queue.resume();
        assert_eq!(name(queue.take()), Some(('x', 1)));
        assert_eq!(name(queue.take()), Some(('x', 2)));
        assert_eq!(name(queue.take()), None);
        assert_eq!(queue.take_unanswered(), []);
    }

    /// EX-5: the page comes while the fetch still waits for its turn. What was to be dropped is not done any more.
    #[test]
    fn a_page_that_comes_late_does_not_overtake_a_fetch() {
        let mut queue = Queue::default();
        for task in [execute(1), execute(2), fetch(2)] {
            queue.push(task);
        }
        let first = queue.take().unwrap();
        queue.park(first);
        queue.resume();
        assert_eq!(name(queue.take()), None);
        assert_eq!(name(queue.take_ahead()), Some(('f', 2)));
        assert_eq!(queue.take_unanswered(), [Unanswered::Batch(SeqNum(1)), Unanswered::Batch(SeqNum(2))]);
    }

    /// EX-5: a fetch of a parked queue replaces the tasks before it, and agreement still gets their answers.
    #[test]
    fn a_fetch_replaces_the_tasks_before_it() {
        let mut queue = Queue::default();
        for task in [execute(1), Task::Merge(SeqNum(1)), read(5), fetch(9), read(6)] {
            queue.push(task);
        }
        let first = queue.take().unwrap();
        queue.park(first);
        assert_eq!(name(queue.take_ahead()), Some(('f', 9)));
        assert!(!queue.is_parked());
        assert_eq!(queue.take_unanswered(), [Unanswered::Batch(SeqNum(1)), Unanswered::Read(5)]);
        assert_eq!(queue.take_unanswered(), []);
        assert_eq!(name(queue.take()), Some(('r', 6)));
    }
}
