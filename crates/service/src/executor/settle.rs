//! Requests that ran ahead on cells settle on pages, one after the other in the agreed order (PX-B).

use alloc::vec::Vec;

use quorate_wire::batch::Ordered;
use quorate_wire::{ClientId, Digest, Replies, SeqNum, Timestamp};

use super::Executor;
use super::ready::{Ran, Ready, ServicePart};
use crate::page::{PageFault, PageStore};
use crate::registry::Rights;
use crate::replies::LanesMark;
use crate::service::{Access, Context, Effort, Service};
use crate::state::btree::{Tree, Value};
use crate::state::cell::{Below, Cell, CellRun};
use crate::state::elsewhere::{Answered, Asked, CellContent};
use crate::state::space::Space;
use crate::state::view::View;
use crate::stop::Stop;

/// Begins to settle the next batch and returns its agreed time.
pub(crate) fn open_batch<S: Service, P: PageStore>(
    executor: &mut Executor<S, P>,
    seq: SeqNum,
    choice: &[u8],
) -> Result<u64, PageFault> {
    assert!(!executor.transfer.is_fetching(), "nothing is executed while state is being fetched (EX-5)");
    assert!(executor.tentative.is_none(), "one batch at a time is open");
    assert_eq!(seq, executor.last_executed.next(), "batches come in order (EX-1)");
    executor.read_tables()?;
    executor.tentative = Some(seq);
    executor.state.set_tracing(true);
    Ok(executor.lanes.agree_on_time(choice))
}

/// Ends the open batch, all of whose requests have settled.
pub(crate) fn close_batch<S: Service, P: PageStore>(executor: &mut Executor<S, P>, seq: SeqNum) {
    executor.state.set_tracing(false);
    executor.merge(seq);
}

/// Gives the open batch up, if there is one.
pub(crate) fn abandon_batch<S: Service, P: PageStore>(executor: &mut Executor<S, P>) {
    executor.state.set_tracing(false);
    executor.undo(executor.last_executed);
}

/// What a request that settled has done.
#[derive(Debug)]
pub(crate) struct Written {
    /// The cells that it wrote.
    pub(crate) cells: Vec<Cell>,
    /// It has removed lanes from the client table.
    pub(crate) has_released: bool,
}

/// Settles the next request of the open batch, as sequential execution would (PX-3).
pub(crate) fn settle<S: Service, P: PageStore>(
    executor: &mut Executor<S, P>,
    (seq, index, time_ns): (SeqNum, u32, u64),
    request: &Ordered<'_>,
    ready: Option<&mut Ready<'_>>,
    replies: &mut Replies,
) -> Result<Written, PageFault> {
    executor.state.clear_trace();
    let lanes = executor.begin_request();
    if let Err(fault) = executor.execute_once(seq, index, time_ns, request, ready, replies) {
        executor.undo_request(lanes);
        return Err(fault);
    }
    executor.state.end_request();
    let (first, count) = executor.service_pages;
    let cells = executor.state.take_cells(&(first..first + count));
    Ok(Written { cells, has_released: executor.lanes.has_released(lanes) })
}

/// Returns the agreed time of the settled state.
///
/// # Errors
///
/// A page is not here.
pub(crate) fn known_time<S: Service, P: PageStore>(executor: &mut Executor<S, P>) -> Result<u64, PageFault> {
    executor.read_tables()?;
    Ok(executor.time_ns())
}

/// Returns the last settled timestamp of a client's lane. None: it has none, so that its next request changes the client
/// table.
///
/// # Errors
///
/// The page with it is not here.
pub(crate) fn lane_timestamp<S: Service, P: PageStore>(
    executor: &mut Executor<S, P>,
    client: ClientId,
) -> Result<Option<Timestamp>, PageFault> {
    executor.read_tables()?;
    Ok(executor.lane(client)?.map(|lane| lane.timestamp))
}

impl<S: Service, P: PageStore> Executor<S, P> {
    /// Begins a request of the open batch. Returns the lanes as they were before it.
    fn begin_request(&mut self) -> LanesMark {
        self.state.begin_request();
        if let Some(registry) = &mut self.registry {
            registry.begin_request();
        }
        self.lanes.mark()
    }

    /// Undoes the request: a page is not here. The requests of the batch that have settled before it stay. What is kept
    /// in memory of clients goes back with the pages: it can change before a page turns out to be away.
    fn undo_request(&mut self, lanes: LanesMark) {
        plant!(31, self.state.undo_request(), self.state.roll_back());
        plant!(32, self.lanes.go_back(lanes), ());
        if let Some(registry) = &mut self.registry {
            plant!(33, registry.undo_request(), ());
        }
    }

    /// Returns what the last request that settled was answered.
    pub(crate) fn last_result(&self) -> &[u8] {
        &self.result
    }

    /// Returns the digest of a reply: over client, timestamp, request and result.
    pub fn reply_digest(
        &self,
        (client, timestamp, request): (ClientId, Timestamp, &Digest),
        result: &[u8],
    ) -> Digest {
        self.domains.reply(client.0, timestamp.0, request, result)
    }

    /// Runs an operation on cells. None: it has to run on pages, when its turn comes.
    pub(crate) fn run_on_cells(&self, cx: Context, operation: &[u8], below: &dyn Below) -> Option<Ran> {
        let mut run = CellRun::default();
        let mut result = Vec::new();
        let mut view = self.state.on_cells(self.service_pages, below, &mut run);
        let done = self.service.execute(cx, operation, &mut view, &mut result);
        Ran::of(done, run, result)
    }

    /// Returns where the service's pages are, for runs on other threads.
    pub fn service_part(&self) -> ServicePart {
        ServicePart { page_bytes: self.state.page_bytes(), pages: self.service_pages }
    }

    /// Answers a run on another thread.
    pub(crate) fn answer(&self, asked: &Asked, below: &dyn Below) -> Answered {
        let mut run = CellRun::default();
        let view = self.state.on_cells(self.service_pages, below, &mut run);
        let found = find(&view, asked);
        Answered::new(found, run.take_reads(), run.has_failed())
    }

    /// Returns what of an operation is declared to take long.
    pub fn effort(&self, operation: &[u8]) -> Effort {
        let mut access = Access::new();
        self.service.access(operation, &mut access);
        access.effort()
    }

    /// Returns whether the client may execute an operation of the service now.
    pub(crate) fn may_execute(&self, client: ClientId, operation: &[u8]) -> bool {
        let Some(registry) = &self.registry else { return true };
        let Some(rights) = registry.rights(client) else { return false };
        rights >= Rights::Write || self.service.is_read_only(operation)
    }

    /// Returns how many pages the service has free, in the settled state; 0 if that is not known.
    pub(crate) fn room(&mut self) -> u64 {
        let view = self.state.view(self.service_pages);
        self.service.room(&view).map_or(0, u64::from)
    }

    /// Returns the most pages that an operation takes.
    pub(crate) fn cost(&self, operation: &[u8]) -> Option<u64> {
        self.service.cost(operation, self.state.page_bytes()).map(u64::from)
    }
}

/// Returns what a run on another thread asks for.
fn find(view: &View<'_>, asked: &Asked) -> Result<CellContent, Stop> {
    match asked {
        Asked::Key { tree, key } => {
            let tree = Tree::new(*tree, Space::new(view, (0, 0), 0));
            Ok(match tree.get(view, key)? {
                None => CellContent::Absent,
                Some(Value::Inline(bytes)) => CellContent::Bytes(bytes.to_vec()),
                Some(Value::Large(large)) => {
                    let (runs, len) = large.parts();
                    CellContent::Large(runs.to_vec(), len)
                }
            })
        }
        Asked::Page(page) => Ok(CellContent::Bytes(view.page(*page)?.to_vec())),
        Asked::Sum(page, at) => Ok(CellContent::Sum(view.known_sum(*page, *at)?)),
    }
}
