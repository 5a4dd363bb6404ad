//! The simulator's liars as real processes. A liar is a core like a replica, and `node` drives any core; this is the
//! only module that joins the two.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorate_node::{Core, Place};
use quorate_pbft::step::{Actions, Input, Now};
use quorate_pbft::{Config, Replica};
use quorate_sim::adversary::named::{self, NAMED, Slow};
use quorate_sim::adversary::{Liar, Lying};
use quorate_sim::core::HostCore as _;
use quorate_sim::rng::{Concern, Rng};
use quorate_wire::Kind;
use quorate_wire::sign::Signer;

use crate::code::Code;
use crate::fail::{Failure, nearest};
use crate::{out, values};

/// A way of lying, as given on the command line: a name, or `slow:TIME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) name: String,
    /// The delay, for `slow`.
    pub(crate) by: Option<Duration>,
}

impl Way {
    /// Parses a way of lying.
    pub(crate) fn read(text: &str) -> Result<Self, Failure> {
        let (name, by) = match text.split_once(':') {
            Some(("slow", by)) => {
                let by = values::duration(by)
                    .map_err(|why| Failure::new(Code::Value, format!("`{text}`: {why}")).at("--liar"))?;
                ("slow", Some(by))
            }
            _ => (text, None),
        };
        if named::make(name).is_none() {
            let near = nearest(name, named::names()).map(|near| format!(". Nearest: {near}"));
            return Err(Failure::new(Code::Value, format!("no liar `{name}`{}", near.unwrap_or_default()))
                .at("--liar")
                .next("quorate replica --liar list"));
        }
        Ok(Self { name: name.to_owned(), by })
    }

    /// Returns its form on the command line.
    pub(crate) fn typed(&self) -> String {
        self.by.map_or_else(|| self.name.clone(), |by| format!("{}:{}ms", self.name, by.as_millis()))
    }

    /// Describes it in one line.
    pub(crate) fn says(&self) -> String {
        match self.by {
            Some(by) => format!("sends every message {} ms late", by.as_millis()),
            None => NAMED.iter().find(|named| named.name == self.name).map_or_else(
                || format!("behaves like `{}` of the simulator", self.name),
                |it| it.says.into(),
            ),
        }
    }

    fn make(&self) -> Box<dyn Liar> {
        match (self.by, named::make(&self.name)) {
            (Some(by), _) => {
                Box::new(Slow { by_ns: u64::try_from(by.as_nanos()).unwrap_or(u64::MAX) }) as Box<dyn Liar>
            }
            (None, Some(liar)) => liar,
            (None, None) => unreachable!("the name was looked up when it was read"),
        }
    }

    /// Puts the liar in front of a replica.
    pub(crate) fn put(
        &self,
        replica: Replica,
        signer: Signer,
        config: &Config,
        seed: u64,
        told: Arc<AtomicU64>,
    ) -> LiarCore {
        let rng = Rng::new(seed, Concern::Adversary);
        LiarCore { lying: Lying::new(replica, self.make(), signer, config.clone(), rng), told, dead: false }
    }
}

/// Lists the liars.
pub(crate) fn list() {
    for named in NAMED {
        out::line(format!("{:<14}{}", named.name, named.says));
    }
    out::line("slow:TIME     sends every message that much late, such as slow:200ms");
    let rest: Vec<&str> = named::names().skip(NAMED.len()).collect();
    out::line("");
    out::line("and the other liars of the simulator; docs/faults.md describes them:");
    for row in rest.chunks(8) {
        out::line(format!("  {}", row.join(" ")));
    }
}

/// A liar in front of a replica, as a process runs it.
#[derive(Debug)]
pub(crate) struct LiarCore {
    lying: Lying,
    /// The number of lies told so far; others read it.
    told: Arc<AtomicU64>,
    dead: bool,
}

impl LiarCore {
    /// Counts the lies, and logs the count at 1, 2, 4, 8 and so on.
    fn note(&mut self) {
        let told = self.lying.lies();
        let before = self.told.swap(told, Ordering::Relaxed);
        if before.checked_ilog2() != told.checked_ilog2() {
            tracing::warn!(told, "has told lies on purpose");
        }
        if self.lying.is_dead() && !self.dead {
            self.dead = true;
            tracing::warn!("its own replica accepted the lies and stopped: it sends nothing from now on");
        }
    }
}

impl Core for LiarCore {
    fn step(&mut self, now: Now, input: Input<'_>, out: &mut Actions) {
        self.lying.step(now, input, out);
        self.note();
    }

    fn replica(&self) -> &Replica {
        self.lying.replica()
    }

    fn shut_down(&mut self, now: Now, out: &mut Actions) {
        self.lying.shut_down(now, out);
    }

    fn overhear(&mut self, frame: &[u8]) {
        self.lying.overhear(frame);
    }

    fn answer(&mut self, kind: Kind, body: &mut Vec<u8>) -> bool {
        self.lying.answer(kind, body)
    }

    fn is_byzantine(&self) -> bool {
        true
    }

    fn tampers(&self) -> bool {
        self.lying.tampers()
    }

    fn tamper(&mut self, to: Place, frame: &mut Vec<u8>) -> bool {
        self.lying.tamper(to, frame)
    }

    fn due(&self) -> u64 {
        self.lying.due()
    }

    fn wake(&mut self, now: Now, out: &mut Actions) {
        self.lying.wake(now, out);
    }
}
