//! What a search covers: the cluster, the faults, and which clauses of the rules are in force.

use quorate_wire::Cluster;

/// The clauses of RC-11 to RC-11c and DP-7. All of them are in force in [`Rules::ALL`]; a search with one of
/// them taken out shows what that clause is for.
#[allow(clippy::struct_excessive_bools, reason = "a clause is in force or not")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// A VIEW-CHANGE is bound to its sender's life and counts by a table of lives (RC-11). Without: every
    /// VIEW-CHANGE ever signed counts.
    pub(crate) lives: bool,
    /// No vote in a view whose V holds a VIEW-CHANGE that does not count by the table at h (RC-11a).
    pub(crate) vote: bool,
    /// No replica makes or enters a view whose V does not count by its newest executed table (RC-11b).
    pub(crate) receipt: bool,
    /// Nobody can sign for a life before its RECOVERY is known (RC-11).
    pub(crate) unguessable: bool,
    /// A RECOVERY opens a life only if it names the newest (RC-6, L125). Without: one that a liar has signed opens a life
    /// after the healed replica's own did.
    pub(crate) names_newest: bool,
    /// The life before the newest counts for views up to the floor u (RC-11). Without: it never counts.
    pub(crate) below_floor: bool,
    /// A new life votes in no view below its floor (RC-11c).
    pub(crate) floor: bool,
    /// A new life makes no NEW-VIEW and proposes nothing in views up to the one learned (RC-11c, DV-37).
    pub(crate) no_leading: bool,
    /// A replica that sends NEW-VIEW can vote for every number of X above its h (DP-7).
    pub(crate) can_vote_for_all: bool,
    /// A rejoin is over only when a quorum says that its h has reached `H_R` (RC-9a). Without: when the rejoining replica's
    /// own has.
    pub(crate) quorum_stable: bool,
    /// A replica records the view in which it rejoins (RC-11c, L151). Without: a restart takes it back to view 0 if it has
    /// neither entered nor left a view since.
    pub(crate) records_view: bool,
}

impl Rules {
    /// Every clause.
    pub(crate) const ALL: Self = Self {
        lives: true,
        vote: true,
        receipt: true,
        unguessable: true,
        names_newest: true,
        below_floor: true,
        floor: true,
        no_leading: true,
        can_vote_for_all: true,
        quorum_stable: true,
        records_view: true,
    };
    /// The rules before lives: DV-37 alone.
    pub(crate) const BEFORE: Self =
        Self { lives: false, vote: false, receipt: false, quorum_stable: false, ..Self::ALL };
}

/// A set of replicas: bit `i` is replica `i`.
pub(crate) type Set = u8;

/// One search.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// What it is called in the output.
    pub(crate) name: &'static str,
    /// n and f.
    pub(crate) cluster: Cluster,
    /// L. K is 1.
    pub(crate) window: u8,
    /// The number that is voted on in full: `n_c`. Of all others only the order matters.
    pub(crate) target: u8,
    /// The last number that may commit: at least `target - 1`.
    pub(crate) last: u8,
    /// The highest view.
    pub(crate) views: u8,
    /// Liars from the start.
    pub(crate) liars: Set,
    /// Once such a liar is healed, a RECOVERY that it has signed may be executed, and opens a life. It has signed for this
    /// life, too.
    pub(crate) signed_recovery: bool,
    /// Who may lose its disk, and how many losses there are. A liar that loses its disk is healed.
    pub(crate) wiped: Set,
    /// See `wiped`.
    pub(crate) wipes: u8,
    /// Who may turn liar once the last rejoin is over, and how many do.
    pub(crate) later_liars: Set,
    /// See `later_liars`.
    pub(crate) later: u8,
    /// Who may leave, enter and make views.
    pub(crate) movers: Set,
    /// Who executes late. The others execute what commits at once.
    pub(crate) lag: Set,
    /// Who learns late that a checkpoint is stable.
    pub(crate) late: Set,
    /// Those who lag may restart, at the state of their stable checkpoint.
    pub(crate) restarts: bool,
    /// Who may restart once it has rejoined.
    pub(crate) rejoined_restarts: Set,
    /// The rules in force.
    pub(crate) rules: Rules,
    /// Looks in every state whether the live correct replicas could decide.
    pub(crate) liveness: bool,
    /// The states after which the search gives up.
    pub(crate) states_max: usize,
}

impl Case {
    /// Any one replica loses its disk and rejoins; then any one is a liar. n = 4, K = 1, L = 1, `n_c` = 3, views to 1.
    pub(crate) fn new(name: &'static str) -> Self {
        let Ok(cluster) = Cluster::tolerating(1) else { unreachable!("four replicas") };
        Self {
            name,
            cluster,
            window: 1,
            target: 3,
            last: 2,
            views: 1,
            liars: 0,
            signed_recovery: false,
            wiped: 0b1111,
            wipes: 1,
            later_liars: 0b1111,
            later: 1,
            movers: Set::MAX,
            lag: 0,
            late: 0,
            restarts: false,
            rejoined_restarts: 0,
            rules: Rules::ALL,
            liveness: false,
            states_max: 60_000_000,
        }
    }

    pub(crate) fn n(&self) -> usize {
        self.cluster.n()
    }

    pub(crate) fn quorum(&self) -> usize {
        self.cluster.quorum()
    }

    pub(crate) fn primary(&self, view: u8) -> usize {
        usize::from(view) % self.n()
    }
}
