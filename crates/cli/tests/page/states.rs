//! The page in each state of a cluster. The states come from the model, and the real server serves the real page. So they
//! are the same in each run, and a clock that is wrong needs no machine with a wrong clock.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use quorate_gateways::page;
use quorate_node::observe::watch::Event;
use quorate_node::observe::{Board, Class, Item, ProbeOutcome, ProbeOutcomes, Reading, Snapshot, model};
use quorate_node::settings::shared_names;
use quorate_wire::message::{Statement, TransferStats};
use quorate_wire::{Cluster, Digest, ReplicaId, SeqNum, ViewNum};

use crate::browser::{browse, element};
use crate::support::{Dir, own_address};

const NOW_S: u64 = 1_764_158_400;

/// A state: its name, how it differs from a healthy cluster, the verdict, and what the page advises, in this order.
struct State {
    name: &'static str,
    change: fn(&mut Reading),
    verdict: &'static str,
    todo: &'static [&'static str],
}

const STATES: &[State] = &[
    State { name: "healthy", change: |_| {}, verdict: "HEALTHY", todo: &[] },
    State {
        name: "lying",
        change: |reading| {
            reading.evidence.push(Item {
                class: Class::WrongReplies,
                replica: ReplicaId(2),
                count: 31,
                first: NOW_S - 40,
                last: NOW_S - 2,
                by: "client-0".to_owned(),
            });
        },
        verdict: "DEGRADED",
        todo: &["r2 answers clients wrongly; they use the answers of the others", "quorate explain Q031<"],
    },
    State {
        name: "killed",
        change: |reading| reading.statements[1] = None,
        verdict: "DEGRADED",
        todo: &[
            "replica-1 is silent: check its process, and UDP and TCP 10.0.0.2:7000",
            "quorate replica --dir replica-1<",
        ],
    },
    State {
        name: "joining",
        change: |reading| {
            let says = of(reading, 3);
            (says.executed, says.stable, says.checkpoints) = (SeqNum(0), Default::default(), Vec::new());
            (says.transferring, says.transfer, says.uptime_ms) = (true, (58_000, 100_000), 21_000);
            says.moved = Some(TransferStats {
                seq: SeqNum(5120),
                pages: 58_000,
                of_pages: 100_000,
                took_ms: 20_000,
                ..TransferStats::default()
            });
        },
        verdict: "DEGRADED",
        todo: &["r3 fetches the state, about 15s left: wait"],
    },
    State {
        name: "halted",
        change: |reading| {
            (reading.statements[1], reading.statements[2]) = (None, None);
            let silence = Some(ProbeOutcome::Silence);
            reading.outcomes = ProbeOutcomes { ordered: silence, read_only: silence, large: silence };
        },
        verdict: "HALTED",
        todo: &[
            "2 replicas do not answer: nothing is executed, and nothing acknowledged is lost. Start r1 or r2: one of them \
             is enough (r1 at 10.0.0.2:7000, r2 at 10.0.0.3:7000, UDP and TCP)",
            "quorate replica --dir replica-1<",
        ],
    },
    State {
        name: "settings",
        change: |reading| {
            reading.settings[3] = Some(2);
            let window = shared_names().position(|name| name == "window").unwrap();
            of(reading, 3).settings[window] = 9;
        },
        verdict: "DEGRADED",
        todo: &[
            "settings differ: window (r3): make [settings] in its cluster.toml equal to that of the others, and restart it",
            "quorate doctor --dir replica-3<",
        ],
    },
    State {
        name: "clock",
        change: |reading| of(reading, 0).clock_ms -= 7_200_000,
        verdict: "DEGRADED",
        todo: &["set the clock of replica-0 right (2h00m behind): it votes for nothing", "chronyc makestep<"],
    },
];

fn of(reading: &mut Reading, replica: usize) -> &mut Statement {
    reading.statements[replica].as_mut().unwrap()
}

/// A healthy cluster of four that has served for three days.
fn healthy() -> Reading {
    let cluster = Cluster::tolerating(1).unwrap();
    let checkpoints = [4864, 4992, 5120].map(|seq| (SeqNum(seq), Digest([7; 32])));
    let statement = Statement {
        view: ViewNum(4),
        executed: SeqNum(5190),
        committed: SeqNum(5192),
        stable: checkpoints[2],
        low: SeqNum(5120),
        high: SeqNum(7168),
        checkpoints: checkpoints.to_vec(),
        requests: 91_000_000,
        uptime_ms: 263_000_000,
        clock_ms: NOW_S * 1000,
        lanes: (40, 4096),
        version: "0.1.0".to_owned(),
        settings: vec![1; shared_names().count()],
        ..Statement::default()
    };
    let served = Some(ProbeOutcome::Served);
    Reading {
        cluster,
        statements: vec![Some(statement); cluster.n()],
        settings: vec![Some(1); cluster.n()],
        evidence: Vec::new(),
        outcomes: ProbeOutcomes { ordered: served, read_only: served, large: served },
        now_s: NOW_S,
    }
}

/// What the page shows of it, with five minutes of requests and a view change before.
fn snapshot(change: fn(&mut Reading)) -> Snapshot {
    let mut reading = healthy();
    change(&mut reading);
    let mut seen = Snapshot::first(model::judge(reading));
    seen.rates = (0..300_u32).map(|at| (f64::from(40_000 + at * 7 % 2000), Some(180), Some(90))).collect();
    seen.views = [(NOW_S - 900, ViewNum(3)), (NOW_S - 300, ViewNum(4))].into();
    seen.events = [Event { number: 1, at_s: NOW_S - 300, text: "view 3 -> 4, primary r0".to_owned() }].into();
    seen
}

/// Every state, on a desktop and on a phone, in light and dark: the verdict, what to do, nothing to scroll sideways. The 28
/// pictures stay in the directory that the variable `QUORATE_PICTURES` names.
#[test]
fn every_state_is_shown_with_what_to_do() {
    let dir = Dir::new("states");
    let address = SocketAddr::new(own_address(), 9640);
    let board =
        Arc::new(Board::new((1..=4).map(|host| SocketAddr::from(([10, 0, 0, host], 7000))).collect()));
    page::serve(page::listen(address, "").unwrap(), Arc::clone(&board), "orders".to_owned()).unwrap();
    let kept = std::env::var("QUORATE_PICTURES");
    for state in STATES {
        for (width, height) in [(1280, 1000), (390, 844)] {
            let mut pictures = Vec::new();
            for (theme, scheme) in [("dark", 0), ("light", 1)] {
                // A new one each time: its age is shown.
                board.show(Arc::new(snapshot(state.change)));
                let name = format!("{}-{width}-{theme}.png", state.name);
                let picture = dir.join(&name);
                let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
                let what = [&scheme, "--dump-dom", &format!("--screenshot={picture}")];
                let dom = browse(address, &dir.join("browser"), (width, height), &what);
                check(state, &dom);
                let bytes = fs::read(&picture).unwrap();
                assert!(
                    bytes.starts_with(b"\x89PNG") && bytes.len() > 10_000,
                    "{name}: {} bytes",
                    bytes.len()
                );
                if let Ok(kept) = &kept {
                    fs::write(Path::new(kept).join(name), &bytes).unwrap();
                }
                pictures.push(bytes);
            }
            assert_ne!(pictures[0], pictures[1], "{}: dark and light differ", state.name);
        }
    }
}

fn check(state: &State, dom: &str) {
    let name = state.name;
    assert!(element(dom, "verdict").starts_with(&format!("{}<", state.verdict)), "{name}: {dom}");
    assert!(dom.contains("data-ready=\"yes\"") && dom.contains("data-overflow=\"no\""), "{name}: {dom}");
    assert_eq!(dom.contains("id=\"todo\" hidden"), state.todo.is_empty(), "{name}: {dom}");
    let advice = element(dom, "advice");
    let mut rest = if state.todo.is_empty() { "" } else { advice };
    for said in state.todo {
        let at = rest.find(said).unwrap_or_else(|| panic!("{name}: no `{said}` in {advice}"));
        rest = &rest[at + said.len()..];
    }
    // Nothing else is advised.
    assert_eq!(rest.matches("<li>").count(), 0, "{name}: {advice}");
    let rows = element(dom, "table").matches("<tr>").count();
    assert_eq!(rows, 5, "{name}: a head and four replicas: {dom}");
}
