//! What a scenario is.

use quorate_pbft::client::step::ClientReject;
use quorate_pbft::step::{Milestone, Reject};
use quorate_wire::{Cluster, Kind, ReplicaId};

use super::stage::{Ended, Stage};
use crate::setup::Setup;
use crate::summary::Counters;
/// An event that must have happened for the scenario to count.
#[derive(Clone, Copy, Debug)]
pub enum Expect {
    /// A correct replica has turned a message away for this reason.
    Reject(Reject),
    /// A client has turned a message away for this reason.
    ClientReject(ClientReject),
    /// The authenticator of a correct replica has turned a frame away, for the reason of this name
    /// (`DoorError::name`).
    Door(&'static str),
    /// A correct replica has reported a milestone of which this holds.
    Milestone(&'static str, fn(ReplicaId, &Milestone) -> bool),
    /// This count of the whole run is not 0.
    Count(&'static str, fn(&Counters) -> u64),
    /// A correct replica has admitted a message of this kind from a faulty one.
    Heard(Kind),
    /// Two correct replicas have accepted different batches for one view and number.
    Split,
    /// A correct replica has been given the vote of a faulty one for another batch than it has accepted.
    Astray,
    /// A request in a batch had been executed before, and a correct replica has skipped it.
    Skipped,
    /// A NEW-VIEW that was given to a correct replica names a VIEW-CHANGE of a faulty one.
    Named,
    /// The story has noted this, with `Stage::note`.
    Noted(&'static str),
}

impl Expect {
    /// Returns its name in results.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Reject(reason) => reason.name(),
            Self::ClientReject(reason) => reason.name(),
            Self::Heard(kind) => kind.name(),
            Self::Split => "split",
            Self::Astray => "votes-astray",
            Self::Skipped => "skipped",
            Self::Named => "liar-named",
            Self::Door(name) | Self::Milestone(name, _) | Self::Count(name, _) | Self::Noted(name) => name,
        }
    }
}

/// For [`Scenario::views_max`]: one view for each liar.
pub fn one_each(cluster: Cluster) -> u64 {
    u64::try_from(cluster.f()).unwrap_or(1)
}

/// Both sizes at which nearly every scenario runs: f = 1 and f = 2.
pub const BOTH: &[usize] = &[4, 7];

/// A named scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Its name; begins with its first key.
    pub name: &'static str,
    /// The faults of `docs/faults.md` that it shows.
    pub keys: &'static [&'static str],
    /// A description in one line.
    pub title: &'static str,
    /// The sizes of cluster, in replicas.
    pub sizes: &'static [usize],
    /// The events that must have happened in the end, each at least once.
    pub expects: &'static [Expect],
    /// The highest view that a correct replica may have come to in the end: a view change that is not
    /// needed is a fault as well.
    views_max: fn(Cluster) -> u64,
    with: fn(Setup) -> Setup,
    play: fn(&mut Stage) -> Ended,
}

impl Scenario {
    /// Returns a scenario without Byzantine replicas in which clients send requests from time to time.
    pub const fn new(name: &'static str, keys: &'static [&'static str], title: &'static str) -> Self {
        Self {
            name,
            keys,
            title,
            sizes: BOTH,
            expects: &[],
            views_max: |_| u64::MAX,
            with: |setup| setup,
            play: |stage| stage.busy(40),
        }
    }

    /// Returns the highest view that it may take.
    pub(super) fn most_views(&self, cluster: Cluster) -> u64 {
        (self.views_max)(cluster)
    }

    /// Returns the setup of its world, from the usual one.
    pub(super) fn set_up(&self, setup: Setup) -> Setup {
        (self.with)(setup)
    }

    /// Plays the story.
    pub(super) fn tell(&self, stage: &mut Stage) -> Ended {
        (self.play)(stage)
    }

    /// Sets what must have happened.
    #[must_use]
    pub const fn expects(mut self, expects: &'static [Expect]) -> Self {
        self.expects = expects;
        self
    }

    /// Sets the sizes of cluster.
    #[must_use]
    pub const fn sizes(mut self, sizes: &'static [usize]) -> Self {
        self.sizes = sizes;
        self
    }

    /// Sets the highest view that it may take.
    #[must_use]
    pub const fn views_max(mut self, views_max: fn(Cluster) -> u64) -> Self {
        self.views_max = views_max;
        self
    }

    /// Changes the world's setup: settings, liars, twins, network.
    #[must_use]
    pub const fn with(mut self, with: fn(Setup) -> Setup) -> Self {
        self.with = with;
        self
    }

    /// Sets the story. Without one, clients are busy until 40 batches are final.
    #[must_use]
    pub const fn play(mut self, play: fn(&mut Stage) -> Ended) -> Self {
        self.play = play;
        self
    }
}
