//! One cell of an experiment: a register, its faults, its readers, and what the measured client saw
//! (§9, §12).

use quorate_quorum::settings::{ClientAuth, Ts};
use quorate_quorum::step::Path;
use quorate_quorum::{Protocol, Settings, Thresholds};

use crate::checker;
use crate::client_profile::ClientProfile;
use crate::guest::Guest;
use crate::history::OperationKind;
use crate::keys::Jobs;
use crate::lab::{Lab, Loop, Measured, Traffic};
use crate::model::{Costs, Model, UNIT};
use crate::placement::Placement;
use crate::profile::{Behaviour, Liar, Profile};
use crate::stats::Samples;

/// Who works, and for how long: what the cells of all registers have, those of replication too.
#[derive(Clone, Debug)]
pub struct Load {
    /// How many liars are tolerated.
    pub f: u16,
    /// What the measured client does.
    pub kind: OperationKind,
    /// Other readers.
    pub readers: u16,
    /// Whether a writer runs beside a measured reader.
    pub writer: bool,
    /// Measured operations.
    pub operations: usize,
    /// Operations before them that are not counted.
    pub warm_up: usize,
    /// Thinking time of every client, in thousandths of the model's unit.
    pub think: u64,
    /// Network and processors.
    pub model: Model,
    /// What cryptography costs, if not what it costs under the model.
    pub costs: Option<Costs>,
    /// On which machines processes run.
    pub placement: Placement,
    /// What chance is drawn from.
    pub seed: u64,
}

impl Load {
    /// One client that thinks for ten units between operations.
    pub fn new(f: u16, kind: OperationKind, model: Model) -> Self {
        Self {
            f,
            kind,
            readers: 0,
            writer: false,
            operations: 1000,
            warm_up: 100,
            think: 10_000,
            model,
            costs: None,
            placement: Placement::Own,
            seed: 1,
        }
    }

    /// Returns what cryptography costs.
    pub fn costs(&self) -> Costs {
        self.costs.unwrap_or_else(|| self.model.costs())
    }
}

/// What is measured, and under which load.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The register.
    pub protocol: Protocol,
    /// Who works.
    pub load: Load,
    /// How many liars there are: the servers with the lowest numbers, the first to be sent to.
    pub faulty: u16,
    /// What they do.
    pub profile: Profile,
    /// Clients that are not good: how many, and what they do.
    pub rogues: Option<(u16, ClientProfile)>,
    /// How clients of BFT-BC authenticate.
    pub client_auth: ClientAuth,
    /// MINIMAL-F: relay before the acknowledgement.
    pub relay_first: bool,
    /// Another register in the place of `protocol`.
    pub guest: Option<Guest>,
}

/// What a cell measured.
#[derive(Clone, Debug)]
pub struct Row {
    /// Latencies, in units of the model.
    pub latency: Samples,
    /// Of a hundred operations, how many had this path.
    pub fast: f64,
    /// Reads that wrote back.
    pub write_back: f64,
    /// Reads for which a forwarded store arrived.
    pub listener_any: f64,
    /// Reads that a forwarded store decided.
    pub listener_needed: f64,
    /// Writes in two phases.
    pub two_phase: f64,
    /// Messages that an undisturbed operation does not have: VALs received above n, and messages of write-backs.
    pub extra: f64,
    /// Everything that all processes did, for each operation of all clients.
    pub messages: f64,
    /// Bytes, without frames.
    pub bytes: f64,
    /// Signatures made.
    pub signs: f64,
    /// Signatures verified.
    pub verifies: f64,
    /// Operations of all clients.
    pub operations: usize,
    /// What the history checkers say.
    pub verdict: Result<(), String>,
}

impl Cell {
    /// A cell without faults or concurrency, as in the paper: MACs for clients, QTS, no FACK, no cache.
    pub fn new(protocol: Protocol, f: u16, kind: OperationKind, model: Model) -> Self {
        Self {
            protocol,
            load: Load::new(f, kind, model),
            faulty: 0,
            profile: Profile::FakeValue,
            rogues: None,
            client_auth: ClientAuth::Mac,
            relay_first: false,
            guest: None,
        }
    }

    /// Returns the settings of the protocol.
    ///
    /// # Errors
    ///
    /// The cell makes no sense.
    pub fn settings(&self) -> Result<Settings, String> {
        let thresholds = Thresholds::tolerating(self.load.f).map_err(|error| error.to_string())?;
        if self.faulty > self.load.f {
            return Err(format!("{} faulty servers, at most f = {}", self.faulty, self.load.f));
        }
        let mut settings = Settings::new(thresholds, self.protocol);
        settings.timing.first = 0;
        settings.timing.lease = 0;
        settings.ts = Ts::Query;
        settings.fack = false;
        settings.complete = false;
        settings.late = false;
        settings.cache = false;
        settings.client_auth = self.client_auth;
        settings.relay_first = self.relay_first;
        Ok(settings)
    }

    /// Returns what a faulty server does.
    pub fn behave(&self) -> Box<dyn Behaviour + Send> {
        self.guest.map_or_else(|| Box::new(Liar::new(self.profile, 0)) as _, |guest| guest.behave(0))
    }

    /// Measures it. An error: the cell makes no sense, or the measured client did not end.
    pub fn run(&self) -> Result<Row, String> {
        let load = &self.load;
        let mut model = load.model.clone();
        if let Model::Geo { regions, .. } = &mut model {
            let own = regions.last().copied().unwrap_or(0);
            regions.resize(64, own);
        }
        let costs = load.costs();
        let mut lab = Lab::new((self.settings()?, self.guest), (model, costs, load.placement), load.seed);
        // A value is there before anything is measured, written by the writer while nobody lies.
        let once = Loop { kind: OperationKind::Write, think: 0, operations: 1 };
        let writer = lab.client(once, 0, usize::from(load.kind == OperationKind::Read));
        lab.run(None);
        for server in 0..usize::from(self.faulty) {
            lab.corrupt(server, self.behave());
        }
        lab.settle();
        let before = lab.history.operations.len();
        let think = load.think * (UNIT / 1000);
        let endless = |kind| Loop { kind, think, operations: 0 };
        let measured = Loop { kind: load.kind, think, operations: load.operations + load.warm_up };
        let measured = if load.kind == OperationKind::Write {
            lab.again(writer, measured);
            writer
        } else {
            if load.writer {
                lab.again(writer, endless(OperationKind::Write));
            }
            lab.client(measured, 1, 0)
        };
        for reader in 0..load.readers {
            let place = usize::from(reader) + 1 + usize::from(load.kind == OperationKind::Read);
            lab.client(endless(OperationKind::Read), 1 + u64::from(reader + 1) * UNIT / 7, place);
        }
        if let Some((number, profile)) = self.rogues {
            let others = usize::from(load.readers) + 1 + usize::from(load.kind == OperationKind::Read);
            for rogue in 0..usize::from(number) {
                lab.rogue(profile, think, others + rogue);
            }
        }
        if !lab.run(Some(measured)) {
            return Err(match lab.failed(measured) {
                Some(failure) => format!("an operation of the measured client failed: {failure}"),
                None => "an operation of the measured client never ended".to_string(),
            });
        }
        let samples = lab.samples(measured, load.warm_up);
        let done = lab.history.operations[before..].iter().filter(|one| one.responded.is_some()).count();
        Ok(Row::of(&samples, lab.traffic(), done, checker::check(&lab.history)))
    }
}

impl Row {
    /// Returns what came of a run: the measured operations, what all processes did, and how many operations of all clients
    /// have ended.
    pub fn of(samples: &[Measured], traffic: Traffic, done: usize, verdict: Result<(), String>) -> Self {
        let count = |wanted: &dyn Fn(&Measured) -> bool| {
            let number = samples.iter().filter(|sample| wanted(sample)).count();
            100.0 * share(number, samples.len())
        };
        let mean = |of: &dyn Fn(&Measured) -> i64| {
            let all: i64 = samples.iter().map(of).sum();
            share(usize::try_from(all).unwrap_or(0), samples.len())
        };
        let each = |number: u64| share(usize::try_from(number).unwrap_or(usize::MAX), done);
        let Traffic { messages, bytes, jobs: Jobs { signs, verifies } } = traffic;
        Self {
            latency: Samples::new(samples.iter().map(|sample| sample.latency).collect()),
            fast: count(&|sample| sample.path == Path::Fast),
            write_back: count(&|sample| sample.path == Path::WriteBack),
            listener_any: count(&|sample| sample.listener_any),
            listener_needed: count(&|sample| sample.path == Path::ListenerNeeded),
            extra: mean(&|sample| sample.extra.max(0)),
            two_phase: count(&|sample| sample.path == Path::TwoPhase),
            messages: each(messages),
            bytes: each(bytes),
            signs: each(signs),
            verifies: each(verifies),
            operations: done,
            verdict,
        }
    }
}

fn share(part: usize, of: usize) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    let share = part as f64 / (of.max(1) as f64);
    share
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_quorum::settings::Variant;

    const OPTIMIZED: Protocol = Protocol::BftBc(Variant::Optimized);
    const BASE: Protocol = Protocol::BftBc(Variant::Base);

    fn once(protocol: Protocol, kind: OperationKind, f: u16, faulty: u16, relay_first: bool) -> f64 {
        let mut cell = Cell::new(protocol, f, kind, Model::contention(100));
        cell.load.operations = 1;
        cell.load.warm_up = 0;
        cell.faulty = faulty;
        cell.relay_first = relay_first;
        cell.client_auth = ClientAuth::Signature;
        let row = cell.run().unwrap();
        assert_eq!(row.verdict, Ok(()));
        row.latency.mean()
    }

    /// The reference table of the contention model (§13.4), in s.t.u., within 0.05.
    #[test]
    fn the_reference_table_of_the_contention_model() {
        let protocols = [Protocol::Phalanx, Protocol::MinimalC, Protocol::MinimalF, OPTIMIZED];
        let reads = [
            (1, 0, [7.21, 7.20, 7.20, 7.23]),
            (1, 1, [8.21, 8.20, 8.20, 8.23]),
            (2, 0, [11.21, 11.20, 11.20, 11.24]),
            (2, 1, [12.21, 12.20, 12.20, 12.24]),
            (2, 2, [14.41, 14.40, 14.40, 14.44]),
        ];
        for (f, b, expected) in reads {
            for (protocol, expected) in protocols.iter().zip(expected) {
                near(*protocol, OperationKind::Read, f, b, false, expected);
            }
        }
        let writes = [
            (Protocol::Phalanx, false, [15.20, 25.20]),
            (Protocol::MinimalC, false, [15.20, 25.20]),
            (Protocol::MinimalF, false, [16.20, 33.20]),
            (Protocol::MinimalF, true, [26.20, 65.20]),
            (OPTIMIZED, false, [15.35, 25.35]),
            (BASE, false, [23.21, 39.21]),
        ];
        for (f, b) in [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)] {
            for (protocol, relay_first, expected) in writes {
                near(protocol, OperationKind::Write, f, b, relay_first, expected[usize::from(f) - 1]);
            }
        }
    }

    fn near(protocol: Protocol, kind: OperationKind, f: u16, b: u16, relay_first: bool, expected: f64) {
        let got = once(protocol, kind, f, b, relay_first);
        assert!(
            (got - expected).abs() <= 0.05,
            "{} {kind:?} f = {f}, b = {b}, relay first {relay_first}: {got} instead of {expected}",
            protocol.name()
        );
    }

    /// Loops with concurrency are atomic, end, and have the paths that their protocol has.
    #[test]
    fn cells_with_readers_and_liars_hold() {
        for (protocol, _) in Protocol::ALL {
            let mut cell = Cell::new(*protocol, 1, OperationKind::Read, Model::sim2006(30));
            cell.load.operations = 200;
            cell.load.warm_up = 10;
            cell.load.readers = 2;
            cell.load.writer = true;
            cell.faulty = 1;
            let row = cell.run().unwrap();
            assert_eq!(row.verdict, Ok(()), "{}", protocol.name());
            assert_eq!(row.latency.len(), 200);
            let listens = matches!(protocol, Protocol::MinimalC | Protocol::MinimalF);
            assert_eq!(row.listener_any > 0.0, listens, "{} {row:?}", protocol.name());
        }
    }

    fn small(protocol: Protocol, kind: OperationKind) -> Cell {
        let mut cell = Cell::new(protocol, 1, kind, Model::sim2006(30));
        (cell.load.operations, cell.load.warm_up, cell.load.readers) = (60, 5, 1);
        cell.load.writer = kind == OperationKind::Read;
        cell
    }

    /// §10: no profile of a server that a protocol tolerates makes it fail.
    #[test]
    fn every_profile_of_a_server_is_tolerated() {
        for (protocol, _) in Protocol::ALL {
            for (profile, _) in Profile::ALL.iter().filter(|(profile, _)| profile.fits(*protocol)) {
                for kind in [OperationKind::Read, OperationKind::Write] {
                    let mut cell = small(*protocol, kind);
                    (cell.faulty, cell.profile) = (1, *profile);
                    let verdict = cell.run().map(|row| row.verdict);
                    assert_eq!(verdict, Ok(Ok(())), "{} {profile:?} {kind:?}", protocol.name());
                }
            }
        }
    }

    /// §8, §10: MINIMAL-F and BFT-BC tolerate every faulty client but one that uses up the counter of MINIMAL-F, which
    /// the setting `evidence` prevents. PHALANX tolerates one that stops. MINIMAL-C tolerates none that writes.
    #[test]
    fn faulty_clients_are_tolerated_as_the_protocols_say() {
        for (protocol, _) in Protocol::ALL {
            for (profile, name, _) in ClientProfile::ALL.iter().filter(|(it, ..)| it.fits(*protocol)) {
                let mut cell = small(*protocol, OperationKind::Read);
                cell.rogues = Some((1, *profile));
                // A later write of a good client would end the reads.
                cell.load.writer = *protocol != Protocol::MinimalC;
                let outcome = cell.run().map(|row| row.verdict);
                let half = matches!(
                    profile,
                    ClientProfile::CrashMidWrite | ClientProfile::PartialWrite | ClientProfile::Poison
                );
                if *protocol == Protocol::MinimalC && half {
                    assert!(outcome.unwrap_err().contains("never ended"), "{name}");
                } else {
                    assert_eq!(outcome, Ok(Ok(())), "{} {name}", protocol.name());
                }
            }
        }
        for (protocol, burnt) in [(Protocol::Phalanx, true), (Protocol::MinimalF, true), (OPTIMIZED, false)] {
            let mut cell = small(protocol, OperationKind::Write);
            cell.rogues = Some((1, ClientProfile::TsExhaust));
            match cell.run() {
                Ok(row) => assert!(!burnt && row.verdict == Ok(()), "{}", protocol.name()),
                Err(says) => assert!(burnt && says.contains("used up"), "{}: {says}", protocol.name()),
            }
        }
    }

    /// §11.4: with delays of one's own, a read takes the way to the q-th server and back.
    #[test]
    fn a_matrix_of_delays_of_ones_own_counts_in_both_directions() {
        let rows = ["0,9,9,9,1", "9,0,9,9,2", "9,9,0,9,3", "9,9,9,0,40", "10,20,30,40,0"];
        let own = crate::geo::Delays::parse(&rows.join("\n"), 5).unwrap();
        let model = Model::Geo { regions: (0..5).collect(), jitter: 0, own: Some(own) };
        let mut cell = Cell::new(Protocol::MinimalC, 1, OperationKind::Read, model);
        (cell.load.operations, cell.load.warm_up) = (5, 0);
        let mean = cell.run().unwrap().latency.mean();
        assert!((mean - 33.0).abs() < 1e-6, "{mean}");
    }
}
