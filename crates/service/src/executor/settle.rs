//! Requests that ran ahead on cells settle on pages, one after the other in the agreed order (PX-B).

use alloc::vec::Vec;

use quorate_wire::batch::Ordered;
use quorate_wire::message::RESULT_BYTES_MAX;
use quorate_wire::{ClientId, Replies, SeqNum, Timestamp};

use super::Executor;
use crate::page::{PageFault, PageStore};
use crate::registry::Rights;
use crate::service::{Context, Service};
use crate::state::cells::{Below, Cell, CellRun, Change, Seen};
use crate::state::view::View;
use crate::stop::Stop;

/// A run on cells whose versions are still the same, and what has become of it.
#[derive(Debug)]
pub(crate) struct Ready<'a> {
    pub(crate) run: &'a CellRun,
    pub(crate) reads: &'a [(Cell, Seen)],
    /// None: the operation was refused, and only its result stays.
    pub(crate) result: &'a [u8],
    /// The log was applied. If not, the operation was executed on pages.
    pub(crate) is_applied: bool,
}

/// The result of a run on cells.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) run: CellRun,
    pub(crate) result: Vec<u8>,
}

impl<S: Service, P: PageStore> Executor<S, P> {
    /// Begins to settle the next batch and returns its agreed time.
    pub(crate) fn open_batch(&mut self, seq: SeqNum, choice: &[u8]) -> Result<u64, PageFault> {
        assert!(!self.transfer.is_fetching(), "nothing is executed while state is being fetched (EX-5)");
        assert!(self.tentative.is_none(), "one batch at a time is open");
        assert_eq!(seq, self.last_executed.next(), "batches come in order (EX-1)");
        self.read_tables()?;
        self.tentative = Some(seq);
        self.state.set_tracing(true);
        Ok(self.lanes.agree_on_time(choice))
    }

    /// Ends the open batch, all of whose requests have settled.
    pub(crate) fn close_batch(&mut self, seq: SeqNum) {
        self.state.set_tracing(false);
        self.merge(seq);
    }

    /// Gives the open batch up, if there is one.
    pub(crate) fn abandon_batch(&mut self) {
        self.state.set_tracing(false);
        self.undo(self.last_executed);
    }

    /// Settles the next request of the open batch, as sequential execution would (PX-3), and returns the cells that it
    /// wrote.
    pub(crate) fn settle(
        &mut self,
        (seq, index, time_ns): (SeqNum, u32, u64),
        request: &Ordered<'_>,
        ready: Option<&mut Ready<'_>>,
        replies: &mut Replies,
    ) -> Result<Vec<Cell>, PageFault> {
        let _ = self.state.take_trace();
        if let Err(fault) = self.execute_once(seq, index, time_ns, request, ready, replies) {
            self.state.roll_back();
            return Err(fault);
        }
        let trace = self.state.take_trace();
        let (first, count) = self.service_pages;
        let is_ours = |page: &u32| (first..first + count).contains(page);
        let mut pages: Vec<u32> = trace.pages.into_iter().filter(is_ours).collect();
        pages.sort_unstable();
        pages.dedup();
        let raw = trace.raw.iter().any(is_ours).then_some(Cell::Raw);
        Ok(pages.into_iter().map(Cell::Page).chain(raw).chain(trace.entries).collect())
    }

    /// Returns what the last request that settled was answered.
    pub(crate) fn last_result(&self) -> &[u8] {
        &self.result
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

    /// Applies the log of a run. Returns whether every outcome was the same; if not, nothing has changed.
    pub(super) fn apply(&mut self, cx: Context, ready: &mut Ready<'_>) -> Result<bool, PageFault> {
        match self.try_apply(cx, ready) {
            Ok(true) => {
                self.result.extend_from_slice(ready.result);
                ready.is_applied = true;
                Ok(true)
            }
            Err(Stop::Fault(fault)) => Err(fault),
            Ok(false) | Err(Stop::Refused | Stop::NeedsOrder | Stop::Corrupt) => {
                self.state.roll_back();
                self.state.begin();
                Ok(false)
            }
        }
    }

    fn try_apply(&mut self, cx: Context, ready: &Ready<'_>) -> Result<bool, Stop> {
        for change in ready.run.changes() {
            if let Change::Step(step) = change {
                let mut view = self.state.view(self.service_pages);
                self.service.step(cx, *step, &mut view)?;
                // The step itself may change what the run saw.
                let changed = self.state.trace().map_or(&[][..], |trace| &trace.entries);
                if changed.iter().any(|cell| ready.reads.iter().any(|(read, _)| read == cell)) {
                    return Ok(false);
                }
            } else if !plant!(25, self.view_mut().apply(change)?, {
                self.view_mut().apply(change)?;
                true
            }) {
                return Ok(false);
            }
        }
        for (cell, content) in ready.run.writes() {
            if let Cell::Page(page) = cell {
                self.view_mut().apply_page(*page, content)?;
            }
        }
        Ok(true)
    }

    fn view_mut(&mut self) -> View<'_> {
        self.state.view(self.service_pages)
    }

    /// Returns the last settled timestamp of a client's lane. None: it has none, so that its next request changes the
    /// client table.
    pub(crate) fn lane_timestamp(&mut self, client: ClientId) -> Option<Timestamp> {
        self.lane(client).ok().flatten().map(|lane| lane.timestamp)
    }

    /// Returns whether the client may execute an operation now, without a look at the operation if it is registered.
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
