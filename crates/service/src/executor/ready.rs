//! A run on cells, and how its log becomes part of the state.

use alloc::vec::Vec;

use quorate_wire::message::RESULT_BYTES_MAX;

use crate::page::{Memory, PageFault, PageStore};
use crate::service::{Context, Service};
use crate::state::State;
use crate::state::btree::log;
use crate::state::cell::{Cell, CellRun, Change, Seen};
use crate::state::elsewhere::CellLink;
use crate::state::view::View;
use crate::stop::Stop;

/// A run on cells, and what has become of it.
#[derive(Debug)]
pub(crate) struct Ready<'a> {
    run: &'a CellRun,
    reads: &'a [(Cell, Seen)],
    result: &'a [u8],
    /// All versions, and the time, are still the same.
    is_same: bool,
    /// The operation is in the service's store with this time (PX-H).
    is_stored: bool,
    /// The log was applied. If not, the operation was executed on pages.
    is_applied: bool,
}

/// The result of a run on cells.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) run: CellRun,
    pub(crate) result: Vec<u8>,
}

impl Ran {
    /// Returns the result of a run, if it has any meaning. Anything else may come from a mixture of states (PX-G): the
    /// run on pages decides.
    pub(super) fn of(done: Result<(), Stop>, mut run: CellRun, result: Vec<u8>) -> Option<Self> {
        if run.has_failed() || result.len() > RESULT_BYTES_MAX {
            return None;
        }
        match done {
            Ok(()) => {}
            Err(Stop::Refused) => run.refuse(),
            Err(Stop::Fault(_) | Stop::NeedsOrder | Stop::Corrupt) => return None,
        }
        Some(Self { run, result })
    }

    /// Returns whether the service stores the operation after the run: it changes something (PX-H).
    pub(crate) fn is_to_store(&self) -> bool {
        !self.run.is_empty()
    }
}

/// Where the service's pages are.
#[derive(Clone, Copy, Debug)]
pub struct ServicePart {
    pub(super) page_bytes: usize,
    pub(super) pages: (u32, u32),
}

impl ServicePart {
    /// Runs an operation on another thread than the one with the state. None: it has to run on pages.
    pub(crate) fn run<S: Service>(
        &self,
        service: &S,
        (cx, operation): (Context, &[u8]),
        link: &dyn CellLink,
    ) -> Option<Ran> {
        let (empty, zeros) = (Memory::new(), alloc::vec![0; self.page_bytes]);
        let (mut run, mut result) = (CellRun::default(), Vec::new());
        let mut view = View::elsewhere(&empty, link, &mut run, &zeros, self.pages);
        let done = service.execute(cx, operation, &mut view, &mut result);
        Ran::of(done, run, result)
    }
}

impl<'a> Ready<'a> {
    /// Returns a run that has read these versions. `is_same`: they are the present ones. `is_timely`: it had the agreed time.
    pub(crate) fn new(ran: &'a Ran, reads: &'a [(Cell, Seen)], is_same: bool, is_timely: bool) -> Self {
        let is_stored = is_timely && ran.is_to_store();
        Self { run: &ran.run, reads, result: &ran.result, is_same, is_stored, is_applied: false }
    }

    /// Returns whether the operation is in the service's store.
    pub(super) fn is_stored(&self) -> bool {
        self.is_stored
    }

    /// Returns whether the log was applied.
    pub(crate) fn is_applied(&self) -> bool {
        self.is_applied
    }

    /// Applies the log to the part of the state that the service has, and makes `result` its result. Returns whether
    /// every outcome was the same; if not, nothing has changed.
    #[inline(never)]
    pub(super) fn apply<S: Service, P: PageStore>(
        &mut self,
        cx: Context,
        service: &S,
        (state, part): (&mut State<P>, (u32, u32)),
        result: &mut Vec<u8>,
    ) -> Result<bool, PageFault> {
        if !self.is_same {
            return Ok(false);
        }
        match self.try_apply(cx, service, state, part) {
            Ok(true) => {
                result.extend_from_slice(self.result);
                self.is_applied = true;
                Ok(true)
            }
            Err(Stop::Fault(fault)) => Err(fault),
            Ok(false) | Err(Stop::Refused | Stop::NeedsOrder | Stop::Corrupt) => {
                state.roll_back();
                state.begin();
                Ok(false)
            }
        }
    }

    fn try_apply<S: Service, P: PageStore>(
        &self,
        cx: Context,
        service: &S,
        state: &mut State<P>,
        part: (u32, u32),
    ) -> Result<bool, Stop> {
        for change in self.run.changes() {
            if let Change::Step(step) = change {
                service.step(cx, *step, &mut state.view(part))?;
                // The step itself may change what the run saw.
                let changed = state.trace().map_or(&[][..], |trace| &trace.entries);
                if changed.iter().any(|cell| self.reads.iter().any(|(read, _)| read == cell)) {
                    return Ok(false);
                }
                continue;
            }
            let is_same = if let Change::Own(change) = change {
                service.redo(cx, change, &mut state.view(part))?
            } else {
                log::apply(&mut state.view(part), change)?
            };
            if plant!(25, !is_same, false) {
                return Ok(false);
            }
        }
        for (cell, content) in self.run.writes() {
            if let Cell::Page(page) = cell {
                state.view(part).apply_page(*page, content)?;
            }
        }
        Ok(true)
    }
}
