//! What a replica has shown binds it, whatever happened in between (RO-4, D5).
//!
//! The rules are kept as obligations, and not as the code keeps them: a replica that has answered for n, in a
//! committed, cached or read reply, serves no read below n, however it was started since; and a state that was
//! fetched is announced as a checkpoint only by a replica whose disk would give it again.

use std::collections::BTreeMap;

use quorate_wire::{ClientId, Cluster, Digest, ReplicaId, SeqNum, Timestamp};

use super::facts::Facts;
use super::verdict::{Verdict, Violation};

/// What one replica has shown.
#[derive(Clone, Debug, Default)]
struct Of {
    /// The highest number whose effect was in an answer that left. It outlives restarts.
    highest: SeqNum,
    /// What each client's last read was served from. At most one for each lane.
    reads: BTreeMap<ClientId, (Timestamp, SeqNum)>,
    /// The checkpoint that was fetched last, if the state stands on it.
    fetched: SeqNum,
    /// The checkpoints above it that were reached by executing batches, in this life: the log brings them back.
    cut: BTreeMap<SeqNum, Digest>,
}

/// Watches over what replicas have shown.
#[derive(Debug)]
pub struct Shown {
    replicas: Vec<Of>,
}

impl Shown {
    /// Returns a watcher that has seen nothing.
    pub fn new(cluster: Cluster) -> Self {
        Self { replicas: vec![Of::default(); cluster.n()] }
    }

    /// A read is handed to the service: it gives the state as it is now.
    pub fn read(&mut self, facts: &Facts, client: ClientId, timestamp: Timestamp) -> Verdict {
        let of = &mut self.replicas[facts.id.index()];
        // One that is asked for again is served again, and the first answer may still wait for the disk.
        match of.reads.get(&client) {
            Some((known, _)) if *known == timestamp => {}
            _ => _ = of.reads.insert(client, (timestamp, facts.executed)),
        }
        // One with an old disk cannot know; it is one of the f.
        if facts.executed >= of.highest || facts.misled {
            return Ok(());
        }
        let text = format!(
            "{} serves a read with n={} executed, and has answered for n={} before",
            facts.id, facts.executed.0, of.highest.0
        );
        Err(Violation::new("reads (RO-4)", text, &[facts.id]))
    }

    /// A reply leaves that is not tentative. Returns up to where it shows the state. `ordered`: the number at which its request took effect, if it has.
    pub fn replied(
        &mut self,
        facts: &Facts,
        client: ClientId,
        timestamp: Timestamp,
        ordered: Option<SeqNum>,
    ) -> SeqNum {
        let of = &mut self.replicas[facts.id.index()];
        let read = of.reads.get(&client).filter(|(t, _)| *t == timestamp).map(|(_, seq)| *seq);
        // What a replica answers from the cache it has executed, or has fetched with the state.
        let shown = ordered.map(|seq| seq.min(facts.executed)).or(read);
        of.highest = of.highest.max(shown.unwrap_or_default());
        shown.unwrap_or_default()
    }

    /// The state after batch `seq` has this root, and was reached by executing.
    pub fn cut(&mut self, id: ReplicaId, seq: SeqNum, root: Digest) {
        self.replicas[id.index()].cut.insert(seq, root);
    }

    /// The state is that of a fetched checkpoint now. If this replica had reached the same state by executing, a
    /// repair found nothing to fetch: its log still brings that state back, and what it has said of it holds.
    pub fn fetched(&mut self, id: ReplicaId, seq: SeqNum, root: Digest) {
        let of = &mut self.replicas[id.index()];
        if of.cut.get(&seq) != Some(&root) {
            of.fetched = seq;
            of.cut.clear();
        }
    }

    /// It starts from its disk, with the state of checkpoint `seq`.
    pub fn restarted(&mut self, id: ReplicaId, seq: SeqNum) {
        let of = &mut self.replicas[id.index()];
        of.fetched = of.fetched.min(seq);
        of.reads.clear();
        of.cut.clear();
    }

    /// D5: a CHECKPOINT leaves, and the newest image on the disk is of `image`. Batches below a fetched state are
    /// not in the log, so nothing but its image brings it back.
    pub fn announces(&self, facts: &Facts, seq: SeqNum, image: SeqNum) -> Verdict {
        let fetched = self.replicas[facts.id.index()].fetched;
        if seq < fetched || image >= fetched || !facts.counts() {
            return Ok(());
        }
        let text = format!(
            "{} announces n={}, whose state it has fetched, and its disk has the image of n={}",
            facts.id, seq.0, image.0
        );
        Err(Violation::new("checkpoint (D5)", text, &[facts.id]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const R0: ReplicaId = ReplicaId(0);
    const C0: ClientId = ClientId(1 << 16);

    fn shown() -> (Shown, Facts) {
        (Shown::new(Cluster::tolerating(1).unwrap()), Facts::new(R0, true))
    }

    /// RO-4: neither a write nor a read that was answered is forgotten by a start.
    #[test]
    fn a_read_below_what_was_shown_is_seen_across_restarts() {
        for by_read in [false, true] {
            let (mut shown, mut facts) = shown();
            facts.executed = SeqNum(7);
            assert_eq!(shown.read(&facts, C0, Timestamp(1)), Ok(()));
            let ordered = (!by_read).then_some(SeqNum(7));
            shown.replied(&facts, C0, Timestamp(1), ordered);
            facts.restart((SeqNum(0), SeqNum(0)), (quorate_wire::ViewNum(0), true), &[]);
            shown.restarted(R0, SeqNum(0));
            facts.executed = SeqNum(6);
            assert!(shown.read(&facts, C0, Timestamp(2)).is_err());
            facts.executed = SeqNum(7);
            assert_eq!(shown.read(&facts, C0, Timestamp(2)), Ok(()));
        }
    }

    /// What was served but never left was shown to nobody.
    #[test]
    fn what_never_left_was_not_shown() {
        let (mut shown, mut facts) = shown();
        facts.executed = SeqNum(7);
        assert_eq!(shown.read(&facts, C0, Timestamp(1)), Ok(()));
        facts.executed = SeqNum(3);
        assert_eq!(shown.read(&facts, C0, Timestamp(2)), Ok(()));
    }

    /// D5: a fetched state is announced when its image is on the disk.
    #[test]
    fn a_fetched_state_that_is_not_on_the_disk_is_not_announced() {
        let (mut shown, facts) = shown();
        assert_eq!(shown.announces(&facts, SeqNum(8), SeqNum(0)), Ok(()), "executed here");
        shown.fetched(R0, SeqNum(16), Digest([1; 32]));
        assert_eq!(shown.announces(&facts, SeqNum(8), SeqNum(8)), Ok(()));
        assert!(shown.announces(&facts, SeqNum(16), SeqNum(8)).is_err());
        assert!(shown.announces(&facts, SeqNum(24), SeqNum(8)).is_err());
        assert_eq!(shown.announces(&facts, SeqNum(16), SeqNum(16)), Ok(()));
        shown.restarted(R0, SeqNum(8));
        assert_eq!(shown.announces(&facts, SeqNum(8), SeqNum(8)), Ok(()));
    }
    /// D5: a repair that ends at a state that was executed here leaves the log as good as before. One that ends at
    /// another state does not.
    #[test]
    fn a_repair_that_finds_nothing_to_fetch_takes_nothing_back() {
        let (mut shown, facts) = shown();
        for (fetched, is_good) in [(1, true), (2, false)] {
            shown.cut(R0, SeqNum(16), Digest([1; 32]));
            shown.fetched(R0, SeqNum(16), Digest([fetched; 32]));
            assert_eq!(shown.announces(&facts, SeqNum(16), SeqNum(8)).is_ok(), is_good);
        }
        shown.restarted(R0, SeqNum(8));
        shown.cut(R0, SeqNum(16), Digest([1; 32]));
        shown.restarted(R0, SeqNum(8));
        shown.fetched(R0, SeqNum(16), Digest([1; 32]));
        assert!(shown.announces(&facts, SeqNum(16), SeqNum(8)).is_err(), "another life's execution");
    }
}
