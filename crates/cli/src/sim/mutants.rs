//! `quorate sim mutants`: only in builds with the feature `mutants`.

use std::process::ExitCode;

use clap::Args;
use quorate_pbft::mutants::{LIST, STORAGE};
use quorate_sim::hunt;
use serde_json::{Value, json};

use crate::code::Code;
use crate::fail::{CommandResult, Failure, nearest};
use crate::{out, values};

/// Activate each planted bug, and check that the checkers find it
///
/// A bug is found when a run of the swarm or a scenario fails with it and passes without it. Prints the seed that
/// finds each bug. Exit status 1 if a bug survives.
///
/// Example:
///
///   quorate sim mutants --only M7 --seconds 60
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Mutants {
    /// Test only this bug, by number or name
    #[arg(long, value_name = "M")]
    only: Option<String>,
    /// Processor time for each bug, in seconds (default 90)
    #[arg(long, value_name = "N", value_parser = values::count, default_value_t = 90, hide_default_value = true)]
    seconds: u64,
    /// First seed (default 1)
    #[arg(long, value_name = "SEED", default_value_t = 1, hide_default_value = true)]
    from: u64,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Mutants {
    pub(super) fn run(&self) -> CommandResult {
        let chosen = self.chosen()?;
        let (mut found, mut cpu_ns) = (0_usize, 0);
        let mut rows = Vec::new();
        for (number, name, what) in &chosen {
            let hunt = hunt::hunt(*number, self.from, self.seconds.saturating_mul(1_000_000_000));
            found += usize::from(hunt.found.is_some());
            cpu_ns += hunt.cpu_ns;
            if self.json {
                rows.push(row(*number, name, what, &hunt));
            } else {
                let (mark, how) = match &hunt.found {
                    Some(found) => ("found   ", found.to_string()),
                    None => ("SURVIVED", (*what).to_owned()),
                };
                out::line(format!("{mark} M{number:<3} {name:<26} {how}, {} ms", hunt.cpu_ns / 1_000_000));
            }
        }
        let seconds = cpu_ns / 1_000_000_000;
        if self.json {
            out::line(json!({ "mutants": chosen.len(), "found": found, "cpu_s": seconds, "rows": rows }));
        } else {
            out::line(format!("{found} of {} found in {seconds} s of processor time", chosen.len()));
        }
        if found == chosen.len() {
            return Ok(ExitCode::SUCCESS);
        }
        Err(Failure::new(Code::Violation, format!("{} planted bugs survived", chosen.len() - found)))
    }

    fn chosen(&self) -> Result<Vec<(u32, &'static str, &'static str)>, Failure> {
        let mut all = LIST.to_vec();
        all.retain(|(id, ..)| !STORAGE.contains(id));
        all.sort_unstable();
        let Some(only) = &self.only else { return Ok(all) };
        let number = only.trim_start_matches(['M', 'm']).parse::<u32>().ok();
        all.retain(|(other, name, _)| Some(*other) == number || name == only);
        if all.is_empty() {
            let near = nearest(only, LIST.iter().map(|(_, name, _)| *name));
            let says = near.map_or(String::new(), |near| format!(". Nearest: {near}"));
            return Err(Failure::new(Code::Value, format!("no planted bug `{only}`{says}")).at("--only"));
        }
        Ok(all)
    }
}

fn row(number: u32, name: &str, what: &str, hunt: &hunt::Hunt) -> Value {
    let mut row = json!({ "mutant": number, "name": name, "what": what, "cpu_ms": hunt.cpu_ns / 1_000_000 });
    if let (Value::Object(row), Some(found)) = (&mut row, &hunt.found) {
        let failure = &found.failure;
        row.insert("rule".to_owned(), json!(failure.rule.name()));
        row.insert("scenario".to_owned(), json!(failure.scenario));
        row.insert("n".to_owned(), json!(failure.cluster.n()));
        row.insert("seed".to_owned(), json!(failure.seed));
        row.insert("seeds".to_owned(), json!(found.seeds));
        row.insert("scenarios".to_owned(), json!(found.scenarios));
    }
    row
}
