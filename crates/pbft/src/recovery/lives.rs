//! Lives of replicas (RC-11 to RC-11c): which VIEW-CHANGEs count, and in which views this replica may vote.
//!
//! A VIEW-CHANGE reports what its sender has prepared. If it was signed before the sender lost its state, the report
//! was true then and may be false now. So it names the sender's *life*, and the replicated state keeps the last two
//! lives of each replica. The pure functions [`counts`] and [`all_count`] decide which messages count.
//!
//! They are called twice. At receipt, with the newest executed table: a view in which this replica may not vote is
//! neither made nor entered (RC-11b). And before each vote, with the table as of the stable checkpoint `h` (RC-11a).
//! Agreement depends on the latter: a replica that votes for a number above the reach of an old life has an `h` whose
//! table contains the new one. `docs/adr/0015-lives.md` has the argument.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use quorate_wire::Cluster;
use quorate_wire::id::{ReplicaId, SeqNum, Timestamp, ViewNum};
use quorate_wire::life::{Life, Lives, Recovered};
use quorate_wire::message::ViewChange;

/// Whether a statement counts by a table of lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counts {
    /// It is of its sender's life, or of the one before it and about a view that the new life never votes in.
    Yes,
    /// It is of a life that the table does not know yet.
    NotYet,
    /// It is of a life that has ended, and will never count again.
    NoMore,
}

/// Says whether what a replica said about `view` in `life` counts, where the table has `lives` of it (RC-11).
pub fn counts(life: Life, view: ViewNum, lives: &Lives) -> Counts {
    let before = life == lives.before && mutant!(M55, view <= lives.floor, true);
    if mutant!(M15, life == lives.life || before, true) {
        return Counts::Yes;
    }
    if life.timestamp > lives.life.timestamp { Counts::NotYet } else { Counts::NoMore }
}

/// Says whether all of these VIEW-CHANGEs count by a table; if not, the worst that holds of one.
pub fn all_count<'a>(v: impl IntoIterator<Item = (ReplicaId, &'a ViewChange)>, table: &Table) -> Counts {
    let each = v.into_iter().map(|(replica, m)| counts(m.life, m.view, &table.of(replica)));
    each.max().unwrap_or(Counts::Yes)
}

/// The lives of all replicas, as the state notes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Of those that have had more than one, by increasing replica.
    entries: Vec<(ReplicaId, Lives)>,
}

impl Table {
    /// Returns the table with these entries, in any order.
    pub fn new(mut entries: Vec<(ReplicaId, Lives)>) -> Self {
        entries.sort_unstable_by_key(|(replica, _)| *replica);
        Self { entries }
    }

    /// Returns the lives of a replica.
    pub fn of(&self, replica: ReplicaId) -> Lives {
        match self.entries.binary_search_by_key(&replica, |(of, _)| *of) {
            Ok(at) => self.entries.get(at).map(|(_, lives)| *lives).unwrap_or_default(),
            Err(_) => Lives::default(),
        }
    }

    /// Returns those that have had more than one life, by increasing replica.
    pub fn entries(&self) -> &[(ReplicaId, Lives)] {
        &self.entries
    }

    /// Notes that a recovery request of `replica` was executed at `seq`.
    pub fn open(&mut self, seq: SeqNum, replica: ReplicaId, life: Life, floor: ViewNum) {
        let lives = Lives { noted: seq, ..self.of(replica).opened(life, floor) };
        match self.entries.binary_search_by_key(&replica, |(of, _)| *of) {
            Ok(at) => {
                if let Some(entry) = self.entries.get_mut(at) {
                    entry.1 = lives;
                }
            }
            Err(at) => self.entries.insert(at, (replica, lives)),
        }
    }
}

/// The tables of lives that this replica needs: as of `h`, and each later one up to what it has executed. At most
/// one for each number of the window, the one that a transfer brought, and a gap before it.
#[derive(Debug)]
pub(crate) struct LivesKnown {
    /// The table from that number on, up to the next; none where this replica was never in that state.
    tables: BTreeMap<SeqNum, Option<Table>>,
    /// What a tentative batch has opened: it counts when the batch has committed.
    tentative: Vec<(SeqNum, ReplicaId, Life, ViewNum)>,
    /// They are known from the state after this number on.
    known_from: SeqNum,
    /// This replica must not vote in its view: one of the VIEW-CHANGEs that the view rests on does not count (RC-11a).
    void: bool,
    /// A life has begun, or the stable checkpoint has moved, since somebody looked.
    news: bool,
}

impl Default for LivesKnown {
    fn default() -> Self {
        Self::starting(SeqNum(0), Table::default())
    }
}

impl LivesKnown {
    /// Returns what is known where the state after `seq` has this table.
    pub(crate) fn starting(seq: SeqNum, table: Table) -> Self {
        Self {
            tables: BTreeMap::from([(seq, Some(table))]),
            tentative: Vec::new(),
            known_from: seq,
            void: false,
            news: false,
        }
    }

    /// Returns whether this replica must not vote in its view.
    #[inline]
    pub(crate) fn is_void(&self) -> bool {
        self.void
    }

    /// Notes whether this replica must not vote in its view. Says whether it may now and might not before.
    pub(crate) fn set_void(&mut self, void: bool) -> bool {
        core::mem::replace(&mut self.void, void) && !void
    }

    /// A life has begun.
    pub(crate) fn note_news(&mut self) {
        self.news = true;
    }

    /// Says whether there are news, and takes them for known.
    pub(crate) fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.news)
    }

    /// Returns the newest table of a committed state, if one is known.
    pub(crate) fn newest_known(&self) -> Option<&Table> {
        self.tables.last_key_value().and_then(|(_, table)| table.as_ref())
    }

    /// Returns the newest table of a committed state.
    pub(crate) fn newest(&self) -> Table {
        self.newest_known().cloned().unwrap_or_default()
    }

    /// Returns the table of the state after `seq`; none if that state is older than what is known.
    pub(crate) fn at(&self, seq: SeqNum) -> Option<&Table> {
        (seq >= self.known_from)
            .then(|| self.tables.range(..=seq).next_back().and_then(|(_, table)| table.as_ref()))
            .flatten()
    }

    /// Forgets tables that only numbers below `stable` need.
    pub(crate) fn collect(&mut self, stable: SeqNum) {
        self.news = true;
        let Some(first) = self.tables.range(..=stable).next_back().map(|(seq, _)| *seq) else { return };
        self.tables.retain(|seq, _| *seq >= first);
    }

    /// Notes a recovery request that was executed in batch `seq`, perhaps tentatively.
    fn note(&mut self, seq: SeqNum, replica: ReplicaId, life: Life, floor: ViewNum) {
        self.tentative.push((seq, replica, life, floor));
    }

    /// A batch with a recovery request of a member was executed: its result says which life its sender has, and so whether the
    /// request has opened it.
    pub(crate) fn note_result(
        &mut self,
        seq: SeqNum,
        cluster: Cluster,
        from: ReplicaId,
        timestamp: Timestamp,
        result: &[u8],
    ) {
        if let Some(Recovered { life, floor, .. }) = Recovered::decode(result)
            && life.timestamp == timestamp
            && cluster.contains(from)
        {
            self.note(seq, from, life, floor);
            mutant!(M82, (), _ = self.settle(seq));
        }
    }

    /// The executed batches up to `last` are those that have committed; those above it may be undone. Says whether
    /// a life has begun.
    pub(crate) fn settle(&mut self, last: SeqNum) -> bool {
        let mut begun = false;
        for (seq, replica, life, floor) in self.tentative.extract_if(.., |(seq, ..)| *seq <= last) {
            let newest = self.tables.last_key_value().and_then(|(_, table)| table.clone());
            let mut table = newest.unwrap_or_default();
            table.open(seq, replica, life, floor);
            self.tables.insert(seq, Some(table));
            begun = true;
        }
        begun
    }

    /// Executions above `last` were undone.
    pub(crate) fn undo(&mut self, last: SeqNum) {
        self.tentative.retain(|(seq, ..)| *seq <= last);
    }

    /// The state is now the one after `seq`, with these lives; none: they cannot be read. Before that, it was the one after
    /// `executed`.
    pub(crate) fn renew(&mut self, seq: SeqNum, lives: Option<&[(ReplicaId, Lives)]>, executed: SeqNum) {
        match lives {
            Some(lives) => {
                self.replace(seq, Table::new(mutant!(M81, lives.to_vec(), Vec::new())), executed);
            }
            None => *self = Self::starting(SeqNum(u64::MAX), Table::default()),
        }
    }

    /// The state is now the one after `seq`, and has this table.
    fn replace(&mut self, seq: SeqNum, table: Table, executed: SeqNum) {
        self.tentative.clear();
        self.tables.retain(|n, _| *n < seq);
        if executed < seq {
            self.tables.insert(executed.next(), None);
        }
        self.tables.insert(seq, Some(table));
        self.known_from = self.known_from.min(seq);
        self.news = true;
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn life(t: u64) -> Life {
        Life { timestamp: Timestamp(t), bits: t * 10 }
    }

    /// RC-11, case by case: a replica in its third life, the last of which votes in no view below 4.
    #[test]
    fn what_counts_by_a_table() {
        let lives = Lives::default().opened(life(1), ViewNum(2)).opened(life(2), ViewNum(4));
        let of = |life, view| counts(life, ViewNum(view), &lives);
        assert_eq!(of(life(2), 9), Counts::Yes);
        assert_eq!((of(life(1), 4), of(life(1), 5)), (Counts::Yes, Counts::NoMore));
        assert_eq!(of(Life::default(), 1), Counts::NoMore, "older ones in no view");
        assert_eq!(of(life(3), 1), Counts::NotYet);
        let guessed = Life { bits: 1, ..life(2) };
        assert_eq!(of(guessed, 9), Counts::NoMore, "a timestamp alone can be guessed");
        assert_eq!(
            counts(Life::default(), ViewNum(7), &Lives::default()),
            Counts::Yes,
            "nobody has rejoined"
        );
    }

    fn lives_of(known: &LivesKnown, seq: u64) -> Option<Life> {
        known.at(SeqNum(seq)).map(|table| table.of(ReplicaId(2)).life)
    }

    /// RC-11a: the table as of `h`, whatever was executed since; and none as of a state that was never here.
    #[test]
    fn the_table_of_each_number_is_kept_until_it_is_stable() {
        let mut known = LivesKnown::default();
        known.note(SeqNum(3), ReplicaId(2), life(1), ViewNum(0));
        assert!(!known.settle(SeqNum(2)), "tentative");
        assert!(known.settle(SeqNum(3)));
        known.note(SeqNum(5), ReplicaId(2), life(2), ViewNum(0));
        known.undo(SeqNum(4));
        assert!(!known.settle(SeqNum(9)), "rolled back");
        known.note(SeqNum(6), ReplicaId(2), life(3), ViewNum(0));
        assert!(known.settle(SeqNum(6)));
        let at = |known: &LivesKnown| [0, 2, 3, 5, 6, 9].map(|n| lives_of(known, n));
        let none = Some(Life::default());
        assert_eq!(at(&known), [none, none, Some(life(1)), Some(life(1)), Some(life(3)), Some(life(3))]);
        known.collect(SeqNum(4));
        assert_eq!((lives_of(&known, 4), lives_of(&known, 6)), (Some(life(1)), Some(life(3))));
        assert_eq!(known.tables.len(), 2);
    }

    /// L122: a state that was fetched brings its own; nothing is known of those between it and what was executed before.
    #[test]
    fn l122_nothing_is_known_of_the_states_that_a_transfer_skips() {
        let none = Some(Life::default());
        let mut fetched = LivesKnown::starting(SeqNum(8), Table::default());
        assert_eq!((lives_of(&fetched, 7), lives_of(&fetched, 8)), (None, none));
        let table = Table::new(vec![(ReplicaId(2), Lives::default().opened(life(4), ViewNum(0)))]);
        fetched.replace(SeqNum(12), table.clone(), SeqNum(9));
        assert_eq!(
            [8, 9, 10, 11, 12].map(|n| lives_of(&fetched, n)),
            [none, none, None, None, Some(life(4))]
        );
        fetched.note(SeqNum(13), ReplicaId(2), life(5), ViewNum(0));
        assert!(fetched.settle(SeqNum(13)));
        fetched.collect(SeqNum(11));
        assert_eq!([11, 12, 13].map(|n| lives_of(&fetched, n)), [None, Some(life(4)), Some(life(5))]);
        // One that goes back, because the state was wrong, leaves no gap.
        fetched.replace(SeqNum(12), table, SeqNum(13));
        assert_eq!([11, 12, 13].map(|n| lives_of(&fetched, n)), [None, Some(life(4)), Some(life(4))]);
    }
}
