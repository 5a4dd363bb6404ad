//! A state of the model: what each replica has, and every message that was ever sent.

use std::hash::{Hash, Hasher};

use crate::case::{Case, Set};

/// The most replicas.
pub(crate) const REPLICAS: usize = 8;
/// The most views, 0 included.
pub(crate) const VIEWS: usize = 4;
/// The null batch, and one batch of each view's primary.
pub(crate) const DIGESTS: usize = VIEWS + 1;
/// The null batch.
pub(crate) const NULL: u8 = 0;

/// Returns the batch that the primary of `view` proposes for the target.
pub(crate) fn own_batch(view: u8) -> u8 {
    view + 1
}

/// Where a replica stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    /// It votes.
    #[default]
    Member,
    /// It has lost everything, and its RECOVERY is not executed.
    Lost,
    /// Its RECOVERY is executed; it waits for this checkpoint to be stable (RC-9).
    Catching(u8),
}

/// A correct replica. All of it is on its disk, but for `exec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Rep {
    pub(crate) phase: Phase,
    /// The last number executed.
    pub(crate) exec: u8,
    /// h
    pub(crate) stable: u8,
    pub(crate) view: u8,
    /// In normal operation in `view`. Otherwise it has left for `view`.
    pub(crate) normal: bool,
    /// It votes for no number up to this one (14.4).
    pub(crate) silent_to: u8,
    /// The view that it learned when it rejoined: its floor, and the last view that it does not lead.
    pub(crate) learned: Option<u8>,
    /// P of the target: batch and view.
    pub(crate) p: Option<(u8, u8)>,
    /// Q of the target: for each batch, one more than the newest view in which it was pre-prepared here; 0: never.
    pub(crate) q: [u8; DIGESTS],
    /// The NEW-VIEW by which it entered `view`; none in view 0.
    pub(crate) entered: Option<u16>,
}

impl Rep {
    /// Returns what it has pre-prepared in its view.
    pub(crate) fn voted(&self) -> Option<u8> {
        (0..DIGESTS as u8).find(|d| self.q[usize::from(*d)] == self.view + 1)
    }
}

/// A RECOVERY in the order: its number, whose it is, its floor u.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recovery {
    pub(crate) seq: u8,
    pub(crate) replica: u8,
    pub(crate) floor: u8,
}

/// A NEW-VIEW that a correct primary has made, in which life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Made {
    pub(crate) view: u8,
    pub(crate) life: u8,
    pub(crate) outcome: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Every number up to this one has committed.
    pub(crate) committed: u8,
    /// Bit `d`: batch `d` has committed at the target.
    pub(crate) decided: u8,
    pub(crate) replicas: [Rep; REPLICAS],
    /// Who lies now.
    pub(crate) liars: Set,
    /// For each replica, bit `l`: it can have signed anything in life `l`.
    pub(crate) lies: [u8; REPLICAS],
    pub(crate) recoveries: Vec<Recovery>,
    /// Who has pre-prepared, and who has committed, batch `d` in view `v` at the target.
    pub(crate) prepares: [[Set; DIGESTS]; VIEWS],
    pub(crate) commits: [[Set; DIGESTS]; VIEWS],
    /// The VIEW-CHANGEs of correct replicas, ever. Sorted.
    pub(crate) sent: Vec<u16>,
    pub(crate) made: Vec<Made>,
    pub(crate) wipes: u8,
    pub(crate) later: u8,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, h: &mut H) {
        h.write(&[self.committed, self.decided, self.liars, self.wipes, self.later]);
        self.replicas.hash(h);
        h.write(&self.lies);
        self.recoveries.hash(h);
        h.write(self.prepares.as_flattened());
        h.write(self.commits.as_flattened());
        self.sent.hash(h);
        self.made.hash(h);
    }
}

impl State {
    pub(crate) fn start(case: &Case) -> Self {
        let mut replicas = [Rep::default(); REPLICAS];
        for (i, rep) in replicas.iter_mut().enumerate().take(case.n()) {
            rep.normal = !has(case.liars, i);
        }
        let mut state = Self {
            committed: 0,
            decided: 0,
            replicas,
            liars: 0,
            lies: [0; REPLICAS],
            recoveries: Vec::new(),
            prepares: [[0; DIGESTS]; VIEWS],
            commits: [[0; DIGESTS]; VIEWS],
            sent: Vec::new(),
            made: Vec::new(),
            wipes: case.wipes,
            later: case.later,
        };
        for liar in (0..case.n()).filter(|i| has(case.liars, *i)) {
            state.turn_liar(case, liar);
        }
        state
    }

    /// Returns the lives of `replica` by the table of the state after `seq`, and the floor of the newest.
    pub(crate) fn life_at(&self, replica: usize, seq: u8) -> (u8, u8) {
        let of = self.recoveries.iter().filter(|r| usize::from(r.replica) == replica && r.seq <= seq);
        of.fold((0, 0), |(life, _), r| (life + 1, r.floor))
    }

    pub(crate) fn life(&self, replica: usize) -> u8 {
        self.life_at(replica, u8::MAX).0
    }

    pub(crate) fn is_correct(&self, i: usize) -> bool {
        !has(self.liars, i)
    }

    /// A correct replica that has its memory.
    pub(crate) fn is_member(&self, i: usize) -> bool {
        self.is_correct(i) && self.replicas[i].phase == Phase::Member
    }

    pub(crate) fn faulty(&self, case: &Case) -> usize {
        (0..case.n()).filter(|i| !self.is_member(*i)).count()
    }

    /// From here on `i` may say whatever it likes, in this life and as if it had said it in those before.
    pub(crate) fn turn_liar(&mut self, case: &Case, i: usize) {
        let lives = if case.rules.unguessable { self.life(i) + 1 } else { 7 };
        self.lies[i] = (1_u8 << lives) - 1;
        self.liars |= 1 << i;
        self.replicas[i] = Rep::default();
        for of in self.prepares.as_flattened_mut().iter_mut().chain(self.commits.as_flattened_mut()) {
            *of &= !(1 << i); // it is counted for whatever is asked
        }
    }

    /// Brings everything to where it comes by itself: checkpoints that are stable, rejoins that are over, batches that
    /// have committed.
    pub(crate) fn settle(&mut self, case: &Case) {
        for i in 0..case.n() {
            let lags = has(case.lag, i) && self.replicas[i].phase == Phase::Member;
            if self.is_correct(i) && self.replicas[i].phase != Phase::Lost && !lags {
                self.replicas[i].exec = self.committed;
            }
        }
        for i in 0..case.n() {
            let late = has(case.late, i) && self.replicas[i].phase == Phase::Member;
            if self.is_correct(i) && !late {
                self.learn_stable(case, i);
            }
        }
        for i in 0..case.n() {
            if let Phase::Catching(until) = self.replicas[i].phase
                && self.replicas[i].stable >= until
                && (!case.rules.quorum_stable || self.reached(case, until))
            {
                self.replicas[i].phase = Phase::Member;
            }
        }
        for view in 0..VIEWS {
            for batch in 0..DIGESTS {
                let votes = (self.commits[view][batch] | self.liars).count_ones() as usize;
                if self.commits[view][batch] != 0 && votes >= case.quorum() {
                    self.decided |= 1 << batch;
                }
            }
        }
    }

    /// Returns the newest checkpoint that `i` holds and that a quorum has announced.
    pub(crate) fn newest_stable(&self, case: &Case, i: usize) -> u8 {
        let announced = |m: u8| {
            let holders = (0..case.n()).filter(|j| self.is_correct(*j) && self.replicas[*j].exec >= m);
            holders.count() + self.liars.count_ones() as usize >= case.quorum()
        };
        (0..=self.replicas[i].exec).rev().find(|m| *m == 0 || announced(*m)).unwrap_or(0)
    }

    pub(crate) fn learn_stable(&mut self, case: &Case, i: usize) {
        let newest = self.newest_stable(case, i);
        let rep = &mut self.replicas[i];
        if rep.phase == Phase::Lost || newest <= rep.stable {
            return;
        }
        rep.stable = newest;
        if newest >= case.target {
            (rep.p, rep.q) = (None, [0; DIGESTS]);
        }
    }

    /// Says whether a quorum states a stable checkpoint at `seq` or later. Liars state what is asked.
    fn reached(&self, case: &Case, seq: u8) -> bool {
        let correct =
            (0..case.n()).filter(|i| self.is_correct(*i) && self.replicas[*i].stable >= seq).count();
        correct + self.liars.count_ones() as usize >= case.quorum()
    }
}

/// Says whether `i` is in `set`.
pub(crate) fn has(set: Set, i: usize) -> bool {
    set >> i & 1 != 0
}
