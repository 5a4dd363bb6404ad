//! Executes batches in order, each request once, and cuts checkpoints of what comes out.

use alloc::vec::Vec;

use quorate_wire::batch::Ordered;
use quorate_wire::digest::Domains;
use quorate_wire::life::Lives;
use quorate_wire::message::RESULT_BYTES_MAX;
use quorate_wire::reply::{Reply, ReplyOutcome};
use quorate_wire::{Batch, ClientId, Digest, ReplicaId, Replies, SeqNum, Timestamp};

use crate::lives;
use crate::options::Options;
use crate::page::{Memory, PageFault, PageStore, Pool};
use crate::registry::{self, Registry, Table};
use crate::replies::{Lane, Lanes};
use crate::service::{Context, Service};
use crate::state::State;
use crate::state::arrival::Arrivals;
use crate::state::tree::Tree;
use crate::state::view::View;
use crate::stop::Stop;
use crate::transfer::Transfer;

pub use ready::ServicePart;
pub(crate) use ready::{Ran, Ready};

/// The reply that the state holds for a client's last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cached<'a> {
    /// The request's number.
    pub timestamp: Timestamp,
    /// Digest over (client, timestamp, request, result).
    pub digest: Digest,
    /// The result, unless only its digest is kept.
    pub result: Option<&'a [u8]>,
}

/// Executes batches for one replica: the state, the replies inside it, its checkpoints and the walk of
/// a state transfer.
///
/// The caller's duties, each asserted: batches come in order and without gaps (EX-1); at most one is
/// tentative, and it is merged or undone before the next (TE-1); a checkpoint is cut exactly after
/// its batch is merged (EX-4, I18); nothing is executed while state is being fetched (EX-5).
#[derive(Debug)]
pub struct Executor<S: Service, P: PageStore = Memory> {
    service: S,
    domains: Domains,
    options: Options,
    state: State<P>,
    lanes: Lanes,
    /// The client registry. None: every authenticated client may do anything.
    registry: Option<Registry>,
    /// The batch whose writes are not merged yet.
    tentative: Option<SeqNum>,
    /// The last batch merged.
    last_executed: SeqNum,
    /// The service's pages: the first and how many.
    service_pages: (u32, u32),
    /// Pages of the replies: the first and how many.
    reply_pages: (u32, u32),
    /// The result of the running operation.
    result: Vec<u8>,
    transfer: Transfer,
    /// The tables in memory could not be read from the state yet.
    is_stale: bool,
}

impl<S: Service> Executor<S> {
    /// Returns an executor with the initial state, which is checkpoint 0. The caller has checked
    /// `options`.
    pub fn new(service: S, domains: Domains, options: Options) -> Self {
        Self::with_store(service, domains, options, Memory::new())
    }
}

impl<S: Service, P: PageStore> Executor<S, P> {
    /// Returns an executor whose state is kept in `store`, which is empty. The caller has checked
    /// `options`.
    pub fn with_store(service: S, domains: Domains, options: Options, store: P) -> Self {
        assert_eq!(options.check(), Ok(()));
        let Some(layout) = options.layout() else { unreachable!("the options are checked") };
        let reply_pages = layout.pages();
        let tree = Tree::new(domains.clone(), options.pages_max);
        let pool = Pool::new(options.page_bytes, options.pool_pages_max);
        Self {
            service,
            state: State::new(store, tree, pool, options.checkpoints_max),
            domains,
            lanes: Lanes::new(layout, options.lanes_max),
            registry: None,
            tentative: None,
            last_executed: SeqNum(0),
            service_pages: (reply_pages, options.pages_max - reply_pages - lives::pages(options.page_bytes)),
            reply_pages: (0, reply_pages),
            result: Vec::new(),
            transfer: Transfer::new(options.first_rid),
            is_stale: false,
            options,
        }
    }

    /// Returns the service.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// Executes the next batch: `replies` becomes one reply for each of its requests, in order.
    ///
    /// A tentative batch goes into an overlay until [`Self::merge`] or [`Self::undo`] (TE-2).
    ///
    /// # Errors
    ///
    /// A page is not here: nothing has been done. Never with a store in memory.
    pub fn execute(
        &mut self,
        seq: SeqNum,
        batch: &Batch,
        tentative: bool,
        replies: &mut Replies,
    ) -> Result<(), PageFault> {
        assert!(!self.transfer.is_fetching(), "nothing is executed while state is being fetched (EX-5)");
        assert!(self.tentative.is_none(), "one batch at a time is tentative (TE-1)");
        assert_eq!(seq, self.last_executed.next(), "batches come in order (EX-1)");
        assert!(batch.is_complete(), "bodies are here before a batch is executed (SR-3)");
        replies.clear();
        self.read_tables()?;
        self.tentative = Some(seq);
        let time_ns = self.lanes.agree_on_time(batch.choice());
        for (index, request) in (0_u32..).zip(batch.requests()) {
            if let Err(fault) = self.execute_once(seq, index, time_ns, &request, None, replies) {
                self.undo(self.last_executed);
                replies.clear();
                return Err(fault);
            }
        }
        if !tentative {
            self.merge(seq);
        }
        Ok(())
    }

    /// Makes the tentative batch `seq` part of the state: it has committed.
    pub fn merge(&mut self, seq: SeqNum) {
        assert_eq!(self.tentative, Some(seq), "what is merged has been executed tentatively");
        self.state.merge();
        self.lanes.settle();
        if let Some(registry) = &mut self.registry {
            registry.settle();
        }
        self.tentative = None;
        self.last_executed = seq;
    }

    /// Drops the tentative batch, if there is one above `after`: its writes, its replies and its
    /// clients' timestamps go together (TE-4).
    pub fn undo(&mut self, after: SeqNum) {
        if self.tentative.is_some_and(|seq| seq > after) {
            self.state.drop_batch();
            self.lanes.forget();
            if let Some(registry) = &mut self.registry {
                mutant!(M106, registry.forget(), registry.settle());
            }
            self.tentative = None;
        }
    }

    /// Executes a read-only operation on the committed state, makes `out` its result and returns the
    /// reply's digest. The request is its client, its timestamp and its digest. None: it needs to be ordered (RO-1).
    pub fn read(
        &self,
        whose: (ClientId, Timestamp, &Digest),
        operation: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Digest> {
        self.read_at(self.time_ns(), whose, operation, out)
    }

    /// As [`Self::read`], with this agreed time, which may be that of a later batch (PX-8).
    pub fn read_at(
        &self,
        time_ns: u64,
        (client, timestamp, request): (ClientId, Timestamp, &Digest),
        operation: &[u8],
        out: &mut Vec<u8>,
    ) -> Option<Digest> {
        out.clear();
        let reads_table = operation == Table::read() && self.registry.is_some();
        if !reads_table && (operation.starts_with(&registry::MAGIC) || !self.service.is_read_only(operation))
        {
            return None;
        }
        if let Some(registry) = &self.registry
            && registry.committed_rights(client).is_none()
        {
            registry::RegistryResult::NoClient.encode(out);
            return Some(self.domains.reply(client.0, timestamp.0, request, out));
        }
        if reads_table {
            self.table().encode(out);
            return Some(self.domains.reply(client.0, timestamp.0, request, out));
        }
        let cx = Context { client, timestamp, seq: self.last_executed, index: 0, time_ns, read_only: true };
        let mut view = self.state.committed(self.service_pages);
        let done = self.service.execute(cx, operation, &mut view, out);
        let answered = matches!(done, Ok(()) | Err(Stop::Refused)) && out.len() <= RESULT_BYTES_MAX;
        answered.then(|| self.domains.reply(client.0, timestamp.0, request, out))
    }

    /// Returns the reply that the committed state holds for `client` (RP-2).
    ///
    /// # Errors
    ///
    /// A page of it cannot be read.
    pub fn cached(&mut self, client: ClientId) -> Result<Option<Cached<'_>>, PageFault> {
        let view = self.state.committed(self.reply_pages);
        let Some(lane) = fault(self.lanes.find(&view, client))?.flatten() else {
            let (released, _) = self.lanes.numbers(client);
            let lost = Cached { timestamp: released, digest: Digest::ZERO, result: None };
            return Ok((released.0 > 0).then_some(lost));
        };
        self.result.clear();
        let kept = fault(self.lanes.result(&view, &lane, &mut self.result))?.unwrap_or(false);
        let result = kept.then_some(&self.result[..]);
        Ok(Some(Cached { timestamp: lane.timestamp, digest: lane.digest, result }))
    }

    /// Returns the last agreed time of the committed state.
    pub fn time_ns(&self) -> u64 {
        self.lanes.time_ns()
    }

    /// Returns the last batch that the committed state reflects.
    pub fn last_executed(&self) -> SeqNum {
        self.last_executed
    }

    /// Returns the tentative batch, if there is one.
    pub fn tentative(&self) -> Option<SeqNum> {
        self.tentative
    }

    /// Replaces `clients` by the last executed timestamp of each client lane, in no order.
    pub fn clients(&self, clients: &mut Vec<(ClientId, Timestamp)>) {
        clients.clear();
        self.lanes.for_each(self.state.store(), |lane| clients.push((lane.client, lane.timestamp)));
    }

    /// Cuts the checkpoint after `seq`, the last batch executed, and returns its root (CK-1).
    pub fn checkpoint(&mut self, seq: SeqNum) -> Digest {
        assert!(!self.transfer.is_fetching(), "nothing is cut while state is being fetched (EX-5)");
        assert!(self.tentative.is_none(), "a checkpoint covers nothing uncommitted (I18)");
        assert!(self.state.is_settled(), "a checkpoint covers nothing uncommitted (I18)");
        assert_eq!(seq, self.last_executed, "a checkpoint is cut exactly after its batch (EX-4)");
        if let Some(root) = self.state.root_at(seq) {
            return root;
        }
        self.transfer.keep(Arrivals::new()); // it goes on without a transfer
        self.state.cut(seq)
    }

    /// Forgets the checkpoints before `below`, but never the newest, nor one that a transfer builds on, nor one that
    /// another replica is fetching: under load checkpoints come faster than the parts of one can be asked for. All of that
    /// up to `checkpoints_max` of them.
    pub fn discard(&mut self, now_ns: u64, below: SeqNum) {
        let (held, pages) = (self.state.checkpoints().map(|(seq, _)| seq), self.state.pages_of_checkpoints());
        let below = self.transfer.needs(now_ns, below, held, pages);
        self.state.discard(below);
    }

    /// Returns the root of checkpoint `seq`, if it is held.
    pub fn root_at(&self, seq: SeqNum) -> Option<Digest> {
        self.state.root_at(seq)
    }

    /// Returns the size of a page of the state, in bytes.
    pub fn page_bytes(&self) -> usize {
        self.state.page_bytes()
    }

    /// Returns the checkpoints held, oldest first.
    pub fn checkpoints(&self) -> impl Iterator<Item = (SeqNum, Digest)> + '_ {
        self.state.checkpoints()
    }

    /// Recomputes the root of the newest checkpoint from all its pages, for comparison with the
    /// one kept up to date (I17).
    pub fn recompute(&self) -> Digest {
        self.state.recompute(self.domains.clone(), self.options.pages_max)
    }

    /// Returns the committed state of the service, to be looked at: for those who check it.
    pub fn view(&self) -> View<'_> {
        self.state.committed(self.service_pages)
    }

    /// Flips one bit of a written page behind the back of the digests, as failing memory would: for
    /// simulators (B21). Returns whether there was a page.
    pub fn damage(&mut self, choice: u64) -> bool {
        self.state.damage(choice)
    }

    /// Returns how many pages a disk had that were not the state.
    pub fn pages_kept(&self) -> usize {
        self.transfer.pages_kept()
    }

    /// Makes a new state, the one of checkpoint `seq`, the current one (ST-6). What was known of
    /// clients goes with the old one (B12).
    fn adopt(&mut self, seq: SeqNum) {
        self.undo(SeqNum(0));
        self.last_executed = seq;
        self.is_stale = mutant!(M109, true, false);
        // If a page cannot be read now, [`Self::tables`] says so.
        let _ = self.read_tables();
    }

    /// Reads the tables of a state that a transfer has brought, and returns the lives in it (RC-11).
    ///
    /// # Errors
    ///
    /// A page of them cannot be read. [Repair](Self::repair) it, and call this again.
    pub fn tables(&mut self) -> Result<Vec<(ReplicaId, Lives)>, PageFault> {
        self.read_tables()?;
        self.read_lives()
    }

    /// Reads what is kept in memory of clients from the state, unless that was done.
    fn read_tables(&mut self) -> Result<(), PageFault> {
        if self.is_stale {
            self.lanes.rebuild(self.state.store())?;
            let (page_bytes, pages) = (self.options.page_bytes, self.registry_pages());
            if let Some(registry) = &mut self.registry {
                registry.rebuild(self.state.store(), page_bytes, pages)?;
            }
            self.is_stale = false;
        }
        Ok(())
    }

    /// Decides whether a request runs, and runs it: exactly once, in order (EX-2).
    fn execute_once(
        &mut self,
        seq: SeqNum,
        index: u32,
        time_ns: u64,
        request: &Ordered<'_>,
        ready: Option<&mut Ready<'_>>,
        replies: &mut Replies,
    ) -> Result<(), PageFault> {
        let &Ordered { client, timestamp, replier, .. } = request;
        let view = self.state.view(self.reply_pages);
        let reached = fault(self.lanes.reached(&view, client))?.flatten();
        let is_next = reached.is_some_and(|reached| timestamp > reached)
            && Self::is_possible(client, timestamp, time_ns);
        let unrun = if is_next { None } else { self.look_closer(time_ns, request)? };
        let (outcome, digest, is_kept) = if let Some(unrun) = unrun {
            unrun
        } else {
            let cx = Context { client, timestamp, seq, index, time_ns, read_only: false };
            self.run(cx, request.operation, ready)?;
            let digest = self.domains.reply(client.0, timestamp.0, &request.digest, &self.result);
            let mut view = self.state.view(self.reply_pages);
            fault(self.lanes.record(&mut view, (client, timestamp), time_ns, digest, &self.result))?;
            (ReplyOutcome::Executed, digest, true)
        };
        let result = is_kept.then_some(&self.result[..]);
        replies.push(Reply { client, timestamp, digest, replier, outcome, result });
        Ok(())
    }

    /// Decides about a request that is not simply the next one of a known lane. Returns what has become of it if it does
    /// not run, with the digest of the reply, and whether `result` is the result.
    #[cold]
    fn look_closer(
        &mut self,
        time_ns: u64,
        request: &Ordered<'_>,
    ) -> Result<Option<(ReplyOutcome, Digest, bool)>, PageFault> {
        let &Ordered { client, timestamp, .. } = request;
        let nothing = (ReplyOutcome::Superseded, Digest::ZERO, false);
        if !Self::is_possible(client, timestamp, time_ns) {
            return Ok(Some(nothing));
        }
        if let Some(lane) = &self.lane(client)? {
            if timestamp < lane.timestamp {
                return Ok(Some(nothing));
            }
            if timestamp == lane.timestamp && mutant!(M75, true, false) {
                return Ok(Some((ReplyOutcome::Repeated, lane.digest, self.repeat(lane)?)));
            }
            return Ok(None);
        }
        let Some(refusal) = self.refusal(client, timestamp, time_ns)? else { return Ok(None) };
        self.result.clear();
        Ok(Some(match refusal {
            ReplyOutcome::Refused => {
                registry::RegistryResult::NoLane.encode(&mut self.result);
                let digest = self.domains.reply(client.0, timestamp.0, &request.digest, &self.result);
                (refusal, digest, true)
            }
            ReplyOutcome::Overtaken => {
                let (released, _) = self.lanes.numbers(client);
                self.result.extend_from_slice(&released.0.to_le_bytes());
                (refusal, Digest::ZERO, true)
            }
            ReplyOutcome::Executed | ReplyOutcome::Repeated | ReplyOutcome::Superseded => nothing,
        }))
    }

    /// Executes an operation into the overlay; `result` becomes its result. If it is refused, nothing
    /// stays but the result.
    #[inline]
    fn run(&mut self, cx: Context, operation: &[u8], ready: Option<&mut Ready<'_>>) -> Result<(), PageFault> {
        self.state.begin();
        self.result.clear();
        if let Some(replica) = cx.client.replica() {
            return self.open_life(replica, cx, operation);
        }
        if let Some(answer) = self.govern(cx.client, operation)? {
            answer.encode(&mut self.result);
            return Ok(());
        }
        let is_stored = ready.as_ref().is_some_and(|ready| ready.is_stored());
        if let Some(ready) = ready
            && ready.apply(cx, &self.service, (&mut self.state, self.service_pages), &mut self.result)?
        {
            return Ok(());
        }
        let mut view = self.state.view(self.service_pages);
        match self.service.execute(cx, operation, &mut view, &mut self.result) {
            Ok(()) if self.result.len() <= RESULT_BYTES_MAX => {
                if plant!(36, !is_stored, true) {
                    self.service.store(cx, operation);
                }
                return Ok(());
            }
            Err(Stop::Fault(fault)) => return Err(fault),
            Err(Stop::Refused) if self.result.len() <= RESULT_BYTES_MAX => {}
            // A result that no reply has room for, or an answer that a service must not give here: the
            // operation is refused without a word, at every replica alike.
            Ok(()) | Err(Stop::Refused | Stop::NeedsOrder | Stop::Corrupt) => self.result.clear(),
        }
        self.state.roll_back();
        Ok(())
    }

    /// Returns a client's lane as the running batch sees it.
    fn lane(&mut self, client: ClientId) -> Result<Option<Lane>, PageFault> {
        let view = self.state.view(self.reply_pages);
        Ok(fault(self.lanes.find(&view, client))?.flatten())
    }

    /// Makes `result` the cached one of a lane as the running batch sees it. Returns whether it is kept.
    fn repeat(&mut self, lane: &Lane) -> Result<bool, PageFault> {
        self.result.clear();
        let view = self.state.view(self.reply_pages);
        Ok(fault(self.lanes.result(&view, lane, &mut self.result))?.unwrap_or(false))
    }
}

/// Separates a page that is not here, which the driver brings, from a page that is not what it should
/// be, which the next checkpoint shows (CK-6): then there is nothing to say.
#[inline]
fn fault<T>(result: Result<T, Stop>) -> Result<Option<T>, PageFault> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Stop::Fault(fault)) => Err(fault),
        Err(Stop::Refused | Stop::NeedsOrder | Stop::Corrupt) => Ok(None),
    }
}

mod admit;
mod govern;
mod image;
#[cfg(test)]
mod model;
mod ready;
#[cfg(test)]
mod recoveries;
pub(crate) mod settle;
#[cfg(test)]
mod shares;
#[cfg(test)]
mod tests;
mod transfer;
