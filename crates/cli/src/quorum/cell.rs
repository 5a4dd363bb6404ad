//! `quorate quorum run`: one cell of an experiment, simulated.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use quorate_bench::bqs;
use quorate_bench::bqs::smr::{Faulty, SmrCell};
use quorate_bench::report::Shape;
use quorate_quorum_sim::cell::{Cell, Load, Row};
use quorate_quorum_sim::geo;
use quorate_quorum_sim::history::OperationKind;
use quorate_quorum_sim::model::Model;
use quorate_quorum_sim::placement::Placement;
use serde_json::json;

use super::name::{Name, VariantName, protocol};
use super::profiles;
use crate::code::Code;
use crate::fail::{CommandResult, Failure};
use crate::{out, values};

/// What is measured: a register, or replication as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Subject {
    /// Tolerates clients that crash
    Phalanx,
    /// Tolerates no faulty clients; uses no signatures
    MinimalC,
    /// Tolerates Byzantine clients
    MinimalF,
    /// Tolerates Byzantine clients. An administrator can stop a client, that is, take away its right to write. After
    /// that, only a few of the writes that it had begun can become visible. Writes are slower than with minimal-f
    BftBc,
    /// Not a register: replication with a leader, for comparison
    Smr,
}

/// What the measured client does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Measure {
    /// Read
    #[default]
    Read,
    /// Write
    Write,
}

/// Measure one register in simulation
///
/// The experiments follow the paper BQS08 (docs/papers.md). One client reads or writes, and its operations are
/// measured. Other clients can run at the same time, and servers can be faulty. Prints the latency with its 95 %
/// confidence interval, and the messages, bytes and signatures of an operation.
///
/// Checks that the operations were atomic: their results could come from operations that ran one after the other. Fails
/// if they were not.
///
/// --network selects the simulated network:
///
///   lan             the local network of BQS08, from 2006 (the default)
///   geo:C,S,S,...   a network between regions of the world: C is the region of the clients, each S the region of one
///                   server. The regions are DAL, FRA, LON, MAD, OSA, SAO, SYD, TOK, TOR and WDC
///   geo:FILE        a network with delays of your own. FILE has a line for each server, and then one for the clients.
///                   Each line has the delays to each server and to the clients, in milliseconds, separated by commas
///   sim:LAMBDA      an abstract network. All messages share one wire, which a message occupies for one unit of time.
///                   A message also takes LAMBDA units of its sender's processor, and LAMBDA units of its receiver's.
///                   LAMBDA is a number from 0 to 1000
///
/// Example:
///
///   quorate quorum run --protocol bft-bc --faulty 1 --readers 2 --measure write
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(super) struct RunCell {
    /// Protocol of the register. Required, unless --profile or --client-profile is `list`
    #[arg(long, value_enum, required_unless_present_any = ["profile", "client_profile"])]
    protocol: Option<Subject>,
    /// With --protocol smr: each operation meets a faulty leader that proposes nothing, as in the paper BQS08
    #[arg(long)]
    faulty_leader: bool,
    /// Variant of bft-bc (default optimized)
    #[arg(long, value_enum)]
    variant: Option<VariantName>,
    /// Number of faulty servers to tolerate: f of 3f + 1
    #[arg(long, value_name = "F", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=15))]
    f: u16,
    /// Number of servers that are faulty, at most f
    #[arg(long, value_name = "B", default_value_t = 0)]
    faulty: u16,
    /// What the faulty servers do: `list` prints the profiles
    #[arg(long, value_name = "NAME", default_value = "fake-value")]
    profile: String,
    /// What faulty clients do: `list` prints the profiles
    #[arg(long, value_name = "NAME")]
    client_profile: Option<String>,
    /// With --client-profile: number of faulty clients
    #[arg(long, value_name = "N", default_value_t = 1, requires = "client_profile")]
    faulty_clients: u16,
    /// What the measured client does
    #[arg(long, value_enum, default_value_t)]
    measure: Measure,
    /// Number of other clients that read at the same time
    #[arg(long, value_name = "R", default_value_t = 0)]
    readers: u16,
    /// With --measure read: another client writes at the same time
    #[arg(long)]
    writer: bool,
    /// Number of measured operations, after a warm-up of N / 10 operations
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = values::count)]
    operations: u64,
    /// Model of the network: lan, sim:LAMBDA, geo:CLIENT,SERVER,... or geo:FILE
    #[arg(long, value_name = "MODEL", default_value = "lan")]
    network: String,
    /// Pause of a client between operations, in microseconds. With --network sim, in thousandths of a unit of time
    #[arg(long, value_name = "T", default_value_t = 10_000)]
    think: u64,
    /// Let all processes share five machines, as in the paper BQS08 (default: a machine for each process)
    #[arg(long)]
    five_machines: bool,
    /// Seed of the random numbers
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Subject {
    /// Returns the register. None: it is replication.
    pub(super) fn register(self) -> Option<Name> {
        match self {
            Self::Phalanx => Some(Name::Phalanx),
            Self::MinimalC => Some(Name::MinimalC),
            Self::MinimalF => Some(Name::MinimalF),
            Self::BftBc => Some(Name::BftBc),
            Self::Smr => None,
        }
    }
}

impl RunCell {
    pub(super) fn run(&self) -> CommandResult {
        if [Some(&self.profile), self.client_profile.as_ref()].contains(&Some(&"list".to_owned())) {
            profiles::list();
            return Ok(ExitCode::SUCCESS);
        }
        let Some(subject) = self.protocol else {
            return Err(Failure::new(Code::Usage, "--protocol is missing")
                .next("quorate quorum run --protocol minimal-c"));
        };
        let kind = match self.measure {
            Measure::Read => OperationKind::Read,
            Measure::Write => OperationKind::Write,
        };
        let operations = usize::try_from(self.operations).unwrap_or(usize::MAX);
        let model = self.model()?;
        let unit = model.unit();
        let Some(name) = subject.register() else {
            return self.replication(SmrCell::new(self.f, kind, model), operations, unit);
        };
        if self.faulty_leader {
            let what = "a register has no leader";
            return Err(Failure::new(Code::Value, what).at("--faulty-leader"));
        }
        let mut cell = Cell::new(protocol(name, self.variant)?, self.f, kind, model);
        cell.faulty = self.faulty;
        cell.profile = profiles::of_servers(&self.profile, cell.protocol)?;
        if let Some(name) = &self.client_profile {
            cell.rogues = Some((self.faulty_clients, profiles::of_clients(name, cell.protocol)?));
        }
        cell.load = self.load(cell.load, operations);
        cell.settings().map_err(|says| Failure::new(Code::Value, says))?;
        let row = cell.run().map_err(|says| Failure::new(Code::Stuck, says))?;
        self.finish(cell.protocol.name(), unit, row)
    }

    fn load(&self, load: Load, operations: usize) -> Load {
        let Self { readers, writer, seed, think, .. } = *self;
        let placement = if self.five_machines { Placement::Five } else { Placement::Own };
        Load { readers, writer, operations, warm_up: operations / 10, think, placement, seed, ..load }
    }

    fn replication(&self, mut cell: SmrCell, operations: usize, unit: &str) -> CommandResult {
        if self.variant.is_some() || self.client_profile.is_some() {
            let what = "replication is measured without variants, and with correct clients";
            return Err(Failure::new(Code::Value, what).at("--protocol"));
        }
        let leader = profiles::of_leaders(&self.profile, self.f)?;
        if self.faulty > self.f {
            let what = format!("{} faulty servers, at most f = {}", self.faulty, self.f);
            return Err(Failure::new(Code::Value, what).at("--faulty"));
        }
        cell.faulty = match (self.faulty_leader, self.faulty, leader) {
            (true, ..) => Faulty::Proposer,
            (false, 0, _) => Faulty::Nobody,
            (false, b, None) => Faulty::Acceptors(b),
            (false, b, Some(leader)) => Faulty::Leader(leader, b - 1),
        };
        cell.load = self.load(cell.load, operations);
        let row = cell.run().map_err(|error| Failure::new(Code::Value, format!("{error:#}")))?;
        self.finish("smr", unit, row)
    }

    fn finish(&self, name: &str, unit: &str, row: Row) -> CommandResult {
        self.print(name, unit, &row);
        match row.verdict {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(says) => Err(Failure::new(Code::Violation, says)),
        }
    }

    fn model(&self) -> Result<Model, Failure> {
        let wrong = |says: String| Failure::new(Code::Value, says).at("--network");
        if self.network == "lan" {
            return Ok(Model::sim2006(30));
        }
        if let Some(lambda) = self.network.strip_prefix("sim:") {
            let lambda: f64 = lambda.parse().map_err(|_| wrong(format!("`{lambda}` is not a number")))?;
            if !(0.0..=1000.0).contains(&lambda) {
                return Err(wrong("lambda is from 0 to 1000".to_string()));
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1000000")]
            return Ok(Model::contention((lambda * 1000.0).round() as u64));
        }
        let Some(regions) = self.network.strip_prefix("geo:") else {
            return Err(wrong(format!("no network `{}`", self.network)));
        };
        if !regions.contains(',') {
            return self.delays(regions);
        }
        let find = |name: &str| {
            geo::region(name).ok_or_else(|| wrong(format!("no region `{name}`: {}", geo::REGIONS.join(", "))))
        };
        let mut regions: Vec<usize> = regions.split(',').map(find).collect::<Result<_, _>>()?;
        let servers = usize::from(self.f) * 3 + 1;
        if regions.len() != servers + 1 {
            return Err(wrong(format!("one region for clients and {servers} for servers")));
        }
        // The cell has servers first, and clients in the last region.
        regions.rotate_left(1);
        Ok(Model::Geo { regions, jitter: 5, own: None })
    }

    /// Reads delays between places of one's own, servers first and clients last.
    fn delays(&self, file: &str) -> Result<Model, Failure> {
        let text = std::fs::read_to_string(file).map_err(|error| {
            Failure::new(Code::Unreadable, format!("cannot be read: {error}")).at(file.to_owned())
        })?;
        let places = usize::from(self.f) * 3 + 2;
        let own = geo::Delays::parse(&text, places)
            .map_err(|says| Failure::new(Code::Value, says).at(file.to_owned()))?;
        Ok(Model::Geo { regions: (0..places).collect(), jitter: 5, own: Some(own) })
    }

    fn print(&self, name: &str, unit: &str, row: &Row) {
        let (latency, measure) = (&row.latency, format!("{:?}", self.measure).to_lowercase());
        if self.json {
            return out::line(json!({
                "protocol": name, "f": self.f, "b": self.faulty, "readers": self.readers,
                "profile": self.profile, "client_profile": self.client_profile,
                "writer": self.writer, "measure": measure,
                "network": self.network, "seed": self.seed, "unit": unit, "operations": latency.len(),
                "mean": latency.mean(), "deviation": latency.deviation(), "interval95": latency.interval(),
                "p50": latency.percentile(50.0), "p90": latency.percentile(90.0),
                "p99": latency.percentile(99.0), "fast": row.fast, "write_back": row.write_back,
                "listener_any": row.listener_any, "listener_needed": row.listener_needed,
                "two_phase": row.two_phase, "messages": row.messages, "bytes": row.bytes,
                "signatures": row.signs, "verifications": row.verifies, "atomic": row.verdict.is_ok(),
            }));
        }
        out::line(format!(
            "{}, f = {}, b = {}, {} other readers, {} {}s on {}",
            name,
            self.f,
            self.faulty,
            self.readers,
            latency.len(),
            measure,
            self.network
        ));
        out::line(format!(
            "  latency       {:.2} +- {:.2} {unit} (deviation {:.2}, p50 {:.2}, p99 {:.2})",
            latency.mean(),
            latency.interval(),
            latency.deviation(),
            latency.percentile(50.0),
            latency.percentile(99.0)
        ));
        out::line(format!(
            "  operations    {:.1} % without an extra phase, {:.1} % with a write-back, {:.1} % in two phases",
            row.fast, row.write_back, row.two_phase
        ));
        out::line(format!(
            "  forwarded     {:.1} % received a forwarded value, {:.1} % were decided by one",
            row.listener_any, row.listener_needed
        ));
        out::line(format!(
            "  an operation  {:.1} messages, {:.0} bytes, {:.2} signatures, {:.2} verifications, over {} operations of \
             all clients",
            row.messages, row.bytes, row.signs, row.verifies, row.operations
        ));
    }
}

/// Check the statements of the paper BQS08 in simulation
///
/// The paper compares registers of several protocols. A shape is a statement of the paper about such a
/// comparison. For each statement, prints whether it holds, the measured values, and the experiment of `quorate
/// bench run` that also checks it. Exit status 1 if a statement does not hold.
///
/// Example:
///
///   quorate quorum shapes --operations 200
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Shapes {
    /// Number of operations in each measurement
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = values::count)]
    operations: u64,
}

impl Shapes {
    pub(super) fn run(&self) -> CommandResult {
        let operations = usize::try_from(self.operations).unwrap_or(usize::MAX);
        let (mut missed, mut all) = (0_usize, 0_usize);
        let each = |panel: &str, shape: &Shape| {
            (missed, all) = (missed + usize::from(!shape.held), all + 1);
            let mark = if shape.held { "held    " } else { "not held" };
            out::line(format!("{mark} {panel:<7} {}\n                 {}", shape.name, shape.evidence));
        };
        bqs::shapes(operations, each).map_err(|error| Failure::new(Code::Violation, format!("{error:#}")))?;
        if missed == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        Err(Failure::new(Code::Bound, format!("{missed} of {all} statements do not hold")))
    }
}
