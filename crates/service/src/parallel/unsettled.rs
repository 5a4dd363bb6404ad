//! The versions of cells: what finished requests have written that have not settled, and who wrote a cell last.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use crate::state::cell::{Below, Cell, CellRun, Seen};

/// A version of a cell: the ordinal of the request that wrote it, and which of its runs that was.
pub(super) type Version = (u64, u32);

/// Cells and their versions. A run sees the writes of all finished requests below it: that includes all requests that
/// it depends on, and each of them saw no more than the run does.
#[derive(Debug, Default)]
pub(crate) struct Unsettled {
    /// Of each cell, the versions of unsettled requests, the oldest request first.
    writes: BTreeMap<Cell, Vec<Written>>,
    sums: BTreeMap<(u32, usize), Vec<(u64, i64)>>,
    /// The last settled version of a cell, as long as an unsettled request can have seen another one.
    last: BTreeMap<Cell, Version>,
    /// Versions of `last`, each with the first request that cannot have been unsettled when it settled.
    expiry: VecDeque<(u64, Cell, Version)>,
    /// The number of settled requests, which is the ordinal of the next to settle.
    settled: u64,
}

#[derive(Debug)]
struct Written {
    ordinal: u64,
    run: u32,
    content: Option<Vec<u8>>,
}

/// What is below one request.
#[derive(Debug)]
pub(crate) struct BelowRequest<'a> {
    unsettled: &'a Unsettled,
    ordinal: u64,
}

impl Unsettled {
    /// Returns the number of settled requests.
    pub(super) fn settled(&self) -> u64 {
        self.settled
    }

    /// Returns what a run of the request with this ordinal sees.
    pub(crate) fn below(&self, ordinal: u64) -> BelowRequest<'_> {
        BelowRequest { unsettled: self, ordinal }
    }

    /// Shows what a request has written to the runs above it.
    pub(super) fn publish(&mut self, (ordinal, run): Version, written: &CellRun) {
        for (cell, content) in written.writes() {
            let versions = self.writes.entry(cell.clone()).or_default();
            let at = versions.partition_point(|version| version.ordinal < ordinal);
            versions.insert(at, Written { ordinal, run, content: content.map(<[u8]>::to_vec) });
        }
        for (&sum, &delta) in written.sums() {
            self.sums.entry(sum).or_default().push((ordinal, delta));
        }
    }

    /// Returns the first cell that has not the version that was seen, and who wrote it last. The request is the next to
    /// settle.
    pub(super) fn stale<'r>(&self, reads: &'r [(Cell, Seen)]) -> Option<(&'r Cell, Version)> {
        reads.iter().find_map(|(cell, seen)| {
            let last = self.last.get(cell).copied();
            let is_same = match *seen {
                Seen::Settled(settled) => plant!(21, last.is_none_or(|(writer, _)| writer < settled), true),
                Seen::Unsettled(writer, run) => {
                    plant!(22, last == Some((writer, run)), last.is_some_and(|last| last.0 == writer))
                }
            };
            if is_same { None } else { last.map(|last| (cell, last)) }
        })
    }

    /// Returns whether the run of a request that is not settled would see the same versions now.
    pub(super) fn is_current(&self, ordinal: u64, reads: &[(Cell, Seen)]) -> bool {
        let below = self.below(ordinal);
        reads.iter().all(|(cell, seen)| {
            let now = below.get(cell).map(|(now, _)| now);
            match (*seen, now) {
                (Seen::Unsettled(..), Some(now)) => *seen == now,
                (Seen::Unsettled(writer, run), None) => self.last.get(cell) == Some(&(writer, run)),
                (Seen::Settled(settled), None) => {
                    self.last.get(cell).is_none_or(|(writer, _)| *writer < settled)
                }
                (Seen::Settled(_), Some(_)) => false,
            }
        })
    }

    /// The next request has settled: `written` are the cells that it wrote, `published` is the run that was shown, and
    /// `end` is the ordinal of the next request to be inserted.
    pub(super) fn settle(
        &mut self,
        run: u32,
        written: impl Iterator<Item = Cell>,
        published: Option<&CellRun>,
        end: u64,
    ) {
        let version = (self.settled, run);
        // A request that ran again may have left out what its first run wrote, and others have seen that.
        let shown = published.into_iter().flat_map(CellRun::writes).map(|(cell, _)| cell.clone());
        for cell in written.chain(plant!(30, Some(shown), None).into_iter().flatten()) {
            if self.last.insert(cell.clone(), version) != Some(version) {
                self.expiry.push_back((end, cell, version));
            }
        }
        if let Some(published) = published {
            for (cell, _) in published.writes() {
                forget(&mut self.writes, cell, |version| version.ordinal != self.settled);
            }
            for (sum, _) in published.sums() {
                forget(&mut self.sums, sum, |(ordinal, _)| *ordinal != self.settled);
            }
        }
        self.settled += 1;
        while let Some((end, cell, version)) = self.expiry.front()
            && *end <= self.settled
        {
            if self.last.get(cell) == Some(version) {
                self.last.remove(cell);
            }
            self.expiry.pop_front();
        }
    }

    /// Forgets all versions. `settled` is the ordinal of the next request.
    pub(super) fn drain(&mut self, settled: u64) {
        *self = Self { settled, ..Self::default() };
    }

    /// Returns how many versions are known.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.writes.len() + self.sums.len() + self.last.len() + self.expiry.len()
    }
}

fn forget<K: Ord, V>(map: &mut BTreeMap<K, Vec<V>>, key: &K, keep: impl FnMut(&V) -> bool) {
    if let Some(versions) = map.get_mut(key) {
        versions.retain(keep);
        if versions.is_empty() {
            map.remove(key);
        }
    }
}

impl Below for BelowRequest<'_> {
    fn get(&self, cell: &Cell) -> Option<(Seen, Option<&[u8]>)> {
        let versions = self.unsettled.writes.get(cell)?;
        let below =
            plant!(23, versions.partition_point(|version| version.ordinal < self.ordinal), versions.len());
        let last = versions.get(below.checked_sub(1)?)?;
        Some((Seen::Unsettled(last.ordinal, last.run), last.content.as_deref()))
    }

    fn has_under(&self, prefix: &Cell) -> bool {
        let under = self.unsettled.writes.range(prefix..).take_while(|(cell, _)| cell.is_under(prefix));
        let mut versions = under.flat_map(|(_, versions)| versions);
        versions.any(|version| version.ordinal < self.ordinal)
    }

    fn sum(&self, page: u32, at: usize) -> i64 {
        let changes = self.unsettled.sums.get(&(page, at)).map_or(&[][..], Vec::as_slice);
        let below = changes.iter().filter(|(ordinal, _)| *ordinal < self.ordinal);
        below.fold(0, |sum, (_, delta)| sum.saturating_add(*delta))
    }

    fn settled(&self) -> u64 {
        self.unsettled.settled
    }
}
