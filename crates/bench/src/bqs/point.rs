//! One point of a figure: a register or replication, its faults and readers, and its row.

use anyhow::{Result, anyhow};
use quorate_quorum::Protocol;
use quorate_quorum::settings::Variant;
use quorate_quorum_sim::cell::{self, Load};
use quorate_quorum_sim::history::OperationKind;
use quorate_quorum_sim::model::{Costs, Model};
use quorate_quorum_sim::placement::Placement;
use quorate_quorum_sim::profile::Profile;

use super::smr::{Faulty, SmrCell};
use super::sockets::{self, Measured};
use crate::cable::Cable;
use crate::report::{Cell, Row};
use crate::signatures::Signatures;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arm {
    /// A register without a leader.
    Register(Protocol),
    /// The register on replication.
    Smr,
    /// The same, with one request in each instance of agreement.
    SmrUnbatched,
    /// The same as [`Self::Smr`], but replicas answer as soon as an operation is prepared: it is decided in two steps of
    /// communication among them, if nobody is faulty.
    SmrEarly,
}

pub(super) const C: Arm = Arm::Register(Protocol::MinimalC);
pub(super) const PHX: Arm = Arm::Register(Protocol::Phalanx);
pub(super) const F: Arm = Arm::Register(Protocol::MinimalF);
pub(super) const BC: Arm = Arm::Register(Protocol::BftBc(Variant::Optimized));
pub(super) const SMR: Arm = Arm::Smr;
pub(super) const EARLY: Arm = Arm::SmrEarly;
pub(super) const UNBATCHED: Arm = Arm::SmrUnbatched;

impl Arm {
    /// Returns its name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Register(protocol) => protocol.name(),
            Self::Smr => "smr",
            Self::SmrUnbatched => "smr-unbatched",
            Self::SmrEarly => "smr-early",
        }
    }

    /// Returns the protocol's name and that of the variant.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Register(Protocol::BftBc(_)) => ("bft-bc", self.name().trim_start_matches("bft-bc-")),
            Self::Register(_) => (self.name(), ""),
            Self::Smr => ("smr", "first-replies"),
            Self::SmrUnbatched => ("smr", "first-replies, unbatched"),
            Self::SmrEarly => ("smr", "first-replies, early"),
        }
    }
}

/// Where a point is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// In the simulator.
    #[default]
    Simulated,
    /// On sockets, with these signatures.
    Sockets(Signatures),
}

fn simulated(row: cell::Row) -> Measured {
    Measured { row, late_us: None }
}

/// A point. See the module.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) arm: Arm,
    pub(super) f: u16,
    pub(super) b: u16,
    pub(super) profile: Profile,
    /// The faulty server is the leader of every instance. Registers have none: it is one of the faulty servers.
    pub(super) leads: bool,
    pub(super) kind: OperationKind,
    pub(super) readers: u16,
    pub(super) writer: bool,
    pub(super) model: Model,
    pub(super) costs: Option<Costs>,
    pub(super) operations: usize,
    pub(super) think: u64,
    pub(super) placement: Placement,
    pub(super) place: Place,
    /// On sockets: the links of the machines.
    pub(super) cable: Option<Cable>,
}

impl Point {
    /// Returns a point without concurrency, on machines of 2006.
    pub(super) fn new(arm: Arm, kind: OperationKind, (f, b): (u16, u16), operations: usize) -> Self {
        Self {
            arm,
            f,
            b,
            profile: Profile::FakeValue,
            leads: false,
            kind,
            readers: 0,
            writer: false,
            model: Model::sim2006(0),
            costs: None,
            operations,
            think: 20_000,
            placement: Placement::Own,
            place: Place::Simulated,
            cable: None,
        }
    }

    /// Returns a point with readers, and with a writer beside a measured reader: with jitter, so that they drift.
    pub(super) fn among(
        arm: Arm,
        kind: OperationKind,
        faults: (u16, u16),
        readers: u16,
        operations: usize,
    ) -> Self {
        let (model, think) = (Model::sim2006(30), 10_000);
        Self { readers, writer: true, model, think, ..Self::new(arm, kind, faults, operations) }
    }

    /// Measures it. Whatever else it finds, a history that is not atomic is an error.
    pub(super) fn measure(&self) -> Result<Row> {
        let Measured { row, late_us } = match self.arm {
            Arm::Register(protocol) => {
                let mut cell = cell::Cell::new(protocol, self.f, self.kind, self.model.clone());
                (cell.faulty, cell.profile, cell.load) = (self.b, self.profile, self.load(self.writer));
                match self.place {
                    Place::Simulated => {
                        simulated(cell.run().map_err(|says| anyhow!("{}: {says}", self.title()))?)
                    }
                    Place::Sockets(signatures) => sockets::register(&cell, signatures, self.cable)?,
                }
            }
            Arm::Smr | Arm::SmrUnbatched | Arm::SmrEarly => {
                let mut cell = SmrCell::new(self.f, self.kind, self.model.clone());
                cell.load = self.load(self.writer && self.kind == OperationKind::Read);
                cell.faulty = match (self.leads, self.b) {
                    (true, _) => Faulty::Proposer,
                    (false, 0) => Faulty::Nobody,
                    (false, b) => Faulty::Acceptors(b),
                };
                (cell.batching, cell.tentative) = (self.arm != Arm::SmrUnbatched, self.arm == Arm::SmrEarly);
                match self.place {
                    Place::Simulated => simulated(cell.run()?),
                    Place::Sockets(_) => sockets::replication(&cell, self.cable)?,
                }
            }
        };
        row.verdict.clone().map_err(|says| anyhow!("{}: not atomic: {says}", self.title()))?;
        Ok(self.row(&row, late_us))
    }

    fn load(&self, writer: bool) -> Load {
        Load {
            readers: self.readers,
            writer,
            operations: self.operations,
            warm_up: self.operations / 10,
            think: self.think,
            costs: self.costs,
            placement: self.placement,
            ..Load::new(self.f, self.kind, self.model.clone())
        }
    }

    fn title(&self) -> String {
        let (Self { f, b, readers, .. }, name) = (self, self.arm.name());
        format!("{name}, f = {f}, b = {b}, {readers} other readers, {:?}s", self.kind)
    }

    fn row(&self, row: &cell::Row, late_us: Option<(f64, f64)>) -> Row {
        let (latency, (protocol, variant)) = (&row.latency, self.arm.names());
        let mean = latency.mean();
        let fault = if self.leads { ", the leader of replication" } else { "" };
        let profile = if self.b == 0 { "failure-free".to_owned() } else { self.profile.name() };
        let model = match (self.place, &self.model) {
            (Place::Sockets(signatures), _) => format!("sockets, {}", signatures.name()),
            (_, Model::Contention { .. }) => "contention".to_owned(),
            (_, Model::Lan { .. }) if self.costs.is_some() => "lan, costs of today".to_owned(),
            (_, Model::Lan { .. }) => "lan of 2006".to_owned(),
            (_, Model::Geo { .. }) => "geo".to_owned(),
        };
        let machines = if self.placement == Placement::Five { "5" } else { "own" };
        let where_it_is = match (self.place, self.placement) {
            (Place::Sockets(Signatures::Emulated), Placement::Own) => " sockets",
            (Place::Sockets(Signatures::Emulated), Placement::Five) => " sockets 5 machines",
            (Place::Sockets(signatures), _) => &format!(" {}", signatures.name()),
            (Place::Simulated, Placement::Own) => "",
            (Place::Simulated, Placement::Five) => " 5 machines",
        };
        let in_ms = self.model.unit() == "ms";
        Row {
            system: "quorate".to_owned(),
            variant: self.arm.name().to_owned(),
            op: format!("f={} b={}{fault} readers={}{where_it_is}", self.f, self.b, self.readers),
            mode: if self.kind == OperationKind::Read { "read" } else { "write" }.to_owned(),
            n: Some(3 * self.f + 1),
            f: Some(self.f),
            clients: 1 + u32::from(self.readers) + u32::from(self.writer && self.kind == OperationKind::Read),
            repeats: 1,
            p50_us: in_ms.then(|| latency.percentile(50.0) * 1000.0),
            p99_us: in_ms.then(|| latency.percentile(99.0) * 1000.0),
            unit: self.model.unit().to_owned(),
            samples: vec![mean],
            cell: Some(Cell {
                protocol: protocol.to_owned(),
                variant: variant.to_owned(),
                b: self.b,
                profile,
                model,
                machines: machines.to_owned(),
                late_us,
                readers: self.readers,
                mean,
                deviation: latency.deviation(),
                interval95: latency.interval(),
                fast: row.fast,
                write_back: row.write_back,
                listener_any: row.listener_any,
                listener_needed: row.listener_needed,
                extra_msgs: row.extra,
                two_phase: row.two_phase,
                messages: row.messages,
                bytes: row.bytes,
                signatures: row.signs,
                verifications: row.verifies,
                operations: row.operations,
                atomic: row.verdict.is_ok(),
            }),
            ..Row::default()
        }
    }
}
