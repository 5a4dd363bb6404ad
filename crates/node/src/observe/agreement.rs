//! Who agrees with whom at which checkpoint: digests of the state, of which f + 1 equal ones include a
//! correct replica's [OSDI99 §4.3].

use std::collections::{BTreeMap, BTreeSet};

use quorate_wire::message::{STATED_CHECKPOINTS_MAX, Statement};
use quorate_wire::{Cluster, Digest, ReplicaId, SeqNum};

/// What a replica's digest at a checkpoint is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// The same as that of f others at least.
    Agrees,
    /// Another one than f + 1 equal ones.
    Differs,
    /// Not said: it is not there yet, or has forgotten it.
    Absent,
    /// No f + 1 are equal yet.
    Open,
}

impl Cell {
    /// Returns the word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::Differs => "differs",
            Self::Absent => "absent",
            Self::Open => "open",
        }
    }

    /// Returns the sign for it.
    pub fn sign(self) -> char {
        match self {
            Self::Agrees => '■',
            Self::Differs => '✗',
            Self::Absent => '·',
            Self::Open => '□',
        }
    }
}

/// The newest checkpoints, and what each replica says of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Their numbers, oldest first. At most [`STATED_CHECKPOINTS_MAX`].
    pub checkpoints: Vec<SeqNum>,
    /// For each replica, for each checkpoint.
    pub rows: Vec<Vec<Cell>>,
    /// The digest that f + 1 at least share, for each checkpoint.
    pub agreed: Vec<Option<Digest>>,
    /// At these checkpoints two digests have f + 1 replicas each: more than f of them are faulty.
    pub split: Vec<SeqNum>,
}

impl Agreement {
    /// Compares statements; none stands for a replica that says nothing.
    pub fn of(cluster: Cluster, statements: &[Option<Statement>]) -> Self {
        let said: Vec<BTreeMap<SeqNum, Digest>> = statements
            .iter()
            .map(|statement| statement.iter().flat_map(|said| said.checkpoints.iter().copied()).collect())
            .collect();
        // A liar alone does not choose the columns: it takes f + 1 that know of a number.
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

    /// Says whether a replica differs at the newest checkpoint that it speaks of and that is judged.
    pub fn differs_now(&self, replica: ReplicaId) -> bool {
        let mut row = self.rows.get(replica.index()).into_iter().flatten();
        let judged = |cell: &&Cell| matches!(cell, Cell::Agrees | Cell::Differs);
        row.rfind(judged) == Some(&Cell::Differs)
    }

    /// Returns where a replica differs.
    pub fn differs_at(&self, replica: ReplicaId) -> impl Iterator<Item = SeqNum> + '_ {
        let row = self.rows.get(replica.index()).into_iter().flatten();
        let cells = self.checkpoints.iter().zip(row);
        cells.filter(|(_, cell)| **cell == Cell::Differs).map(|(seq, _)| *seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A digest for each letter, at 128, 256 and so on; `.` says nothing, `-` is a replica that is silent.
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
            // Three that differ among each other judge nobody.
            (["a", "b", "c", "-"], ["□", "□", "□", "·"], None),
            // A number that one alone knows of is no column.
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

    /// Two values with f + 1 behind each cannot be with f faulty ones.
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
