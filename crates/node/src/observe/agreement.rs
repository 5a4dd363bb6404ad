//! Which replicas agree at which checkpoint: state digests, of which f + 1 equal ones include a correct replica's
//! [OSDI99 §4.3].

use std::collections::{BTreeMap, BTreeSet};

use quorate_wire::message::{STATED_CHECKPOINTS_MAX, Statement};
use quorate_wire::{Cluster, Digest, ReplicaId, SeqNum};

/// How a replica's digest at a checkpoint compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Equal to that of at least f others.
    Agrees,
    /// Different from f + 1 equal ones.
    Differs,
    /// Not reported: not reached yet, or discarded.
    Absent,
    /// Undecided: no f + 1 are equal yet.
    Open,
}

impl Cell {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Differs => "differs",
            Self::Absent => "absent",
            Self::Open => "open",
        }
    }

    /// Returns its sign in the matrix.
    pub fn sign(self) -> char {
        match self {
            Self::Agrees => '■',
            Self::Differs => '✗',
            Self::Absent => '·',
            Self::Open => '□',
        }
    }
}

/// The newest checkpoints, and each replica's digests at them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Their numbers, oldest first. At most [`STATED_CHECKPOINTS_MAX`].
    pub checkpoints: Vec<SeqNum>,
    /// A cell for each replica and each checkpoint.
    pub rows: Vec<Vec<Cell>>,
    /// The digest that at least f + 1 replicas share, for each checkpoint.
    pub agreed: Vec<Option<Digest>>,
    /// Checkpoints at which two digests have f + 1 replicas each: more than f replicas are faulty.
    pub split: Vec<SeqNum>,
}

impl Agreement {
    /// Compares statements; `None` stands for a silent replica.
    pub fn of(cluster: Cluster, statements: &[Option<Statement>]) -> Self {
        let said: Vec<BTreeMap<SeqNum, Digest>> = statements
            .iter()
            .map(|statement| statement.iter().flat_map(|said| said.checkpoints.iter().copied()).collect())
            .collect();
        // One liar cannot choose the columns: f + 1 replicas must report a number.
        let numbers: BTreeSet<SeqNum> = said.iter().flat_map(|said| said.keys().copied()).collect();
        let known = |seq: &SeqNum| said.iter().filter(|said| said.contains_key(seq)).count();
        let known: Vec<SeqNum> = numbers.into_iter().filter(|seq| known(seq) >= cluster.weak()).collect();
        let first = known.len().saturating_sub(usize::from(STATED_CHECKPOINTS_MAX));
        let checkpoints = known.get(first..).unwrap_or_default().to_vec();
        let (mut agreed, mut split) = (Vec::new(), Vec::new());
        for seq in &checkpoints {
            let mut votes: BTreeMap<Digest, usize> = BTreeMap::new();
            said.iter().filter_map(|said| said.get(seq)).for_each(|d| *votes.entry(*d).or_default() += 1);
            let mut weak = votes.into_iter().filter(|(_, count)| *count >= cluster.weak());
            let first = weak.next().map(|(digest, _)| digest);
            if weak.next().is_some() {
                split.push(*seq);
            }
            agreed.push(first);
        }
        let cell = |said: &BTreeMap<SeqNum, Digest>, seq: &SeqNum, agreed: &Option<Digest>| match (
            said.get(seq),
            agreed,
        ) {
            (None, _) => Cell::Absent,
            (Some(_), None) => Cell::Open,
            (Some(own), Some(agreed)) if own == agreed => Cell::Agrees,
            (Some(_), Some(_)) => Cell::Differs,
        };
        let row =
            |said| checkpoints.iter().zip(&agreed).map(|(seq, agreed)| cell(said, seq, agreed)).collect();
        let rows = said.iter().map(row).collect();
        Self { checkpoints, rows, agreed, split }
    }

    /// Returns the newest checkpoint at which f + 1 agree, and how many do.
    pub fn newest(&self) -> Option<(SeqNum, usize)> {
        let at = self.agreed.iter().rposition(Option::is_some)?;
        let agree = |row: &&Vec<Cell>| row.get(at) == Some(&Cell::Agrees);
        Some((*self.checkpoints.get(at)?, self.rows.iter().filter(agree).count()))
    }

    /// Returns whether a replica differs at the newest checkpoint that it reports and that is decided.
    pub fn differs_now(&self, replica: ReplicaId) -> bool {
        let mut row = self.rows.get(replica.index()).into_iter().flatten();
        let judged = |cell: &&Cell| matches!(cell, Cell::Agrees | Cell::Differs);
        row.rfind(judged) == Some(&Cell::Differs)
    }

    /// Returns the checkpoints at which a replica differs.
    pub fn differs_at(&self, replica: ReplicaId) -> impl Iterator<Item = SeqNum> + '_ {
        let row = self.rows.get(replica.index()).into_iter().flatten();
        let cells = self.checkpoints.iter().zip(row);
        cells.filter(|(_, cell)| **cell == Cell::Differs).map(|(seq, _)| *seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A digest for each letter, at 128, 256 and so on; `.` is not reported, `-` is a silent replica.
    fn agreement(rows: [&str; 4]) -> Agreement {
        let statements = rows.map(|row| {
            let digest = |letter: u8| Digest([letter; 32]);
            let said = row.bytes().zip(1..).filter(|(letter, _)| *letter != b'.');
            let checkpoints = said.map(|(letter, i)| (SeqNum(128 * i), digest(letter))).collect();
            (row != "-").then(|| Statement { checkpoints, ..Statement::default() })
        });
        Agreement::of(Cluster::tolerating(1).unwrap(), &statements)
    }

    fn signs(agreement: &Agreement) -> Vec<String> {
        agreement.rows.iter().map(|row| row.iter().map(|cell| cell.sign()).collect()).collect()
    }

    #[test]
    fn f_plus_one_equal_ones_judge_the_others() {
        type Case = ([&'static str; 4], [&'static str; 4], Option<(u64, usize)>);
        let cases: [Case; 6] = [
            (["aaa", "aaa", "aaa", "aaa"], ["■■■", "■■■", "■■■", "■■■"], Some((384, 4))),
            (["aaa", "axa", "aaa", "a"], ["■■■", "■✗■", "■■■", "■··"], Some((384, 3))),
            (["ab", "aa", "aa", "-"], ["■✗", "■■", "■■", "··"], Some((256, 2))),
            // Three that differ from each other decide nothing.
            (["a", "b", "c", "-"], ["□", "□", "□", "·"], None),
            // A number that only one replica reports is not a column.
            (["a..z", "a", "a", "a"], ["■", "■", "■", "■"], Some((128, 4))),
            (["-", "-", "-", "-"], ["", "", "", ""], None),
        ];
        for (rows, expected, newest) in cases {
            let agreement = agreement(rows);
            assert_eq!(signs(&agreement), expected, "{rows:?}");
            assert_eq!(agreement.newest(), newest.map(|(seq, count)| (SeqNum(seq), count)));
            assert!(agreement.split.is_empty());
        }
    }

    /// Two values with f + 1 replicas each are impossible with f faulty ones.
    #[test]
    fn two_halves_are_seen() {
        assert_eq!(agreement(["aa", "aa", "ab", "ab"]).split, [SeqNum(256)]);
    }

    #[test]
    fn a_replica_that_has_repaired_itself_differs_no_more() {
        let agreement = agreement(["aaaa", "aaaa", "aax.", "axa."]);
        assert!(agreement.differs_now(ReplicaId(2)) && !agreement.differs_now(ReplicaId(3)));
        assert_eq!(agreement.differs_at(ReplicaId(3)).collect::<Vec<_>>(), [SeqNum(256)]);
    }

    #[test]
    fn only_the_newest_are_shown() {
        let many = "a".repeat(16) + "aa";
        assert_eq!(agreement([&many[..], &many[..], &many[..16], "-"]).checkpoints.len(), 16);
    }
}
