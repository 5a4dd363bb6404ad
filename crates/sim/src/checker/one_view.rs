//! A batch commits in one view (PC-1): where the first correct replica reports it, a quorum has sent COMMITs of one view
//! for it. And it prepares in one view: a quorum has voted for it in the view in which a correct replica reports that.
//! Votes of two views that are counted together break no agreement by themselves, so no other watcher sees it.

use std::collections::{BTreeMap, BTreeSet};

use quorate_wire::{Cluster, Digest, ReplicaId, SeqNum, ViewNum};

/// Watches over COMMITs that leave, and over what is said to have committed.
#[derive(Debug)]
pub struct OneView {
    cluster: Cluster,
    window: u64,
    /// Who has sent a COMMIT, by number, view and digest. At most two windows of numbers.
    votes: BTreeMap<(SeqNum, ViewNum, Digest), BTreeSet<ReplicaId>>,
    /// Who has sent a PREPARE, in the same way.
    prepares: BTreeMap<(SeqNum, ViewNum, Digest), BTreeSet<ReplicaId>>,
    /// The highest number of a PREPARE.
    newest: SeqNum,
    /// The numbers that have committed. At most two windows.
    committed: BTreeSet<SeqNum>,
}

impl OneView {
    /// Returns a watcher that has seen nothing, of a log with this window.
    pub fn new(cluster: Cluster, window: u64) -> Self {
        Self {
            cluster,
            window,
            votes: BTreeMap::new(),
            prepares: BTreeMap::new(),
            newest: SeqNum(0),
            committed: BTreeSet::new(),
        }
    }

    /// A PREPARE of a replica leaves.
    pub fn agreed(&mut self, by: ReplicaId, (view, seq, digest): (ViewNum, SeqNum, Digest)) {
        self.prepares.entry((seq, view, digest)).or_default().insert(by);
        self.newest = self.newest.max(seq);
        while let Some((oldest, ..)) = self.prepares.first_key_value().map(|(key, _)| *key)
            && oldest.plus(2 * self.window) < seq
        {
            self.prepares.pop_first();
        }
    }

    /// A correct replica says that a batch has prepared in `view`. Its own vote counts if it is durable (ADR 5), which
    /// `own` says, and the primary's is its proposal or its NEW-VIEW. `truthful` as for [`Self::committed`].
    ///
    /// # Errors
    ///
    /// Fewer than a quorum have voted for it in that view. The text says so.
    pub fn prepared(
        &self,
        by: ReplicaId,
        (view, seq, digest): (ViewNum, SeqNum, Digest),
        own: bool,
        truthful: impl Fn(ReplicaId) -> bool,
    ) -> Result<(), String> {
        if seq.plus(2 * self.window) < self.newest {
            return Ok(()); // forgotten
        }
        let primary = self.cluster.primary(view);
        let voters = self.prepares.get(&(seq, view, digest));
        let has_voted = |id: &ReplicaId| match *id {
            id if id == primary => true,
            id if id == by => own,
            id => !truthful(id) || voters.is_some_and(|voters| voters.contains(&id)),
        };
        let count = self.cluster.replicas().filter(has_voted).count();
        if count < self.cluster.quorum() {
            return Err(format!(
                "n={} d={digest} prepared at {by} in v={}; {count} replicas can have voted for it in this view",
                seq.0, view.0
            ));
        }
        Ok(())
    }

    /// A COMMIT of a replica leaves.
    pub fn voted(&mut self, by: ReplicaId, (view, seq, digest): (ViewNum, SeqNum, Digest)) {
        self.votes.entry((seq, view, digest)).or_default().insert(by);
        while let Some((oldest, ..)) = self.votes.first_key_value().map(|(key, _)| *key)
            && oldest.plus(2 * self.window) < seq
        {
            self.votes.pop_first();
        }
    }

    /// A correct replica says that a batch has committed. The first one has it from COMMITs: f + 1 others who say so are
    /// not there yet. Its own COMMIT counts in the views that `own` names: those in which what it has prepared is durable
    /// (ADR 5). `truthful`: whether a replica is correct and was so all the time.
    ///
    /// # Errors
    ///
    /// No view has a quorum. The text says so.
    pub fn committed(
        &mut self,
        by: ReplicaId,
        seq: SeqNum,
        digest: Digest,
        own: impl Fn(ViewNum) -> bool,
        truthful: impl Fn(ReplicaId) -> bool,
    ) -> Result<(), String> {
        let newest = self.committed.last().copied().unwrap_or_default();
        if !self.committed.insert(seq) || seq.plus(2 * self.window) < newest {
            return Ok(());
        }
        while self.committed.first().is_some_and(|oldest| oldest.plus(2 * self.window) < seq) {
            self.committed.pop_first();
        }
        // Those who lie or have lied may have sent any COMMIT, and its own counts when it may leave.
        let counts = |id: &ReplicaId| *id != by && truthful(*id);
        let others = self.cluster.replicas().filter(|id| *id != by && !truthful(*id)).count();
        let most = self
            .votes
            .range((seq, ViewNum(0), Digest::ZERO)..=(seq, ViewNum(u64::MAX), Digest([u8::MAX; 32])))
            .filter(|((_, _, of), _)| *of == digest)
            .map(|((_, view, _), voters)| {
                voters.iter().filter(|id| counts(id)).count() + usize::from(own(*view))
            })
            .max()
            .unwrap_or(0);
        if most + others < self.cluster.quorum() {
            return Err(format!(
                "n={} d={digest} committed at {by}; in no view have more than {most} correct replicas sent COMMIT",
                seq.0
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: Digest = Digest([7; 32]);
    const N: SeqNum = SeqNum(3);

    fn four() -> OneView {
        OneView::new(Cluster::tolerating(1).unwrap(), 16)
    }

    #[test]
    fn commits_of_two_views_are_no_quorum() {
        let mut watcher = four();
        watcher.voted(ReplicaId(1), (ViewNum(0), N, D));
        watcher.voted(ReplicaId(2), (ViewNum(1), N, D));
        assert!(watcher.committed(ReplicaId(0), N, D, |_| true, |_| true).is_err());
        let mut watcher = four();
        watcher.voted(ReplicaId(1), (ViewNum(1), N, D));
        watcher.voted(ReplicaId(2), (ViewNum(1), N, D));
        assert_eq!(watcher.committed(ReplicaId(0), N, D, |_| true, |_| true), Ok(()));
        assert_eq!(watcher.committed(ReplicaId(3), N, D, |_| false, |_| true), Ok(()), "it has heard of it");
    }

    /// ADR 5: its own COMMIT of the view before does not count, nor one that is not durable.
    #[test]
    fn an_own_commit_counts_in_its_view() {
        let mut watcher = four();
        watcher.voted(ReplicaId(1), (ViewNum(1), N, D));
        watcher.voted(ReplicaId(2), (ViewNum(1), N, D));
        assert!(watcher.committed(ReplicaId(0), N, D, |view| view == ViewNum(0), |_| true).is_err());
    }

    #[test]
    fn prepares_of_another_view_prepare_nothing() {
        let mut watcher = four();
        let prepared_with =
            |watcher: &OneView, own| watcher.prepared(ReplicaId(2), (ViewNum(1), N, D), own, |_| true);
        let prepared = |watcher: &OneView| prepared_with(watcher, true);
        watcher.agreed(ReplicaId(3), (ViewNum(0), N, D));
        assert!(prepared(&watcher).is_err());
        watcher.agreed(ReplicaId(3), (ViewNum(1), N, D));
        assert_eq!(prepared(&watcher), Ok(()));
        assert!(prepared_with(&watcher, false).is_err(), "its own vote is not durable");
        assert_eq!(four().prepared(ReplicaId(2), (ViewNum(1), N, D), true, |id| id != ReplicaId(0)), Ok(()));
    }

    #[test]
    fn a_liar_may_have_sent_what_is_missing() {
        let mut watcher = four();
        let truthful = |id| id != ReplicaId(3);
        watcher.voted(ReplicaId(1), (ViewNum(0), N, D));
        watcher.voted(ReplicaId(2), (ViewNum(1), N, D));
        assert_eq!(watcher.committed(ReplicaId(0), N, D, |_| true, truthful), Ok(()));
        assert!(watcher.committed(ReplicaId(0), SeqNum(4), D, |_| true, truthful).is_err());
    }
}
