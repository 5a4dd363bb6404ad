//! Every experiment runs to its end and says what it is to say. The figures of so small a run mean nothing, so
//! none is looked at: neither is whether a statement holds.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::Value;

fn quorate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quorate")).args(arguments).output().unwrap()
}

/// A directory that goes with the test.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("quorate-test-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn join(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn names() -> Vec<String> {
    let output = quorate(&["bench", "list", "--json"]);
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let names = list["experiments"].as_array().unwrap().iter();
    names.map(|experiment| experiment["name"].as_str().unwrap().to_owned()).collect()
}

/// The keys that others rely on.
fn check(name: &str, report: &Value) {
    assert_eq!(report["experiment"], *name);
    assert_eq!(report["effort"], "tiny", "a quick look does not stand for a full run");
    assert!(report["source"].is_string());
    for key in ["cores", "cpu", "kernel", "load", "pinning", "links", "command", "seconds", "others_percent"]
    {
        assert!(!report["machine"][key].is_null(), "{name}: machine.{key}");
    }
    let rows = report["rows"].as_array().unwrap();
    assert!(!rows.is_empty(), "{name} has no rows");
    for row in rows {
        for key in ["system", "variant", "op", "mode", "clients", "repeats", "samples", "unit", "errors"] {
            assert!(!row[key].is_null(), "{name}: rows.{key}");
        }
        let repeats = row["repeats"].as_u64().unwrap();
        let samples = row["samples"].as_array().unwrap().len();
        assert_eq!(u64::try_from(samples).unwrap(), repeats, "{name}: a sample for each repeat");
        let figures = ["p50_us", "ops_per_s", "ns_per_message", "seconds", "gap_ms", "bytes"];
        let has_one = figures.iter().any(|key| row[key].is_number()) || row["cell"]["mean"].is_number();
        assert!(has_one, "{name}: a row without a figure: {row}");
        check_cell(name, row);
    }
    let shapes = report["shapes"].as_array().unwrap();
    assert!(!shapes.is_empty(), "{name} states nothing");
    for shape in shapes {
        let title = shape["name"].as_str().unwrap();
        assert!(shape["held"].is_boolean() && shape["evidence"].is_string());
        // Counted, not timed: these hold on every machine.
        assert!(shape["held"] == true || !title.contains("allocation"), "{name}: {shape}");
    }
}

/// The keys of an experiment on registers.
fn check_cell(name: &str, row: &Value) {
    assert_eq!(name.starts_with("bqs-"), row["cell"].is_object(), "{name}: {row}");
    if row["cell"].is_null() {
        return;
    }
    let cell = &row["cell"];
    assert_eq!(cell["atomic"], true, "{name}: {row}");
    for key in ["protocol", "variant", "profile", "model"] {
        assert!(cell[key].is_string(), "{name}: cell.{key}");
    }
    for key in [
        "b",
        "readers",
        "mean",
        "deviation",
        "interval95",
        "fast",
        "write_back",
        "listener_any",
        "listener_needed",
        "messages",
        "bytes",
        "signatures",
        "verifications",
    ] {
        assert!(cell[key].is_number(), "{name}: cell.{key}");
    }
    assert!(cell["messages"].as_f64().unwrap() > 1.0, "{name}: {row}");
}

fn run_one(dir: &Dir, name: &str) {
    let file = dir.join(&format!("{name}.json"));
    let output = quorate(&["bench", "run", name, "--tiny", "--json", &file, "--plot", &dir.join("plots")]);
    let says = String::from_utf8_lossy(&output.stderr);
    // 1: a statement does not hold, which is of no account here. An experiment that fails leaves no file.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{name}: {says}");
    let text = fs::read_to_string(&file).unwrap_or_else(|_| unreachable!("{name}: {says}"));
    check(name, &serde_json::from_str(&text).unwrap());
}

#[test]
fn every_experiment_runs_and_reports() {
    let dir = Dir::new("benches");
    let names = names();
    // Two at a time: most of the time, an experiment waits.
    let next = AtomicUsize::new(0);
    let run = || {
        while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            run_one(&dir, name);
        }
    };
    thread::scope(|scope| {
        scope.spawn(run);
        run();
    });
    let plots = fs::read_dir(dir.join("plots")).unwrap().flatten();
    let mut ends = [0, 0];
    for path in plots.map(|entry| entry.path()) {
        let bytes = fs::read(&path).unwrap();
        match path.extension().and_then(|end| end.to_str()) {
            Some("svg") => ends[0] += usize::from(bytes.starts_with(b"<svg")),
            Some("png") => ends[1] += usize::from(bytes.starts_with(b"\x89PNG")),
            _ => unreachable!("{}", path.display()),
        }
    }
    let pictures = if cfg!(feature = "png") { ends[0] } else { 0 };
    assert!(ends[0] > names.len() && ends[1] == pictures, "{ends:?} drawings");
    page_of(&dir, names.len());
}

/// The page is made of what is there, and names what is not.
fn page_of(dir: &Dir, count: usize) {
    const MIB: usize = 1 << 20;
    fs::remove_file(dir.join("echo.json")).unwrap();
    let output = quorate(&["bench", "report", &dir.join("")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = fs::read_to_string(dir.join("report.html")).unwrap();
    assert!(page.contains("Not run: echo.") && page.len() < 2 * MIB, "{} bytes", page.len());
    assert!(page.contains(&format!("{} of {count} experiments were run", count - 1)));
    assert!(fs::read_to_string(dir.join("report.md")).unwrap().contains("| `micro-latency` |"));
    assert!(fs::read_to_string(dir.join("report.csv")).unwrap().lines().count() > 100);
}

/// One experiment leaves its result in the directory of `--out`, which is made, and the report finds it there.
#[test]
fn one_experiment_leaves_its_result() {
    let dir = Dir::new("bench-out");
    let out = dir.join("new/results");
    let output = quorate(&["bench", "run", "core-step", "--tiny", "--out", &out]);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(dir.join("new/results/core-step.json")).unwrap();
    check("core-step", &serde_json::from_str(&text).unwrap());
    let output = quorate(&["bench", "report", &out]);
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("1 of "), "{output:?}");
}

#[test]
fn what_cannot_be_run_is_said() {
    for (arguments, code, says) in [
        (&["bench", "run", "micro-latancy"][..], "Q0", "Nearest: micro-latency"),
        (
            &["bench", "run", "echo", "--links", "100mbit"][..],
            "Q004",
            "only experiments on registers have links",
        ),
        (&["bench", "run", "bqs-f2a", "--delay", "5"], "Q004", "loopback has no delay"),
        (&["bench", "run", "all", "--json", "x.json"], "Q004", "a file for each experiment"),
        (&["bench", "report", "no-such-directory"][..], "Q002", "no such directory"),
    ] {
        let output = quorate(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(code) && text.contains(says), "{text}");
    }
}
