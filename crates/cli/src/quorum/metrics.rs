//! The states of a register's servers as metrics for Prometheus: every name with its help, type and unit, from the first
//! scrape on.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use quorate_quorum_node::note::State;
use quorate_quorum_node::suspicion::{Suspicion, Wrong};

/// How long a scraper may take for its request, and for taking the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest request.
const REQUEST_MAX: u64 = 8 << 10;

/// A figure of a server: name, type, help and value.
type Figure = (&'static str, &'static str, &'static str, fn(&State) -> f64);

/// The figures that a server tells of itself.
const SAID: &[Figure] = &[
    ("quorate_register_uptime_seconds", "gauge", "Time since the server started.", |s| number(s.up_ms) / 1e3),
    ("quorate_register_keys", "gauge", "Keys that the server holds.", |s| number(s.objects)),
    ("quorate_register_value_bytes", "gauge", "Bytes that the server keeps of its keys.", |s| {
        number(s.bytes)
    }),
    ("quorate_register_log_bytes", "gauge", "Size of the server's log.", |s| number(s.log_bytes)),
    (
        "quorate_register_accepted_total",
        "counter",
        "Messages that the server has accepted since it started.",
        |s| number(s.taken),
    ),
    (
        "quorate_register_refused_total",
        "counter",
        "Frames and messages that the server has refused since it started.",
        |s| number(s.refused),
    ),
    ("quorate_register_watchers", "gauge", "Watches of clients.", |s| number(s.watchers)),
    ("quorate_register_disk_lost", "gauge", "1 if the server lost its disk and is not repaired yet.", |s| {
        f64::from(u8::from(s.lost))
    }),
    (
        "quorate_register_repaired",
        "gauge",
        "1 if the server lost its disk in this epoch; with bft-bc, it approves no write.",
        |s| f64::from(u8::from(s.repaired)),
    ),
];

/// What the servers of a register have said, and what follows from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Said<'a> {
    pub(super) verdict: &'static str,
    /// How many further servers may become faulty.
    pub(super) margin: usize,
    pub(super) servers: usize,
    /// Of those that answered.
    pub(super) states: &'a [(usize, State)],
    pub(super) suspicions: &'a [Suspicion],
}

impl Said<'_> {
    fn all(&self) -> impl Iterator<Item = (usize, Option<&State>)> {
        let state = |id| self.states.iter().find(|(server, _)| *server == id).map(|(_, state)| state);
        (0..self.servers).map(move |id| (id, state(id)))
    }
}

/// Returns the text.
pub(super) fn text(said: Said<'_>) -> String {
    let mut out = String::new();
    let head = |out: &mut String, name: &str, kind: &str, help: &str| {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    };
    head(&mut out, "quorate_build_info", "gauge", "Version of the observing program.");
    let _ = writeln!(out, "quorate_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
    head(&mut out, "quorate_register_verdict", "gauge", "1 for the current verdict, 0 for the others.");
    for kind in ["HEALTHY", "DEGRADED", "HALTED"] {
        let holds = u8::from(kind == said.verdict);
        let _ = writeln!(out, "quorate_register_verdict{{kind=\"{}\"}} {holds}", kind.to_lowercase());
    }
    head(
        &mut out,
        "quorate_register_margin",
        "gauge",
        "Number of further faulty servers that the cluster tolerates.",
    );
    let _ = writeln!(out, "quorate_register_margin {}", said.margin);
    head(&mut out, "quorate_register_server_up", "gauge", "1 if the server answered within 2 s.");
    for (server, state) in said.all() {
        let up = u8::from(state.is_some());
        let _ = writeln!(out, "quorate_register_server_up{{server=\"{server}\"}} {up}");
    }
    head(
        &mut out,
        "quorate_register_suspect",
        "gauge",
        "Errors of the server that clients and other servers saw; 0 after 10 minutes without a new one.",
    );
    for server in 0..said.servers {
        for (wrong, _, reason, _) in Wrong::ALL {
            let these =
                said.suspicions.iter().filter(|one| one.server.index() == server && one.wrong == *wrong);
            let count: u64 = these.map(|one| one.count).sum();
            let _ =
                writeln!(out, "quorate_register_suspect{{server=\"{server}\",reason=\"{reason}\"}} {count}");
        }
    }
    for (name, kind, help, of) in SAID {
        head(&mut out, name, kind, help);
        // Of a silent server, gauges are 0, and counters are left out: one that falls to 0 looks like a restart.
        for (server, state) in said.all().filter(|(_, state)| *kind != "counter" || state.is_some()) {
            let value = state.map_or(0.0, of);
            let _ = writeln!(out, "{name}{{server=\"{server}\"}} {value}");
        }
    }
    out
}

#[allow(clippy::cast_precision_loss, reason = "53 bits are enough for figures to look at")]
fn number(value: u64) -> f64 {
    value as f64
}

/// Answers scrapers with the newest text, in a thread that lives as long as the program.
pub(super) fn serve(listener: TcpListener, newest: Arc<Mutex<String>>) -> std::io::Result<()> {
    listener.set_nonblocking(false)?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // One that goes away has its own reasons.
            let _ = answer(&stream, &newest);
        }
    });
    Ok(())
}

fn answer(mut stream: &TcpStream, newest: &Mutex<String>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream.take(REQUEST_MAX)).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let text = newest.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut words = first.split(' ');
    let (status, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) if text.is_empty() => ("503 Service Unavailable", "no state yet\n"),
        (Some("GET"), Some("/metrics")) => ("200 OK", text.as_str()),
        (Some("GET"), _) => ("404 Not Found", "see /metrics\n"),
        _ => ("405 Method Not Allowed", "see GET /metrics\n"),
    };
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
