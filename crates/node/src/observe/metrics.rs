//! The status as metrics for Prometheus: every name with its help, type and unit, from the first scrape on.

use std::fmt::Write as _;

use super::watch::{BOUNDS_US, Histogram, Snapshot};
use super::{Health, Verdict};
use quorate_wire::message::{Statement, WorkerStats};

/// Returns the text.
pub fn text(snapshot: &Snapshot) -> String {
    let mut out = Metrics(String::new());
    let picture = &snapshot.picture;
    out.head("quorate_build_info", "gauge", "Version of the observing program.");
    out.line("quorate_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    out.head("quorate_verdict", "gauge", "1 for the current verdict, 0 for the others.");
    for verdict in [Verdict::Healthy, Verdict::Degraded, Verdict::Halted, Verdict::Unsafe] {
        let holds = f64::from(u8::from(verdict == picture.verdict));
        out.line("quorate_verdict", &[("kind", &verdict.name().to_lowercase())], holds);
    }
    out.head(
        "quorate_margin_stop",
        "gauge",
        "Number of further crashed replicas that the cluster tolerates.",
    );
    out.line("quorate_margin_stop", &[], count(picture.may_stop));
    out.head(
        "quorate_margin_lie",
        "gauge",
        "Number of further Byzantine replicas that the cluster tolerates.",
    );
    out.line("quorate_margin_lie", &[], count(picture.may_lie));
    out.head("quorate_view", "gauge", "View that f + 1 replicas have entered; absent if fewer answer.");
    if let Some(view) = picture.view {
        out.line("quorate_view", &[], number(view.0));
    }
    out.head("quorate_view_changes_total", "counter", "View changes observed since this program started.");
    out.line("quorate_view_changes_total", &[("why", "seen")], number(snapshot.view_changes));
    out.head(
        "quorate_evidence_total",
        "counter",
        "Evidence against replicas, by class, from the clients' ledgers and the state digests.",
    );
    for ((class, id), seen) in snapshot.evidence_counts() {
        out.line(
            "quorate_evidence_total",
            &[("class", class.name()), ("replica", &id.0.to_string())],
            number(seen),
        );
    }
    out.head("quorate_request_seconds", "histogram", "Latency of this program's probe operations, by path.");
    out.histogram("ordered", &snapshot.ordered);
    out.histogram("read_only", &snapshot.read_only);
    replicas(&mut out, snapshot);
    out.0
}

/// A number from a replica's statement.
type Of = fn(&Statement) -> f64;

/// Metrics from the replicas' statements: name, type, help and value.
const SAID: &[(&str, &str, &str, Of)] = &[
    ("quorate_executed_batches", "gauge", "Committed batches that the replica has executed.", |s| {
        number(s.executed.0)
    }),
    ("quorate_requests_total", "counter", "Requests executed since the replica started.", |s| {
        number(s.requests)
    }),
    ("quorate_left_views_total", "counter", "Views that the replica has left since it started.", |s| {
        number(s.view_changes)
    }),
    ("quorate_uptime_seconds", "gauge", "Time since the replica started.", |s| number(s.uptime_ms) / 1e3),
    ("quorate_recovery_age_seconds", "gauge", "Time since the replica started or last rejoined.", |s| {
        number(s.recovered_ms) / 1e3
    }),
    ("quorate_key_age_seconds", "gauge", "Age of the replica's session keys.", |s| {
        number(s.key_age_ms) / 1e3
    }),
    ("quorate_log_window_ratio", "gauge", "Used share of the log between the water marks, 0 to 1.", |s| {
        let window = s.high.0.saturating_sub(s.low.0).max(1);
        number(s.committed.0.saturating_sub(s.low.0).min(window)) / number(window)
    }),
    ("quorate_fsync_seconds", "gauge", "99th percentile of the time of a write to the replica's log.", |s| {
        f64::from(s.fsync_p99_us) / 1e6
    }),
    ("quorate_memory_bytes", "gauge", "Resident memory of the replica's process.", |s| {
        number(s.memory_bytes)
    }),
    ("quorate_disk_free_bytes", "gauge", "Free space on the replica's disk.", |s| number(s.disk.0)),
    ("quorate_disk_size_bytes", "gauge", "Size of the replica's disk; 0 if unknown.", |s| number(s.disk.1)),
    ("quorate_clock_seconds", "gauge", "The replica's time of day, in seconds since 1970.", |s| {
        number(s.clock_ms) / 1e3
    }),
    ("quorate_client_lanes", "gauge", "Client lanes whose last reply is kept.", |s| f64::from(s.lanes.0)),
    ("quorate_client_lanes_max", "gauge", "Client lanes whose last reply can be kept.", |s| {
        f64::from(s.lanes.1)
    }),
];

/// A number of a replica's workers.
type OfWorkers = fn(&WorkerStats) -> f64;

/// Metrics of parallel execution: name, type, help and value. Without workers, each is 0.
const OF_WORKERS: &[(&str, &str, &str, OfWorkers)] = &[
    ("quorate_workers", "gauge", "Number of workers; 0: the replica executes requests one by one.", |w| {
        number(w.workers)
    }),
    ("quorate_runs_total", "counter", "Requests that workers have begun to run.", |w| number(w.starts)),
    (
        "quorate_runs_at_once_total",
        "counter",
        "Runs in progress, summed over the starts of runs: divided by quorate_runs_total, it is their mean.",
        |w| number(w.at_once),
    ),
    ("quorate_runs_at_once_max", "gauge", "Most runs in progress at the same time.", |w| number(w.most)),
    (
        "quorate_runs_again_total",
        "counter",
        "Requests that were executed again when they settled, because a run had read outdated data.",
        |w| number(w.again),
    ),
    ("quorate_runs_on_pages_total", "counter", "Requests that were executed on pages, without a run.", |w| {
        number(w.on_pages)
    }),
    ("quorate_early_replies_total", "counter", "Replies that left before their requests settled.", |w| {
        number(w.early)
    }),
    (
        "quorate_parked_total",
        "counter",
        "Times that settling waited for a page that could not be read.",
        |w| number(w.parked),
    ),
    (
        "quorate_wrong_rules_total",
        "counter",
        "Requests that have shown a wrong declaration of the service.",
        |w| number(w.wrong_rules),
    ),
];

fn replicas(out: &mut Metrics, snapshot: &Snapshot) {
    let healths = &snapshot.picture.replicas;
    let id = |health: &Health| health.id.0.to_string();
    out.each("quorate_replica_up", "gauge", "1 if the replica answered within 700 ms.", healths, |health| {
        f64::from(u8::from(health.says.is_some()))
    });
    let help = "Number of batches that the replica is behind f + 1 others.";
    out.each("quorate_lag_operations", "gauge", help, healths, |health| number(health.behind));
    let help = "Time that the replica is behind f + 1 others.";
    out.each("quorate_lag_seconds", "gauge", help, healths, |health| {
        snapshot.lag_s.get(health.id.index()).copied().unwrap_or(0.0)
    });
    for (name, kind, help, of) in SAID {
        out.each(name, kind, help, healths, |health| health.says.as_ref().map_or(0.0, of));
    }
    for (name, kind, help, of) in OF_WORKERS {
        out.each(name, kind, help, healths, |health| {
            of(&health.says.as_ref().and_then(|says| says.workers).unwrap_or_default())
        });
    }
    out.head("quorate_transfer_bytes", "gauge", "State fetched by the current transfer, and its total.");
    for health in healths {
        let (done, total) = health.says.as_ref().map_or((0, 0), |says| says.transfer);
        for (state, bytes) in [("done", done), ("total", total)] {
            out.line("quorate_transfer_bytes", &[("replica", &id(health)), ("state", state)], number(bytes));
        }
    }
    out.head(
        "quorate_transferred_bytes",
        "gauge",
        "Bytes that the last state transfer fetched, and the size of the state; 0 without a transfer.",
    );
    for health in healths {
        let moved = health.says.as_ref().and_then(|says| says.moved).unwrap_or_default();
        for (what, bytes) in [("fetched", moved.bytes), ("state", moved.of_bytes)] {
            out.line("quorate_transferred_bytes", &[("replica", &id(health)), ("what", what)], number(bytes));
        }
    }
    let help = "Bytes that all state transfers have fetched since the replica started.";
    out.each("quorate_transferred_bytes_total", "counter", help, healths, |health| {
        number(health.says.as_ref().and_then(|says| says.moved).unwrap_or_default().since_start.1)
    });
    out.head(
        "quorate_rejected_total",
        "counter",
        "Messages that the replica has rejected since it started, by reason.",
    );
    for (health, says) in healths.iter().filter_map(|health| Some((health, health.says.as_ref()?))) {
        let rejected = says.rejected.iter();
        let known = rejected.clone().any(|(why, _)| why == "not-authentic");
        if !known {
            out.line("quorate_rejected_total", &[("replica", &id(health)), ("why", "not-authentic")], 0.0);
        }
        for (why, times) in rejected {
            out.line("quorate_rejected_total", &[("replica", &id(health)), ("why", why)], number(*times));
        }
    }
}

struct Metrics(String);

impl Metrics {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Writes a metric that has a value for each replica. Of a silent replica, gauges are 0, and counters are left out:
    /// a counter that falls to 0 looks like a restart, after which all that it counts is new.
    fn each(&mut self, name: &str, kind: &str, help: &str, all: &[Health], value: impl Fn(&Health) -> f64) {
        self.head(name, kind, help);
        for health in all.iter().filter(|health| kind != "counter" || health.says.is_some()) {
            self.line(name, &[("replica", &health.id.0.to_string())], value(health));
        }
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{before}{label}=\"{text}\"");
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn histogram(&mut self, path: &str, histogram: &Histogram) {
        let mut sum = 0;
        for (bound, times) in BOUNDS_US.iter().zip(histogram.counts) {
            sum += times;
            let bound = (number(*bound) / 1e6).to_string();
            self.line("quorate_request_seconds_bucket", &[("path", path), ("le", &bound)], number(sum));
        }
        self.line(
            "quorate_request_seconds_bucket",
            &[("path", path), ("le", "+Inf")],
            number(histogram.count),
        );
        self.line("quorate_request_seconds_sum", &[("path", path)], number(histogram.sum_us) / 1e6);
        self.line("quorate_request_seconds_count", &[("path", path)], number(histogram.count));
    }
}

fn count(number_of: usize) -> f64 {
    number(u64::try_from(number_of).unwrap_or(u64::MAX))
}

#[allow(clippy::cast_precision_loss, reason = "53 bits are enough for figures to look at")]
fn number(value: u64) -> f64 {
    value as f64
}
