//! What a replica says binds it after a loss of power: so it is on its disk before it leaves (spec §14.1).
//!
//! The watcher reads the records that are durable, and compares every message that leaves with them. It does not know
//! what a message has waited for.
//!
//! | Leaves | Durable before | Rule |
//! |---|---|---|
//! | PRE-PREPARE, PREPARE | the vote | D1 |
//! | COMMIT, also as a part of others; a tentative reply | what prepared, with its batch | D2, TE-5 |
//! | VIEW-CHANGE; NEW-VIEW | that the view was left, entered; the votes for all that a NEW-VIEW takes over | D3, D4, DP-7 |
//! | CHECKPOINT | each batch since the last image | D5 |
//! | a final reply, a read | a number from which on a restart serves reads | RO-4 |
//!
//! And what has committed anywhere has prepared on the disks of a weak quorum of correct replicas (I3, ADR 5).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use quorate_pbft::record::Record;
use quorate_pbft::step::Lsn;
use quorate_wire::message::{Checkpoint, NewView, Reply, ViewChange};
use quorate_wire::{Cluster, Digest, Kind, ReplicaId, SeqNum, ViewNum};

use super::exactly_once::ExactlyOnce;
use super::facts::Facts;
use super::invariants::for_each_vote;
use super::verdict::{Verdict, Violation};

/// What one record says.
#[derive(Clone, Copy, Debug)]
enum Said {
    Vote(ViewNum, SeqNum, Digest),
    Prepared(ViewNum, SeqNum, Digest),
    Committed(SeqNum),
    /// A number that a restart knows to have shown.
    Shown(SeqNum),
    Left(ViewNum),
    Entered(ViewNum),
}

/// What the disk of one replica would give back.
#[derive(Clone, Debug, Default)]
struct Of {
    /// Records on their way to the disk, in their order: as many as the disk has not synced.
    pending: VecDeque<(Lsn, Said)>,
    votes: BTreeMap<(SeqNum, ViewNum), Digest>,
    prepared: BTreeMap<(SeqNum, ViewNum), Digest>,
    committed: BTreeSet<SeqNum>,
    shown: SeqNum,
    left: ViewNum,
    entered: ViewNum,
    /// The newest image.
    image: SeqNum,
}

impl Of {
    fn learn(&mut self, said: Said) {
        match said {
            Said::Vote(view, seq, digest) => _ = self.votes.insert((seq, view), digest),
            Said::Prepared(view, seq, digest) => {
                self.prepared.insert((seq, view), digest);
                self.shown = self.shown.max(seq);
            }
            Said::Committed(seq) => {
                self.committed.insert(seq);
                self.shown = self.shown.max(seq);
            }
            Said::Shown(seq) => self.shown = self.shown.max(seq),
            Said::Left(view) => self.left = self.left.max(view),
            Said::Entered(view) => self.entered = self.entered.max(view),
        }
    }

    /// Says whether this has prepared at a number, in any view.
    fn has_prepared(&self, seq: SeqNum, digest: Digest) -> bool {
        let all = (seq, ViewNum(0))..=(seq, ViewNum(u64::MAX));
        self.prepared.range(all).any(|(_, prepared)| *prepared == digest)
    }
}

/// Watches over what leaves before it is on the disk. Only where replicas wait for their disks. Remembers every
/// number of the run: what waits for a disk can be old.
#[derive(Debug)]
pub struct Promises {
    cluster: Cluster,
    replicas: Vec<Of>,
    /// The VIEW-CHANGEs that have left.
    said: BTreeSet<(ReplicaId, Vec<u8>)>,
}

impl Promises {
    /// Returns a watcher of replicas with empty disks.
    pub fn new(cluster: Cluster) -> Self {
        Self { cluster, replicas: vec![Of::default(); cluster.n()], said: BTreeSet::new() }
    }

    /// A replica has a record written. It is not on the disk yet.
    pub fn persists(&mut self, facts: &Facts, lsn: Lsn, record: &[u8]) {
        let said = match Record::decode(record) {
            Ok(Record::PrePrepared { view, seq, digest }) => Said::Vote(view, seq, digest),
            // It has reported which.
            Ok(Record::Prepared { view, seq, .. }) => match facts.prepared.get(&seq.0) {
                Some((of, digest)) if *of == view => Said::Prepared(view, seq, *digest),
                _ => return,
            },
            Ok(other) => match said_by(&other) {
                Some(said) => said,
                None => return,
            },
            Err(_) => return,
        };
        self.replicas[facts.id.index()].pending.push_back((lsn, said));
    }

    /// Its records up to `lsn` are on the disk.
    pub fn durable(&mut self, id: ReplicaId, lsn: Lsn) {
        let of = &mut self.replicas[id.index()];
        while of.pending.front().is_some_and(|(at, _)| *at <= lsn) {
            if let Some((_, said)) = of.pending.pop_front() {
                of.learn(said);
            }
        }
    }

    /// An image of its state after `seq` is on the disk.
    pub fn imaged(&mut self, id: ReplicaId, seq: SeqNum) {
        let of = &mut self.replicas[id.index()];
        of.image = of.image.max(seq);
    }

    /// It starts from an image and these records. `prepared` is what they say of P.
    pub fn restarted(
        &mut self,
        id: ReplicaId,
        image: SeqNum,
        records: &[Vec<u8>],
        prepared: &[(SeqNum, ViewNum, Digest)],
    ) {
        let of = &mut self.replicas[id.index()];
        of.pending.clear();
        of.image = image;
        for record in records.iter().filter_map(|bytes| Record::decode(bytes).ok()) {
            if let Some(said) = said_by(&record) {
                of.learn(said);
            }
        }
        for (seq, view, digest) in prepared {
            of.learn(Said::Prepared(*view, *seq, *digest));
        }
    }

    /// It starts with nothing.
    pub fn forgot(&mut self, id: ReplicaId) {
        self.replicas[id.index()] = Of::default();
    }

    /// A message of its own leaves.
    pub fn sends(&mut self, facts: &Facts, kind: Kind, body: &[u8]) -> Verdict {
        // One with an old disk cannot know.
        if facts.misled {
            return Ok(());
        }
        match kind {
            Kind::ViewChange => {
                let Ok(m) = ViewChange::decode(body) else { return Ok(()) };
                // What it said before it lost its disk, or as a liar, it may pass on for others, who have named it.
                if !self.said.insert((facts.id, body.to_vec())) || facts.was_faulty {
                    return Ok(());
                }
                let left = m.view <= self.of(facts).left;
                demand(facts, "D3", left, || format!("VIEW-CHANGE v={}", m.view.0))
            }
            Kind::NewView => {
                let Ok(m) = NewView::decode(body) else { return Ok(()) };
                self.takes_over(facts, &m)
            }
            Kind::Checkpoint => {
                let Ok(m) = Checkpoint::decode(body) else { return Ok(()) };
                let of = self.of(facts);
                let gap = (of.image.next().0..=m.seq.0).find(|n| !of.committed.contains(&SeqNum(*n)));
                demand(facts, "D5", gap.is_none(), || {
                    format!("CHECKPOINT n={}, of which n={}", m.seq.0, gap.unwrap_or_default())
                })
            }
            Kind::Reply => self.replies_early(facts, body),
            _ => for_each_vote(kind, body, |vote| {
                let (of, at) = (self.of(facts), (vote.seq, vote.view));
                let (rule, said) = if vote.commit { ("D2", &of.prepared) } else { ("D1", &of.votes) };
                demand(facts, rule, said.get(&at) == Some(&vote.digest), || {
                    let what = if vote.commit { "COMMIT" } else { kind.name() };
                    format!("{what} v={} n={} {}", vote.view.0, vote.seq.0, vote.digest)
                })
            }),
        }
    }

    /// D4, and D1 for all that its maker takes over: it could not claim in the next view change what the others
    /// prepare with its vote.
    fn takes_over(&self, facts: &Facts, m: &NewView) -> Verdict {
        let of = self.of(facts);
        demand(facts, "D4", m.view <= of.entered, || format!("NEW-VIEW v={}", m.view.0))?;
        for (n, digest) in (m.checkpoint.0.0 + 1..).zip(&m.chosen) {
            let voted = of.votes.get(&(SeqNum(n), m.view)) == Some(digest);
            demand(facts, "D1", voted || SeqNum(n) <= facts.stable, || {
                format!("NEW-VIEW v={}, whose n={n}", m.view.0)
            })?;
        }
        Ok(())
    }

    /// TE-5: a tentative reply counts on a quorum that has prepared the batch, whatever crashes.
    fn replies_early(&self, facts: &Facts, body: &[u8]) -> Verdict {
        let Some(reply) = Reply::decode(body).ok().filter(|reply| reply.tentative) else { return Ok(()) };
        let Some((seq, batch)) = &facts.tentative else { return Ok(()) };
        let whose = (reply.client, reply.timestamp);
        if !batch.requests().any(|request| (request.client, request.timestamp) == whose) {
            return Ok(());
        }
        let kept = self.of(facts).has_prepared(*seq, batch.digest());
        demand(facts, "TE-5", kept, || format!("a tentative reply of n={}", seq.0))
    }

    /// Says whether a vote of a replica's own is on its disk.
    pub fn has_voted(&self, id: ReplicaId, (view, seq, digest): (ViewNum, SeqNum, Digest)) -> bool {
        self.replicas[id.index()].votes.get(&(seq, view)) == Some(&digest)
    }

    /// Says whether what a replica has prepared in a view is on its disk: its own COMMIT of that view counts from then on.
    pub fn has_prepared_in(&self, id: ReplicaId, (view, seq, digest): (ViewNum, SeqNum, Digest)) -> bool {
        self.replicas[id.index()].prepared.get(&(seq, view)) == Some(&digest)
    }

    /// RO-4: an answer leaves that shows the state after `seq`.
    pub fn shows(&self, facts: &Facts, seq: SeqNum) -> Verdict {
        let of = self.of(facts);
        let known = facts.misled || seq <= of.shown.max(of.image);
        demand(facts, "RO-4", known, || format!("an answer that shows n={}", seq.0))
    }

    /// I3: a batch has committed at `by`.
    pub fn committed(&self, facts: &[Facts], by: ReplicaId, seq: SeqNum, digest: Digest) -> Verdict {
        // What a replica said that was cleaned since may have counted.
        if facts.iter().any(|f| f.was_faulty) {
            return Ok(());
        }
        let faulty = facts.iter().filter(|f| !f.counts()).count();
        let has = |f: &&Facts| f.stable >= seq || self.of(f).has_prepared(seq, digest);
        let support = facts.iter().filter(|f| f.counts()).filter(has).count();
        if faulty <= self.cluster.f() && support + faulty < self.cluster.quorum() {
            let text = format!(
                "n={} d={digest} committed at {by}, prepared on the disks of {support} correct replicas, {faulty} are not",
                seq.0
            );
            return Err(Violation::new("support on disks (I3)", text, &[by]));
        }
        Ok(())
    }

    fn of(&self, facts: &Facts) -> &Of {
        &self.replicas[facts.id.index()]
    }
}

fn demand(facts: &Facts, rule: &str, holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds {
        return Ok(());
    }
    let text = format!("{} sends {} is not on its disk ({rule})", facts.id, what());
    Err(Violation::new("before it leaves (I11)", text, &[facts.id]))
}

/// What a record says, but for one that holds a batch.
fn said_by(record: &Record<'_>) -> Option<Said> {
    Some(match *record {
        Record::PrePrepared { view, seq, digest } => Said::Vote(view, seq, digest),
        Record::PreparedAgain { view, seq, digest } => Said::Prepared(view, seq, digest),
        Record::Committed { seq, .. } => Said::Committed(seq),
        Record::Batch { seq, .. } | Record::Floor { seq } | Record::Stable { seq, .. } => Said::Shown(seq),
        Record::ViewChange { view, .. } => Said::Left(view),
        Record::NewView { view, .. } => Said::Entered(view),
        Record::Prepared { .. } | Record::Seen { .. } => return None,
    })
}

/// Says whether this is the reply to a request that has taken effect before, and that a liar has ordered again in the
/// batch that is tentative now. TE-5 asks for the disk's copy of the first batch, which has committed.
pub(super) fn is_of_the_first_time(done: &ExactlyOnce, by: &Facts, kind: Kind, body: &[u8]) -> bool {
    let (Kind::Reply, Some((seq, _))) = (kind, &by.tentative) else { return false };
    let Ok(reply) = Reply::decode(body) else { return false };
    done.place(reply.client, reply.timestamp).is_some_and(|first| first < *seq)
}

#[cfg(test)]
mod tests {
    use quorate_wire::codec::Writer;
    use quorate_wire::message::{Commit, Prepare};

    use super::*;

    const R1: ReplicaId = ReplicaId(1);
    const V0: ViewNum = ViewNum(0);
    const D: Digest = Digest([7; 32]);

    fn promises() -> (Promises, Vec<Facts>) {
        let cluster = Cluster::tolerating(1).unwrap();
        let facts = cluster.replicas().map(|id| Facts::new(id, true)).collect();
        (Promises::new(cluster), facts)
    }

    fn bytes(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut Writer::new(&mut bytes));
        bytes
    }

    fn record(record: Record<'_>) -> Vec<u8> {
        bytes(|w| record.encode(w))
    }

    fn rule(verdict: Verdict) -> Option<String> {
        verdict.err().and_then(|v| Some(v.text.rsplit_once('(')?.1.trim_end_matches(')').to_owned()))
    }

    /// D1 and D2: a vote leaves once its record is durable, and one of another view does not do.
    #[test]
    fn a_vote_is_on_the_disk_before_it_leaves() {
        let (mut p, mut facts) = promises();
        let prepare = bytes(|w| Prepare::encode(V0, SeqNum(3), &D, &[], w));
        let commit = bytes(|w| Commit { view: V0, seq: SeqNum(3), digest: D }.encode(w));
        let f = &mut facts[1];
        p.persists(f, Lsn(1), &record(Record::PrePrepared { view: V0, seq: SeqNum(3), digest: D }));
        assert_eq!(rule(p.sends(f, Kind::Prepare, &prepare)).as_deref(), Some("D1"));
        p.durable(R1, Lsn(1));
        assert_eq!(p.sends(f, Kind::Prepare, &prepare), Ok(()));
        assert_eq!(rule(p.sends(f, Kind::Commit, &commit)).as_deref(), Some("D2"));
        f.prepared.insert(3, (V0, D));
        p.persists(f, Lsn(2), &record(Record::Prepared { view: V0, seq: SeqNum(3), batch: b"" }));
        assert_eq!(rule(p.sends(f, Kind::Commit, &commit)).as_deref(), Some("D2"));
        p.durable(R1, Lsn(2));
        assert_eq!(p.sends(f, Kind::Commit, &commit), Ok(()));
        let later = bytes(|w| Commit { view: ViewNum(1), seq: SeqNum(3), digest: D }.encode(w));
        assert_eq!(rule(p.sends(f, Kind::Commit, &later)).as_deref(), Some("D2"));
        p.forgot(R1);
        assert!(p.sends(f, Kind::Prepare, &prepare).is_err());
    }

    /// D5: every batch since the image.
    #[test]
    fn a_checkpoint_leaves_when_the_disk_can_bring_it_back() {
        let (mut p, facts) = promises();
        let checkpoint = bytes(|w| Checkpoint { seq: SeqNum(4), digest: D, stable: false }.encode(w));
        for n in [1, 2, 4] {
            p.persists(&facts[1], Lsn(n), &record(Record::Committed { seq: SeqNum(n), digest: D }));
        }
        p.durable(R1, Lsn(9));
        assert_eq!(rule(p.sends(&facts[1], Kind::Checkpoint, &checkpoint)).as_deref(), Some("D5"));
        p.imaged(R1, SeqNum(3));
        assert_eq!(p.sends(&facts[1], Kind::Checkpoint, &checkpoint), Ok(()));
    }

    /// RO-4: what an answer shows, a restart knows of.
    #[test]
    fn what_is_shown_is_known_to_a_restart() {
        let (mut p, facts) = promises();
        assert!(p.shows(&facts[1], SeqNum(1)).is_err());
        p.restarted(R1, SeqNum(0), &[record(Record::Floor { seq: SeqNum(5) })], &[]);
        assert_eq!(p.shows(&facts[1], SeqNum(5)), Ok(()));
        assert!(p.shows(&facts[1], SeqNum(6)).is_err());
        p.imaged(R1, SeqNum(8));
        assert_eq!(p.shows(&facts[1], SeqNum(8)), Ok(()));
    }

    /// I3: votes that are in memory alone support nothing.
    #[test]
    fn what_commits_is_on_the_disks_of_a_quorum() {
        let (mut p, mut facts) = promises();
        for id in [0, 1, 2] {
            facts[id].prepared.insert(3, (V0, D));
            p.persists(
                &facts[id],
                Lsn(1),
                &record(Record::Prepared { view: V0, seq: SeqNum(3), batch: b"" }),
            );
        }
        for id in [0, 2] {
            p.durable(ReplicaId(id), Lsn(1));
        }
        assert!(p.committed(&facts, R1, SeqNum(3), D).is_err());
        p.durable(R1, Lsn(1));
        assert_eq!(p.committed(&facts, R1, SeqNum(3), D), Ok(()));
    }

    /// D3, D4: views that were left and entered.
    #[test]
    fn a_view_is_left_and_entered_on_the_disk_first() {
        let (mut p, facts) = promises();
        let mut new_view = NewView {
            view: ViewNum(1),
            life: quorate_wire::life::Life::default(),
            view_changes: Vec::new(),
            checkpoint: (SeqNum(0), D),
            chosen: vec![D],
        };
        let body = |m: &NewView| bytes(|w| m.encode(w));
        assert_eq!(rule(p.sends(&facts[1], Kind::NewView, &body(&new_view))).as_deref(), Some("D4"));
        let records = [record(Record::NewView { view: ViewNum(1), frames: b"" })];
        p.restarted(R1, SeqNum(0), &records, &[]);
        assert_eq!(rule(p.sends(&facts[1], Kind::NewView, &body(&new_view))).as_deref(), Some("D1"));
        new_view.chosen.clear();
        assert_eq!(p.sends(&facts[1], Kind::NewView, &body(&new_view)), Ok(()));
    }
}
