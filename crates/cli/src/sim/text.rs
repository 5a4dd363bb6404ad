//! The summary of many runs, as text.

use quorate_sim::command::{Shown, Summary};
use serde_json::Value;

/// The longest line, in columns.
const WIDTH: usize = 100;

/// Returns the summary as text: a line for each scenario, then the verdict, then the counters.
pub(super) fn summary(summary: &Summary) -> String {
    let Value::Object(counters) = summary.counters.to_json() else { return String::new() };
    let mut numbers = Vec::new();
    let mut maps = Vec::new();
    for (name, value) in &counters {
        let name = name.replace('_', " ");
        match value {
            Value::Object(map) if !map.is_empty() => {
                let items: Vec<String> = map.iter().map(|(key, count)| format!("{key} {count}")).collect();
                maps.push(wrapped(&format!("  {name}: "), &items));
            }
            Value::Number(number) => numbers.push(format!("{name} {number}")),
            Value::Null | Value::Bool(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {}
        }
    }
    let scenarios: Vec<String> =
        summary.scenarios.iter().map(|((name, n), shown)| line(name, *n, shown)).collect();
    let seconds = |ns: u128| ns / 1_000_000_000;
    format!(
        "{}{} {}: {} violations, {} stuck\n{}\n{}\n  simulated {} s in {} s of processor time\n  trace hash {}",
        scenarios.concat(),
        summary.runs,
        if summary.runs == 1 { "run" } else { "runs" },
        summary.violations,
        summary.stuck,
        wrapped("  ", &numbers),
        maps.join("\n"),
        seconds(summary.simulated_ns),
        seconds(summary.cpu_ns),
        summary.to_json()["trace_hash"].as_str().unwrap_or_default(),
    )
}

fn line(name: &str, n: usize, shown: &Shown) -> String {
    let mark = if shown.failed == 0 { "ok    " } else { "FAILED" };
    let provoked: Vec<String> =
        shown.provoked.iter().map(|(what, count)| format!("{what} {count}")).collect();
    format!("{mark} {name} n {n}: {}\n", provoked.join(", "))
}

/// Wraps items after a heading, in lines of at most [`WIDTH`] columns.
fn wrapped(heading: &str, items: &[String]) -> String {
    let mut lines = vec![heading.to_owned()];
    for (index, item) in items.iter().enumerate() {
        let comma = if index + 1 < items.len() { ", " } else { "" };
        let piece = format!("{item}{comma}");
        match lines.last_mut() {
            Some(last) if last.trim_end().chars().count() + piece.chars().count() <= WIDTH => *last += &piece,
            _ => lines.push(format!("    {piece}")),
        }
    }
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn scenarios_come_first_with_what_they_provoked() {
        let shown = Shown { runs: 2, failed: 1, provoked: BTreeMap::from([("other-view", 6)]) };
        let scenarios = BTreeMap::from([(("p1_x", 4), shown)]);
        let text = summary(&Summary { runs: 2, violations: 1, scenarios, ..Summary::default() });
        assert!(text.starts_with("FAILED p1_x n 4: other-view 6\n2 runs: 1 violations, 0 stuck\n"), "{text}");
    }

    #[test]
    fn lines_are_short() {
        let items: Vec<String> = (0..60).map(|i| format!("item {i}")).collect();
        let text = wrapped("  things: ", &items);
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
        assert_eq!(text.matches("item").count(), 60);
        assert!(text.lines().count() > 3);
    }
}
