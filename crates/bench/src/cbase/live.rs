//! A cluster as in production, with the null service, under two loads at the same time: one of long operations, and
//! another one. During the loads, its replicas are asked for their status.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use quorate_node::observe::Observer;
use quorate_node::settings::ServiceName;

use crate::figures::median;
use crate::load::{Load, Op, Sample, Until};
use crate::nodes::Nodes;
use crate::processes::Part;
use crate::report::{Row, Shape};

/// How long a long operation takes, in microseconds.
pub(super) const LONG_US: u32 = 20_000;
/// Long operations that are queued while the status is asked for, and what an answer may take, in milliseconds.
const QUEUED: u16 = 200;
const STATUS_MS_MAX: f64 = 100.0;
/// A replica does not answer a client more often.
const BETWEEN: Duration = Duration::from_millis(250);

/// An arm: its name, and the settings of its replicas.
pub(super) type Settings = (&'static str, &'static [(&'static str, &'static str)]);

pub(super) struct Live {
    name: &'static str,
    _nodes: Nodes,
    long: Part,
    other: Part,
    observer: Observer,
}

/// What a process of clients is told, and what it says.
fn tell(part: &mut Part, lanes: u16, until: Until, op: Op) -> Result<()> {
    part.tell(&Load { lanes, until, op }.line())
}

fn said(part: &mut Part) -> Result<Sample> {
    let sample = serde_json::from_str(&part.line()?)?;
    let _moments = part.line()?;
    Ok(sample)
}

impl Live {
    pub(super) fn start((name, settings): Settings) -> Result<Self> {
        let mut nodes = Nodes::make("live", ServiceName::NULL, "memory", settings)?;
        nodes.start_replicas()?;
        let (long, other) = (nodes.host_of(0)?, nodes.host_of(1)?);
        let observer = Observer::open(&nodes.cluster()).map_err(|trouble| anyhow!("{trouble}"))?;
        let mut live = Self { name, _nodes: nodes, long, other, observer };
        // The first operation of a lane depends on all others.
        for part in [&mut live.long, &mut live.other] {
            tell(part, QUEUED, Until::Ops(1), Op::rw(0, 0))?;
            said(part).with_context(|| format!("{name} while warming up"))?;
        }
        Ok(live)
    }

    /// Measures an operation while this number of long operations are in progress.
    pub(super) fn beside(&mut self, long: u16, clients: u16, op: Op, ms: u64) -> Result<Sample> {
        if long > 0 {
            tell(&mut self.long, long, Until::Ms(ms + 200), Op::waiting(LONG_US))?;
            thread::sleep(Duration::from_millis(100));
        }
        tell(&mut self.other, clients, Until::Ms(ms), op)?;
        let sample = said(&mut self.other).with_context(|| self.name)?;
        if long > 0 {
            said(&mut self.long).with_context(|| self.name)?;
        }
        Ok(sample)
    }

    fn view_changes(&self) -> u64 {
        let picture = self.observer.look();
        picture.replicas.iter().filter_map(|health| Some(health.says.as_ref()?.view_changes)).sum()
    }

    /// Asks the replicas for their status while long operations are queued. Returns a row, and what it states.
    pub(super) fn ask(&mut self, ms: u64) -> Result<(Row, Shape)> {
        let before = self.view_changes();
        tell(&mut self.long, QUEUED, Until::Ms(ms), Op::waiting(LONG_US))?;
        let (begin, mut took_us, mut silent) = (Instant::now(), Vec::new(), 0);
        while took_us.is_empty() || begin.elapsed() < Duration::from_millis(ms) {
            thread::sleep(BETWEEN);
            let start = Instant::now();
            let picture = self.observer.look();
            took_us.push(start.elapsed().as_secs_f64() * 1e6);
            silent += picture.replicas.iter().filter(|health| health.says.is_none()).count();
        }
        said(&mut self.long).with_context(|| self.name)?;
        let changes = self.view_changes() - before;
        let most_ms = took_us.iter().copied().fold(0.0, f64::max) / 1e3;
        let shape = Shape::new(
            format!(
                "{}, {QUEUED} operations of 20 ms queued: no view change, and a status in under {STATUS_MS_MAX} ms",
                self.name
            ),
            changes == 0 && silent == 0 && most_ms < STATUS_MS_MAX,
            format!("{changes} view changes, {silent} answers missing, at most {most_ms:.1} ms"),
        );
        let row = Row { p50_us: Some(median(&took_us)), ..self.row("status", "ro", QUEUED, took_us) };
        Ok((row, shape))
    }

    /// Returns a row about it, with microseconds as samples.
    pub(super) fn row(&self, op: &str, mode: &str, clients: u16, samples: Vec<f64>) -> Row {
        Row {
            system: "quorate".to_owned(),
            variant: self.name.to_owned(),
            op: op.to_owned(),
            mode: mode.to_owned(),
            n: Some(4),
            f: Some(1),
            clients: u32::from(clients),
            repeats: samples.len(),
            durability: Some("memory".to_owned()),
            unit: "us".to_owned(),
            samples,
            ..Row::default()
        }
    }
}
