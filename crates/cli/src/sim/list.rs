//! `quorate sim list`.

use std::process::ExitCode;

use clap::Args;
use quorate_sim::{command, scenario};
use serde_json::json;

use crate::fail::CommandResult;
use crate::out;

/// List all scenarios, with the faults that they cover
///
/// The first column has the keys of the faults, which docs/faults.md explains. A scenario fails if the cluster does not
/// tolerate the fault. It also fails if no correct replica notices the fault, because such a run has tested nothing.
///
/// Example:
///
///   quorate sim list
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct List {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl List {
    #[allow(clippy::unnecessary_wraps, reason = "as the other commands")]
    pub(super) fn run(&self) -> CommandResult {
        if self.json {
            out::line(json!({ "scenarios": command::list() }));
        } else {
            out::line(text().trim_end());
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn text() -> String {
    let width = |of: fn(&scenario::Scenario) -> usize| scenario::all().map(of).max().unwrap_or(0);
    let (key_width, name_width) = (width(|s| s.keys.join(" ").len()), width(|s| s.name.len()));
    let lines = scenario::all().map(|s| {
        let sizes: Vec<String> = s.sizes.iter().map(ToString::to_string).collect();
        let (keys, sizes) = (s.keys.join(" "), sizes.join(","));
        format!("{keys:<key_width$}  {:<name_width$}  n {sizes:<5}  {}\n", s.name, s.title)
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_is_listed_with_its_keys() {
        let text = text();
        for s in scenario::all() {
            assert!(
                text.lines().any(|line| line.contains(s.name) && line.starts_with(s.keys[0])),
                "{}",
                s.name
            );
        }
    }
}
