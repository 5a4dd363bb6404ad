//! Who may ask for what, and what replicas ask for: the parts of an executor that are not the service's.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use quorate_wire::ReplicaId;
use quorate_wire::life::Lives;

use super::{Executor, fault};
use crate::lives;
use crate::page::{PageFault, PageStore};
use crate::registry::{People, Person};
use crate::service::{Context, Service};

impl<S: Service, P: PageStore> Executor<S, P> {
    /// Lets clients ask for what they may: these, by their principals, and those that are added by order (EX-3).
    /// Replicated: all replicas have the same founders. The caller has just made the executor.
    #[must_use]
    pub fn governed(mut self, founders: BTreeMap<u64, Person>) -> Self {
        assert!(
            self.last_executed == quorate_wire::SeqNum(0) && self.people.is_none(),
            "from the beginning on"
        );
        // The table of lives is at the end of the same pages.
        let pages = People::pages(self.options.page_bytes) - lives::pages(self.options.page_bytes);
        self.service_pages.1 -= pages.min(self.service_pages.1);
        self.people = Some(People::new(founders));
        self
    }

    /// Calls `each` with the principal of every client that may come in, by the committed state. Nobody, if the
    /// executor is not [`Self::governed`].
    pub fn people(&self, each: &mut dyn FnMut(u64, &Person)) {
        if let Some(people) = &self.people {
            people.for_each(each);
        }
    }

    /// Returns a number that changes whenever [`Self::people`] may have.
    #[inline]
    pub fn people_version(&self) -> u64 {
        self.people.as_ref().map_or(0, People::version)
    }

    /// Returns the lives of the replicas that have had more than one, by the committed state (RC-11). None: a page is
    /// not here.
    pub fn lives(&self) -> Option<Vec<(ReplicaId, Lives)>> {
        lives::read(self.state.store(), self.options.page_bytes, self.lives_pages().0).ok()
    }

    /// The pages of the table of lives: the last ones.
    fn lives_pages(&self) -> (u32, u32) {
        let pages = lives::pages(self.options.page_bytes);
        (self.options.pages_max - pages, pages)
    }

    /// The pages of the table of clients: those before it.
    pub(super) fn people_pages(&self) -> (u32, u32) {
        let first = self.service_pages.0 + self.service_pages.1;
        (first, self.lives_pages().0 - first)
    }

    /// Executes what a replica asks for: a recovery request, which opens a life, and whose result is its number
    /// (RC-6). Anything else does nothing.
    pub(super) fn open_life(
        &mut self,
        replica: ReplicaId,
        cx: Context,
        operation: &[u8],
    ) -> Result<(), PageFault> {
        let pages = self.lives_pages();
        let mut view = self.state.view(pages);
        let opened = fault(lives::open(&mut view, replica, cx.timestamp, cx.seq, operation))?;
        if let Some(recovered) = opened.flatten() {
            recovered.encode(&mut self.result);
        }
        Ok(())
    }
}
