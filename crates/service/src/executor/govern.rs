//! Who may ask for what, and what replicas ask for: the parts of an executor that are not the service's.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use quorate_wire::ReplicaId;
use quorate_wire::life::Lives;

use super::{Executor, fault};
use crate::lives;
use crate::page::{PageFault, PageStore};
use crate::registry::{Client, Registry, Table};
use crate::service::{Context, Service};

impl<S: Service, P: PageStore> Executor<S, P> {
    /// Lets clients ask for what they may: these, by their principals, and those that are added later (EX-3). Of `n`
    /// replicas, administrators can order the address. Replicated: all replicas have the same founders. The caller has
    /// just made the executor.
    #[must_use]
    pub fn governed(mut self, founders: BTreeMap<u64, Client>, n: usize) -> Self {
        assert!(
            self.last_executed == quorate_wire::SeqNum(0) && self.registry.is_none(),
            "from the beginning on"
        );
        // The table of lives is at the end of the same pages.
        let pages = Registry::pages(self.options.page_bytes) - lives::pages(self.options.page_bytes);
        self.service_pages.1 -= pages.min(self.service_pages.1);
        self.registry = Some(Registry::new(founders, u16::try_from(n).unwrap_or(u16::MAX)));
        self
    }

    /// Calls `each` with the principal of every registered client, by the committed state. Nobody, if the
    /// executor is not [`Self::governed`].
    pub fn registered(&self, each: &mut dyn FnMut(u64, &Client)) {
        if let Some(registry) = &self.registry {
            registry.for_each(each);
        }
    }

    /// Returns the addresses of replicas and the settings in the committed state (ADR 23).
    pub fn table(&self) -> Table {
        self.registry.as_ref().map(Registry::table).unwrap_or_default()
    }

    /// Returns a number that changes whenever [`Self::registered`] or [`Self::table`] may have.
    #[inline]
    pub fn registry_version(&self) -> u64 {
        self.registry.as_ref().map_or(0, Registry::version)
    }

    /// Returns the lives of the replicas that have had more than one, by the committed state (RC-11). None: a page is
    /// not here.
    pub fn lives(&self) -> Option<Vec<(ReplicaId, Lives)>> {
        self.read_lives().ok()
    }

    pub(super) fn read_lives(&self) -> Result<Vec<(ReplicaId, Lives)>, PageFault> {
        lives::read(self.state.store(), self.options.page_bytes, self.lives_pages().0)
    }

    /// The pages of the table of lives: the last ones.
    fn lives_pages(&self) -> (u32, u32) {
        let pages = lives::pages(self.options.page_bytes);
        (self.options.pages_max - pages, pages)
    }

    /// The pages of the client registry: they end where those of the table of lives begin.
    pub(super) fn registry_pages(&self) -> (u32, u32) {
        let first = self.service_pages.0 + self.service_pages.1;
        (first, self.lives_pages().0 - first)
    }

    /// Executes what a replica asks for: a recovery request, which may open a life, and whose result says which life
    /// there is (RC-6). Anything else does nothing.
    pub(super) fn open_life(
        &mut self,
        replica: ReplicaId,
        cx: Context,
        operation: &[u8],
    ) -> Result<(), PageFault> {
        let pages = self.lives_pages();
        let mut view = self.state.view(pages);
        let opened = fault(lives::open(&mut view, replica, cx, operation))?;
        if let Some(recovered) = opened.flatten() {
            recovered.encode(&mut self.result);
        }
        Ok(())
    }
}
