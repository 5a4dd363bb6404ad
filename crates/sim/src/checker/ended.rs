//! Whose statements count, by the order that all agree on (RC-11): the lives of replicas, as each number leaves them,
//! and no vote in a view that rests on a life that has ended (RC-11a).
//!
//! The tables come from the batches that are final, and not from what replicas keep. Whether a life counts by a table
//! is the real decision.

use std::collections::{BTreeMap, BTreeSet};

use quorate_pbft::lives::{Counts, Table, counts};
use quorate_wire::life::{Life, Lives, Recovery};
use quorate_wire::message::NewView;
use quorate_wire::{Digest, Kind, ReplicaId, SeqNum, Timestamp, ViewNum};

use super::facts::Facts;
use super::invariants::for_each_vote;
use super::verdict::{Verdict, Violation};

/// The lives of all replicas, as of each number.
#[derive(Debug, Default)]
pub struct Tables {
    /// From which number on, whose.
    opened: Vec<(SeqNum, ReplicaId, Lives)>,
    /// The agreed time at which no life that a replica has begun takes up any of its time (RC-6).
    free_at: BTreeMap<ReplicaId, u64>,
}

/// How much of the agreed time a life takes up, in nanoseconds.
const LIFE_NS: u64 = 60_000_000_000;
/// How much of it a replica can take up at once.
const AHEAD_NS: u64 = 10 * LIFE_NS;

impl Tables {
    /// A recovery request has become final at `seq`, at this agreed time: numbers only rise. It opens a life if it names the
    /// present one, and its sender has not begun too many (RC-6).
    pub fn ask(
        &mut self,
        seq: SeqNum,
        (replica, timestamp): (ReplicaId, Timestamp),
        time_ns: u64,
        request: &Recovery,
    ) {
        let Some(lives) = self.of(replica, seq).after(timestamp, request) else { return };
        let free_at = self.free_at.entry(replica).or_default();
        let then = time_ns.max(*free_at) + LIFE_NS;
        if then <= time_ns + AHEAD_NS {
            *free_at = then;
            self.opened.push((seq, replica, lives));
        }
    }

    /// Says whether what a replica said about `view` in `life` counts by the table as of `seq`.
    pub fn counts(&self, replica: ReplicaId, (life, view): (Life, ViewNum), seq: SeqNum) -> Counts {
        counts(life, view, &self.of(replica, seq))
    }

    /// RC-9a: the rejoin of `by` is over. A quorum, itself included, has a stable checkpoint beyond all that it can have
    /// said in its life before. Those who lie or have lied may have announced any. `sizes`: K and L.
    pub fn rejoined(&self, facts: &[Facts], by: ReplicaId, sizes: (u64, u64), quorum: usize) -> Verdict {
        let noted = self.opened.iter().rev().find(|(_, of, _)| *of == by);
        let Some((noted, ..)) = noted else { return Ok(()) };
        let bound = SeqNum(noted.0.next_multiple_of(sizes.0)).plus(sizes.1);
        let there = |f: &&Facts| f.id == by || !f.correct || f.was_faulty || f.was_stable_at(bound);
        let count = facts.iter().filter(there).count();
        if count >= quorum {
            return Ok(());
        }
        let text =
            format!("{by} has rejoined, and only {count} replicas have a stable checkpoint at n={}", bound.0);
        Err(Violation::new("rejoin (RC-9a)", text, &[by]))
    }

    /// Returns the floor of the newest life of a replica: in this life it votes in no view below it (RC-11c).
    fn floor(&self, replica: ReplicaId) -> ViewNum {
        self.of(replica, SeqNum(u64::MAX)).floor
    }

    /// RC-11: a replica goes by this table of lives. Each of them is one of the order, up to what it has executed
    /// finally: a request that was executed tentatively may never be executed in the end (TE-4).
    pub fn known_at(&self, facts: &Facts, table: &Table) -> Verdict {
        let (by, executed) = (facts.id, facts.executed);
        for (of, lives) in table.entries().iter().filter(|_| facts.correct && !facts.damaged) {
            let begun = |(at, whose, opened): &(SeqNum, ReplicaId, Lives)| {
                *at <= executed && whose == of && opened.life == lives.life
            };
            if !self.opened.iter().any(begun) {
                let text = format!(
                    "{by} goes by life t={} of {of}, which no batch up to n={} has begun",
                    lives.life.timestamp.0, executed.0
                );
                return Err(Violation::new("lives (RC-11)", text, &[by]));
            }
        }
        Ok(())
    }

    fn of(&self, replica: ReplicaId, seq: SeqNum) -> Lives {
        let last = self.opened.iter().rev().find(|(at, of, _)| *at <= seq && *of == replica);
        last.map(|(.., lives)| *lives).unwrap_or_default()
    }
}

/// The VIEW-CHANGEs that a NEW-VIEW names.
type Members = Vec<(ReplicaId, Digest)>;

/// Watches over votes in views that rest on lives that have ended.
#[derive(Debug, Default)]
pub struct Ended {
    /// In which life, and for which view, a VIEW-CHANGE was signed.
    signed: BTreeMap<(ReplicaId, Digest), (Life, ViewNum)>,
    /// The NEW-VIEWs that each replica has been given, by what they name. As many as liars make.
    given: BTreeMap<(ReplicaId, ViewNum), Vec<Members>>,
    /// Who has voted about what: view, number, and whether to commit. What is sent again was decided before.
    voted: BTreeSet<(ReplicaId, ViewNum, SeqNum, bool)>,
}

impl Ended {
    /// A VIEW-CHANGE has been admitted somewhere.
    pub fn signed(&mut self, by: ReplicaId, digest: Digest, life: Life, view: ViewNum) {
        self.signed.insert((by, digest), (life, view));
    }

    /// A replica has been given a NEW-VIEW, or has made it.
    pub fn given(&mut self, to: ReplicaId, m: &NewView) {
        let given = self.given.entry((to, m.view)).or_default();
        if !given.contains(&m.view_changes) {
            given.push(m.view_changes.clone());
        }
    }

    /// RC-11a: a replica votes. By the table as of its sender's stable checkpoint, the view does not rest on an ended
    /// life, if there is only one NEW-VIEW by which it can have entered it. RC-11c: nor is it below the floor of its sender's
    /// life. What a liar asked for binds nobody when it is healed.
    pub fn votes(&mut self, facts: &Facts, tables: &Tables, kind: Kind, body: &[u8]) -> Verdict {
        if !matches!(kind, Kind::PrePrepare | Kind::Prepare | Kind::Commit) || !facts.counts() {
            return Ok(());
        }
        for_each_vote(kind, body, |vote| {
            let given = self.given.get(&(facts.id, vote.view)).map_or(&[][..], Vec::as_slice);
            let first = self.voted.insert((facts.id, vote.view, vote.seq, vote.commit));
            let floor = tables.floor(facts.id);
            if first && vote.view < floor && !facts.was_faulty {
                let text = format!(
                    "{} votes for n={} in v={}, and its life begins in v={}",
                    facts.id, vote.seq.0, vote.view.0, floor.0
                );
                return Err(Violation::new("votes (RC-11c)", text, &[facts.id]));
            }
            let ([members], true) = (given, first) else { return Ok(()) };
            let ended = members.iter().find(|(id, digest)| {
                let signed = self.signed.get(&(*id, *digest));
                signed.is_some_and(|said| tables.counts(*id, *said, facts.stable) == Counts::NoMore)
            });
            let Some((of, _)) = ended else { return Ok(()) };
            let text = format!(
                "{} votes for n={} in v={}, which rests on a life of {of} that has ended as of n={}",
                facts.id, vote.seq.0, vote.view.0, facts.stable.0
            );
            Err(Violation::new("votes (RC-11a)", text, &[facts.id]))
        })
    }
}

#[cfg(test)]
mod tests {
    use quorate_pbft::step::Milestone;
    use quorate_wire::codec::Writer;
    use quorate_wire::message::Commit;

    use super::*;

    const R3: ReplicaId = ReplicaId(3);
    const D: Digest = Digest([7; 32]);

    fn life(t: u64) -> Life {
        Life { timestamp: Timestamp(t), bits: t }
    }

    /// A recovery request opens the life `t` at `seq`.
    fn open(tables: &mut Tables, seq: u64, replica: ReplicaId, t: u64, floor: u64) {
        let before = tables.of(replica, SeqNum(seq)).life;
        let request = Recovery { bound: SeqNum(0), bits: t, floor: ViewNum(floor), before };
        tables.ask(SeqNum(seq), (replica, Timestamp(t)), 0, &request);
    }

    /// RC-6: a recovery request that names another life than the present one opens none.
    #[test]
    fn l125_an_earlier_recovery_request_begins_no_life() {
        let mut tables = Tables::default();
        open(&mut tables, 5, R3, 1, 0);
        let earlier = Recovery { bound: SeqNum(0), bits: 2, floor: ViewNum(0), before: Life::default() };
        tables.ask(SeqNum(9), (R3, Timestamp(2)), 0, &earlier);
        assert_eq!(tables.of(R3, SeqNum(9)).life, life(1));
    }

    /// RC-11: the table of each number, whatever came later.
    #[test]
    fn each_number_has_its_own_table() {
        let mut tables = Tables::default();
        open(&mut tables, 5, R3, 1, 2);
        open(&mut tables, 9, R3, 2, 2);
        let at = |life, view, seq| tables.counts(R3, (life, ViewNum(view)), SeqNum(seq));
        assert_eq!(at(Life::default(), 3, 4), Counts::Yes);
        assert_eq!((at(Life::default(), 2, 5), at(Life::default(), 3, 5)), (Counts::Yes, Counts::NoMore));
        assert_eq!((at(Life::default(), 2, 9), at(life(1), 2, 9)), (Counts::NoMore, Counts::Yes));
        assert_eq!(at(life(2), 1, 8), Counts::NotYet);
    }

    /// RC-11: what was executed tentatively has begun no life.
    #[test]
    fn a_life_that_no_batch_has_begun_is_seen() {
        let (mut tables, mut facts, mut table) = (Tables::default(), Facts::new(R3, true), Table::default());
        assert_eq!(tables.known_at(&facts, &table), Ok(()));
        table.open(SeqNum(5), ReplicaId(2), life(1), ViewNum(0));
        assert!(tables.known_at(&facts, &table).is_err());
        open(&mut tables, 5, ReplicaId(2), 1, 0);
        facts.executed = SeqNum(4);
        assert!(tables.known_at(&facts, &table).is_err(), "it has executed it tentatively");
        facts.executed = SeqNum(5);
        assert_eq!(tables.known_at(&facts, &table), Ok(()));
    }

    /// RC-9a: a rejoin ends when a quorum is past the bound.
    #[test]
    fn a_rejoin_that_ends_early_is_seen() {
        let mut tables = Tables::default();
        open(&mut tables, 5, R3, 1, 0);
        let mut facts: Vec<Facts> = (0..4).map(|id| Facts::new(ReplicaId(id), true)).collect();
        let ended = |facts: &[Facts]| tables.rejoined(facts, R3, (4, 16), 3);
        let stable = |seq| Milestone::Stable { seq: SeqNum(seq), root: D };
        facts[0].milestone(&stable(24)).unwrap();
        facts[1].milestone(&stable(23)).unwrap();
        assert!(ended(&facts).is_err());
        facts[1].was_faulty = true;
        assert_eq!(ended(&facts), Ok(()), "who has lied may have announced it");
        facts[1].was_faulty = false;
        facts[1].milestone(&stable(24)).unwrap();
        assert_eq!(ended(&facts), Ok(()));
    }

    /// RC-11a: from the stable checkpoint on that knows the new life, and not before.
    #[test]
    fn a_vote_on_an_ended_life_is_seen() {
        let (mut tables, mut ended) = (Tables::default(), Ended::default());
        ended.signed(R3, D, Life::default(), ViewNum(1));
        let m = NewView {
            view: ViewNum(1),
            life: Life::default(),
            view_changes: vec![(R3, D)],
            checkpoint: (SeqNum(0), D),
            chosen: Vec::new(),
        };
        ended.given(ReplicaId(0), &m);
        open(&mut tables, 5, R3, 1, 0);
        let mut facts = Facts::new(ReplicaId(0), true);
        let mut body = Vec::new();
        Commit { view: ViewNum(1), seq: SeqNum(9), digest: D }.encode(&mut Writer::new(&mut body));
        facts.stable = SeqNum(4);
        assert_eq!(ended.votes(&facts, &tables, Kind::Commit, &body), Ok(()));
        facts.stable = SeqNum(8);
        assert_eq!(ended.votes(&facts, &tables, Kind::Commit, &body), Ok(()), "it had voted before");
        ended.voted.clear();
        assert!(ended.votes(&facts, &tables, Kind::Commit, &body).is_err());
    }

    /// RC-11c: a new life votes in no view below its floor.
    #[test]
    fn a_vote_below_the_floor_of_a_life_is_seen() {
        let (mut tables, mut ended) = (Tables::default(), Ended::default());
        let facts = Facts::new(R3, true);
        open(&mut tables, 5, R3, 1, 2);
        let mut vote = |view| {
            let mut body = Vec::new();
            Commit { view: ViewNum(view), seq: SeqNum(9), digest: D }.encode(&mut Writer::new(&mut body));
            ended.votes(&facts, &tables, Kind::Commit, &body)
        };
        assert_eq!(vote(2), Ok(()));
        assert!(vote(1).is_err());
    }
}
