//! Requests that ran ahead on cells settle on pages, one after the other in the agreed order (PX-B).

use alloc::vec::Vec;

use quorate_wire::batch::Ordered;
use quorate_wire::message::RESULT_BYTES_MAX;
use quorate_wire::{ClientId, Digest, Replies, SeqNum, Timestamp};

use super::Executor;
use super::ready::{Ran, Ready};
use crate::page::{PageFault, PageStore};
use crate::registry::Rights;
use crate::service::{Context, Service};
use crate::state::cell::{Below, Cell, CellRun};
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

/// Settles the next request of the open batch, as sequential execution would (PX-3), and returns the cells that it
/// wrote.
pub(crate) fn settle<S: Service, P: PageStore>(
    executor: &mut Executor<S, P>,
    (seq, index, time_ns): (SeqNum, u32, u64),
    request: &Ordered<'_>,
    ready: Option<&mut Ready<'_>>,
    replies: &mut Replies,
) -> Result<Vec<Cell>, PageFault> {
    let _ = executor.state.take_trace();
    if let Err(fault) = executor.execute_once(seq, index, time_ns, request, ready, replies) {
        executor.state.roll_back();
        return Err(fault);
    }
    let trace = executor.state.take_trace();
    let (first, count) = executor.service_pages;
    let is_ours = |page: &u32| (first..first + count).contains(page);
    let mut pages: Vec<u32> = trace.pages.into_iter().filter(is_ours).collect();
    pages.sort_unstable();
    pages.dedup();
    let raw = trace.raw.iter().any(is_ours).then_some(Cell::Raw);
    Ok(pages.into_iter().map(Cell::Page).chain(raw).chain(trace.entries).collect())
}

/// Returns the last settled timestamp of a client's lane. None: it has none, so that its next request changes the client
/// table.
pub(crate) fn lane_timestamp<S: Service, P: PageStore>(
    executor: &mut Executor<S, P>,
    client: ClientId,
) -> Option<Timestamp> {
    executor.lane(client).ok().flatten().map(|lane| lane.timestamp)
}

impl<S: Service, P: PageStore> Executor<S, P> {
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
        // Anything else may come from a mixture of states (PX-G): the run on pages decides.
        if run.has_failed() || result.len() > RESULT_BYTES_MAX {
            return None;
        }
        match done {
            Ok(()) => {}
            Err(Stop::Refused) => run.refuse(),
            Err(Stop::Fault(_) | Stop::NeedsOrder | Stop::Corrupt) => return None,
        }
        Some(Ran { run, result })
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
