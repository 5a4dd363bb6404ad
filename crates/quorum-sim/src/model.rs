//! Network and processor models (§11): what a message and a signature cost.
//!
//! Time is in ticks. In the contention model a million ticks are the time that one message occupies
//! the network; elsewhere a million ticks are a millisecond.

use crate::geo;
use crate::rng::Rng;

/// Ticks of one unit of time.
pub const UNIT: u64 = 1_000_000;

/// What cryptography costs, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// To sign.
    pub sign: u64,
    /// To verify one signature.
    pub verify: u64,
}

/// How messages travel.
#[derive(Clone, Debug, PartialEq)]
pub enum Model {
    /// One shared network and a processor for each process [ICCCN00, on the contention model]: a message takes `lambda` at each
    /// processor and one unit of the network.
    Contention {
        /// In ticks.
        lambda: u64,
    },
    /// Machines of 2006 on a switch: processor time for each message at each end, and the wire.
    Lan {
        /// Processor time for a message, in ticks.
        cpu: u64,
        /// Time on the wire.
        wire: u64,
        /// How much of a hundred of the wire's time is added at random, exponentially.
        jitter: u64,
    },
    /// Regions of the world: half a round trip, with a random part of some percent.
    Geo {
        /// The region of each process, servers first.
        regions: Vec<usize>,
        /// The deviation of the random part, in percent.
        jitter: u64,
        /// Delays between places of one's own, in the place of those between regions.
        own: Option<geo::Delays>,
    },
}

impl Model {
    /// The contention model with this lambda, in thousandths.
    pub fn contention(thousandths: u64) -> Self {
        Self::Contention { lambda: thousandths * (UNIT / 1000) }
    }

    /// `sim2006` (§11.3): 0.27 ms for a message at each end, 0.1 ms on the wire.
    pub fn sim2006(jitter: u64) -> Self {
        Self::Lan { cpu: 270_000, wire: 100_000, jitter }
    }

    /// What the paper's signatures cost under this model (§11.2, §11.3): 14 ms and 0.9 ms; in the
    /// contention model with 100 ms for a unit of time.
    pub fn costs(&self) -> Costs {
        match self {
            Self::Contention { .. } => Costs { sign: 140_000, verify: 9_000 },
            Self::Lan { .. } => Costs { sign: 14 * UNIT, verify: 900_000 },
            Self::Geo { .. } => Costs::default(),
        }
    }

    /// Returns the name of the unit that latencies are told in.
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Contention { .. } => "s.t.u.",
            Self::Lan { .. } | Self::Geo { .. } => "ms",
        }
    }

    /// Returns the processor time that a message takes at an end.
    pub(crate) fn cpu(&self) -> u64 {
        match self {
            Self::Contention { lambda } => *lambda,
            Self::Lan { cpu, .. } => *cpu,
            Self::Geo { .. } => 0,
        }
    }

    /// Returns the time between the two ends, where no network is shared.
    pub(crate) fn wire(&self, from: usize, to: usize, rng: &mut Rng) -> Option<u64> {
        match self {
            Self::Contention { .. } => None,
            Self::Lan { wire, jitter, .. } => {
                let extra = -(1.0 - rng.fraction()).ln() * ticks(*wire) * ticks(*jitter) / 100.0;
                Some(*wire + whole(extra))
            }
            Self::Geo { regions, jitter, own } => {
                let at = |index: usize| regions.get(index).copied().unwrap_or(0);
                let half = match own {
                    Some(delays) => delays.between(at(from), at(to)),
                    None => geo::round_trip(at(from), at(to)) / 2.0,
                };
                let half = half * ticks(UNIT);
                // A normal variable by the sum of twelve uniform ones.
                let normal: f64 = (0..12).map(|_| rng.fraction()).sum::<f64>() - 6.0;
                Some(whole(half * (normal * ticks(*jitter) / 100.0).exp()))
            }
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "times are far below 2^53 ticks")]
pub(crate) fn ticks(number: u64) -> f64 {
    number as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are positive and small")]
fn whole(number: f64) -> u64 {
    number.max(0.0) as u64
}
