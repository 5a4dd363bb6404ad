//! The results of a comparison: as a table, and as JSON in the format of `quorate bench run`.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::super::figures::median;
use super::goals::{self, Goal, Paper};
use super::order::{Load, Order};
use super::postmark;
use super::servers::{Arm, Store};

/// The client alone: the load in the guest's memory, without a server.
pub(super) const ALONE: &str = "client alone";
/// How many kinds of calls the table shows.
const CALLS: usize = 5;

/// Calls of one kind that the client has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) name: String,
    pub(super) count: u32,
    /// From the first byte sent to the reply, all together.
    pub(super) wait_ms: u32,
}

impl Call {
    /// Reads `rpc WRITE: 10 10 0 1000 1000 5 40 45 0`: calls, transmissions, time-outs, bytes out and in, milliseconds
    /// before they were sent, from then to the reply, and from first to last.
    pub(super) fn read(line: &str) -> Option<Self> {
        let (name, rest) = line.strip_prefix("rpc ")?.split_once(':')?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let number = |at: usize| words.get(at)?.parse().ok();
        Some(Self { name: name.trim().to_owned(), count: number(0)?, wait_ms: number(6)? })
    }
}

/// One measurement.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// One for each column.
    pub(super) figures: Vec<f64>,
    pub(super) processor_s: f64,
    /// The guest's clock, divided by the host's.
    pub(super) clock: f64,
    /// What the program itself says, in whole seconds.
    pub(super) own_s: Option<f64>,
    pub(super) calls: Vec<Call>,
}

/// A server and its measurements.
#[derive(Clone, Debug)]
pub(super) struct Row {
    arm: Option<Arm>,
    variant: String,
    samples: Vec<Sample>,
}

impl Row {
    pub(super) fn new(server: Option<(Arm, String)>, samples: Vec<Sample>) -> Self {
        let (arm, variant) = server.map_or((None, String::new()), |(arm, variant)| (Some(arm), variant));
        Self { arm, variant, samples }
    }

    fn system(&self) -> &'static str {
        match self.arm {
            Some(Arm::Bfs(reads, _)) => reads.system(),
            Some(Arm::Alone(_)) => "bfs-nr",
            Some(Arm::Ganesha(_)) => "ganesha",
            None => ALONE,
        }
    }

    pub(super) fn arm(&self) -> Option<Arm> {
        self.arm
    }

    pub(super) fn name(&self) -> String {
        format!("{} {}", self.system(), self.variant).trim_end().to_owned()
    }

    fn column(&self, column: usize) -> Vec<f64> {
        self.samples.iter().filter_map(|sample| sample.figures.get(column).copied()).collect()
    }

    fn processor_s(&self) -> f64 {
        median(&self.samples.iter().map(|sample| sample.processor_s).collect::<Vec<_>>())
    }

    /// Says whether the table shows the first divided by the second: ours by the same without replicas and by Ganesha, and that
    /// by Ganesha in memory.
    fn is_compared_with(&self, other: &Self) -> bool {
        match (self.arm, other.arm) {
            (Some(Arm::Bfs(_, ours)), Some(Arm::Alone(other))) => ours == other,
            (Some(Arm::Bfs(..)), Some(Arm::Ganesha(_)))
            | (Some(Arm::Alone("memory")), Some(Arm::Ganesha(Store::Mem))) => true,
            _ => false,
        }
    }
}

/// What was found.
#[derive(Debug)]
pub(super) struct Table {
    load_name: &'static str,
    source: &'static str,
    about: String,
    unit: &'static str,
    columns: Vec<String>,
    /// The column that counts.
    main: usize,
    digits: usize,
    papers: &'static [Paper],
    load_is: Load,
    repeats: usize,
    pub(super) rows: Vec<Row>,
    pub(super) notes: Vec<String>,
    /// The load of the machine, before and after.
    pub(super) load: Vec<String>,
}

impl Table {
    pub(super) fn new(order: &Order) -> Self {
        let bytes = order.mount_bytes.map_or("as agreed on".to_owned(), |bytes| format!("{bytes}"));
        let mount = format!("rsize and wsize {bytes}");
        let mut table = Self {
            load_name: order.load.name(),
            source: "DSN01 Figure 9",
            about: String::new(),
            unit: "tx/s",
            columns: vec!["tx/s".to_owned()],
            main: 0,
            digits: 0,
            papers: goals::papers(order),
            load_is: order.load,
            repeats: order.repeats,
            rows: Vec::new(),
            notes: Vec::new(),
            load: Vec::new(),
        };
        match order.load {
            Load::Postmark => {
                let load = order.postmark();
                table.about = format!(
                    "PostMark, {} files of 512 B to 16 KB, {} transactions; {mount}; no times of last access",
                    load.files(),
                    load.transactions
                );
                if load.transactions != postmark::FULL {
                    table.notes.push("the paper's load is --transactions 100000".to_owned());
                }
            }
            Load::Andrew => {
                let load = order.andrew();
                table.source = "OSDI99 Tables 2, 3; DSN01 Figure 8";
                table.about =
                    format!("Andrew's phases, {} copies of a tree of 70 files; {mount}", load.copies);
                table.unit = "s";
                table.columns = load.columns().into_iter().map(str::to_owned).collect();
                (table.main, table.digits) = (table.columns.len() - 1, 2);
                if !load.compiles {
                    table.notes.push("phase 5, the compilation, is left out: --no-compile, or there is no cc (apt-get install gcc libc6-dev)".to_owned());
                }
                table.notes.push(
                    "the paper's 100 copies wrote 200 MB, these write 48 MB: ratios of totals compare unlike work"
                        .to_owned(),
                );
                if load.copies >= 500 {
                    table.notes.push(
                        "memory is not limited: the paper's 500 copies exceeded the memory of all machines"
                            .to_owned(),
                    );
                }
            }
        }
        table
    }

    fn cores() -> usize {
        std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
    }

    /// Returns the table: medians, the least and the most of the main column, and ours divided by the others.
    pub(super) fn text(&self) -> String {
        let digits = self.digits;
        let mut text = format!(
            "{}\nthrough the kernel's client, {} repeats, medians (least - most); {} cores, load {}\n\n",
            self.about,
            self.repeats,
            Self::cores(),
            self.load.join(" before, ")
        );
        let _ = write!(text, "{:<24}", "server");
        for column in &self.columns {
            let _ = write!(text, "{column:>10}");
        }
        let _ = writeln!(text, "   {:<20}{:>10}", "(least - most)", "server s");
        for row in &self.rows {
            let _ = write!(text, "{:<24}", row.name());
            for column in 0..self.columns.len() {
                let _ = write!(text, "{:>10.digits$}", median(&row.column(column)));
            }
            let main = row.column(self.main);
            let (least, most) =
                (main.iter().copied().fold(f64::MAX, f64::min), main.iter().copied().fold(0.0, f64::max));
            let bounds = format!("({least:.digits$} - {most:.digits$})");
            let _ = writeln!(text, "   {bounds:<20}{:>10.1}", row.processor_s());
        }
        let _ = writeln!(
            text,
            "\n`server s`: processor time of the server's processes, seconds of a run\n\nratios of {}",
            self.unit
        );
        for (row, other, ratios) in self.ratios() {
            let _ = write!(text, "{:<44}", format!("{} / {}", row.name(), other.name()));
            for ratio in ratios {
                let _ = write!(text, "{ratio:>8.2}");
            }
            text.push('\n');
        }
        for Paper { of, to, ratio, source } in self.papers {
            let _ = writeln!(text, "the paper: {of} / {to} {ratio} [{source}]");
        }
        for goal in self.goals() {
            let _ = writeln!(text, "{goal}");
        }
        text.push_str(
            "\ncalls of a run and what the client waited for each, in microseconds, most waiting first\n",
        );
        for row in self.rows.iter().filter(|row| row.arm.is_some()) {
            let _ = writeln!(text, "{:<24}{}", row.name(), calls(row));
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }

    /// Returns ours, what it is compared with, and what each column is of the other's.
    fn ratios(&self) -> Vec<(&Row, &Row, Vec<f64>)> {
        let pairs = self.rows.iter().flat_map(|row| self.rows.iter().map(move |other| (row, other)));
        let ratio =
            |row: &Row, other: &Row, column| median(&row.column(column)) / median(&other.column(column));
        pairs
            .filter(|(row, other)| row.is_compared_with(other))
            .map(|(row, other)| {
                (row, other, (0..self.columns.len()).map(|column| ratio(row, other, column)).collect())
            })
            .collect()
    }

    /// Returns what is to hold, and whether it does.
    pub(super) fn goals(&self) -> Vec<Goal> {
        let ratios = self.ratios();
        let main = ratios.iter().filter_map(|(row, other, all)| Some((*row, *other, *all.get(self.main)?)));
        main.filter_map(|(row, other, ratio)| Goal::of(self.load_is, row, other, ratio)).collect()
    }

    /// Returns what was found in the form of an experiment's report.
    pub(super) fn json(&self) -> Value {
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let rows: Vec<Value> = self
            .rows
            .iter()
            .flat_map(|row| (0..self.columns.len()).map(|column| self.row(row, column)))
            .collect();
        let ratios: Vec<Value> = self
            .ratios()
            .into_iter()
            .map(|(row, other, ratios)| json!({ "of": row.name(), "to": other.name(), "ratios": ratios }))
            .collect();
        json!({
            "experiment": format!("kernel-{}", self.load_name),
            "source": self.source,
            "machine": {
                "cores": Self::cores(),
                "cpu": cpu.map_or("", |(_, name)| name),
                "load": self.load.first(),
                "load_after": self.load.last(),
                "pinning": "none",
            },
            "rows": rows,
            "ratios": ratios,
            "papers": self.papers.iter().map(Paper::json).collect::<Vec<_>>(),
            "goals": self.goals().iter().map(Goal::json).collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }

    fn row(&self, row: &Row, column: usize) -> Value {
        let samples = row.column(column);
        let mut value = json!({
            "system": row.system(),
            "variant": row.variant,
            "op": if self.columns.len() == 1 { self.load_name } else { &self.columns[column] },
            "mode": "rw",
            "clients": 1,
            "repeats": samples.len(),
            "unit": self.unit,
            if self.unit == "s" { "seconds" } else { "ops_per_s" }: median(&samples),
            "samples": samples,
        });
        if let Some(durability) = row.arm.and_then(Arm::durability) {
            value["durability"] = json!(durability);
        }
        if matches!(row.arm, Some(Arm::Bfs(..))) {
            (value["n"], value["f"]) = (json!(4), json!(1));
        }
        if column == self.main {
            value["server_cpu_s"] =
                json!(row.samples.iter().map(|sample| sample.processor_s).collect::<Vec<_>>());
            value["program_says_s"] =
                json!(row.samples.iter().map(|sample| sample.own_s).collect::<Vec<_>>());
            value["guest_clock"] = json!(row.samples.iter().map(|sample| sample.clock).collect::<Vec<_>>());
            let last = row.samples.last().map(|sample| sample.calls.as_slice()).unwrap_or_default();
            let calls = last
                .iter()
                .map(|call| json!({ "name": call.name, "count": call.count, "wait_ms": call.wait_ms }));
            value["calls"] = calls.collect();
        }
        value
    }
}

/// The calls of the last run that took longest.
fn calls(row: &Row) -> String {
    let mut calls = row.samples.last().map(|sample| sample.calls.clone()).unwrap_or_default();
    calls.sort_by_key(|call| std::cmp::Reverse(call.wait_ms));
    let each = |call: &Call| {
        let us = f64::from(call.wait_ms) * 1000.0 / f64::from(call.count.max(1));
        format!("{} {} x {us:.0}", call.name, call.count)
    };
    calls.iter().take(CALLS).map(each).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::super::servers::Reads;
    use super::*;

    fn table() -> Table {
        let order = Order::read(Load::Postmark, &[]).unwrap().unwrap();
        let row = |arm, variant: &str, figures: &[f64]| {
            let sample = |figure: &f64| Sample { figures: vec![*figure], ..Sample::default() };
            Row::new(Some((arm, variant.to_owned())), figures.iter().map(sample).collect())
        };
        let mut table = Table::new(&order);
        table.rows = vec![
            row(Arm::Bfs(Reads::Default, "memory"), "memory", &[500.0, 700.0, 600.0]),
            row(Arm::Bfs(Reads::Default, "sync"), "sync", &[300.0]),
            row(Arm::Alone("memory"), "memory", &[1000.0, 1200.0]),
            row(Arm::Ganesha(Store::Disk), "VFS on ext4", &[400.0]),
            row(Arm::Ganesha(Store::Mem), "MEM", &[1000.0]),
        ];
        table
    }

    #[test]
    fn ours_is_divided_by_the_same_without_replicas_and_by_the_other_server() {
        let table = table();
        let ratios: Vec<(String, String, f64)> = table
            .ratios()
            .into_iter()
            .map(|(row, other, ratios)| (row.name(), other.name(), ratios[0]))
            .collect();
        let expected = [
            ("bfs memory", "bfs-nr memory", 600.0 / 1100.0),
            ("bfs memory", "ganesha VFS on ext4", 1.5),
            ("bfs memory", "ganesha MEM", 0.6),
            ("bfs sync", "ganesha VFS on ext4", 0.75),
            ("bfs sync", "ganesha MEM", 0.3),
            ("bfs-nr memory", "ganesha MEM", 1.1),
        ];
        assert_eq!(ratios.len(), expected.len(), "{ratios:?}");
        for ((row, other, ratio), (name, to, is)) in ratios.iter().zip(expected) {
            assert!(row == name && other == to && (ratio - is).abs() < 1e-9, "{row} / {other}: {ratio}");
        }
    }

    #[test]
    fn the_table_has_medians_bounds_and_the_papers_ratios() {
        let text = table().text();
        let goals = [
            "missed: bfs memory / bfs-nr memory 0.55, at least 0.6",
            "held: bfs memory / ganesha VFS on ext4 1.50, at least 1.2",
            "held: bfs-nr memory / ganesha MEM 1.10, at least 1",
        ];
        for part in ["bfs memory", "600", "(500 - 700)", "0.55", "0.53", "0.87"].into_iter().chain(goals) {
            assert!(text.contains(part), "no {part} in\n{text}");
        }
    }

    #[test]
    fn the_json_has_every_sample() {
        let json = table().json();
        assert_eq!(json["experiment"], "kernel-postmark");
        assert_eq!(json["rows"][0]["samples"], json!([500.0, 700.0, 600.0]));
        assert_eq!(json["rows"][0]["ops_per_s"], json!(600.0));
        assert_eq!((&json["rows"][0]["n"], &json["rows"][1]["durability"]), (&json!(4), &json!("sync")));
    }

    #[test]
    fn calls_are_read_as_the_kernel_writes_them() {
        let read = Call::read("rpc \t      WRITE: 10 11 0 1000 900 5 40 45 0").unwrap();
        assert_eq!(read, Call { name: "WRITE".to_owned(), count: 10, wait_ms: 40 });
        assert_eq!(Call::read("rpc \tper-op statistics"), None);
        assert_eq!(Call::read("WRITE: 10 11 0 1000 900 5 40 45 0"), None);
    }
}
