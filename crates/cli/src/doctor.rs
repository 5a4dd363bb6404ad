//! `quorate doctor`: checks the nodes of a directory and this machine. It changes nothing, except that it writes one
//! file to time the disk, and removes it.

mod finding;
mod machine;
mod nodes;
mod settings;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use self::finding::{Grade, counted};
use crate::code::Code;
use crate::fail::{CommandResult, Failure};
use crate::out;

/// Check the nodes in a directory, and this machine
///
/// For every node, checks the keys, the settings, the list of members (cluster.toml), the file formats and the ports.
/// Compares the settings that must be the same on all nodes. Checks this machine's disk (free space, permissions,
/// speed), its clock and its socket buffers.
///
/// Prints one line for each check: ok, warn or bad. If something can be done about a problem, the line says what. Exit
/// status 1 if a check is bad. The command changes nothing.
///
/// Example:
///
///   quorate doctor --dir quorate-data
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Doctor {
    /// Directory that holds the nodes, or the directory of one node
    #[arg(long, default_value = "quorate-data")]
    dir: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(crate) fn run(&self) -> CommandResult {
        let found = nodes::find(&self.dir);
        if found.is_empty() {
            return Err(Failure::new(Code::Unreadable, "no node found")
                .at(self.dir.display().to_string())
                .next(
                    "create nodes with `quorate up` or `quorate init`, or name another directory with --dir",
                ));
        }
        let mut findings = nodes::look(&found);
        findings.extend(machine::look(&self.dir));
        let count = |grade| findings.iter().filter(|finding| finding.grade == grade).count();
        let (ok, warn, bad) = (count(Grade::Ok), count(Grade::Warn), count(Grade::Bad));
        if self.json {
            let rows: Vec<_> = findings
                .iter()
                .map(|it| json!({"grade": it.grade.name(), "check": it.check, "of": it.of, "what": it.what, "do": it.next}))
                .collect();
            out::line(json!({"ok": ok, "warn": warn, "bad": bad, "findings": rows, "schema": 1}));
        } else {
            for finding in &findings {
                out::line(finding.line());
            }
            out::line(format!("{ok} ok, {}, {}", counted(warn, "warning"), counted(bad, "error")));
        }
        Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
