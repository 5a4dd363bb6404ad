//! `quorate doctor`: what is wrong here, before or after it has hurt. It looks and changes nothing, but for a
//! file that it writes to see how long that takes, and removes.

mod machine;
mod nodes;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use crate::explain::Code;
use crate::fail::{Failure, Outcome};
use crate::out;

/// Look for what is wrong with the nodes of a directory, and with this machine
///
/// One line for each thing that was looked at: ok, warn or bad, and what to do. Keys, settings, members and
/// formats of every node; ports and who holds them; room, rights and speed of the disk; the clock; the sizes
/// of socket buffers. Ends with status 1 if something is bad. Times are in milliseconds.
///
///   quorate doctor --dir quorate-data
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Doctor {
    /// The directory with the nodes, or the directory of one node
    #[arg(long, default_value = "quorate-data")]
    dir: PathBuf,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// How well something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grade {
    Ok,
    Warn,
    Bad,
}

impl Grade {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// Something that was looked at.
#[derive(Clone, Debug)]
struct Finding {
    grade: Grade,
    /// What was looked at: keys, ports, ...
    check: &'static str,
    /// Whose: a node, a directory, this machine.
    of: String,
    what: String,
    /// What to do about it.
    next: Option<String>,
}

impl Finding {
    fn new(grade: Grade, check: &'static str, of: impl Into<String>, what: impl Into<String>) -> Self {
        Self { grade, check, of: of.into(), what: what.into(), next: None }
    }

    fn next(self, what: impl Into<String>) -> Self {
        Self { next: Some(what.into()), ..self }
    }

    fn line(&self) -> String {
        let next = self.next.as_ref().map_or(String::new(), |next| format!("\n      do: {next}"));
        format!("{:<4}  {:<8} {:<10} {}{next}", self.grade.name(), self.check, self.of, self.what)
    }
}

impl Doctor {
    pub(crate) fn run(&self) -> Outcome {
        let found = nodes::find(&self.dir);
        if found.is_empty() {
            return Err(Failure::new(Code::Unreadable, "there is no node")
                .at(self.dir.display().to_string())
                .next("quorate up, or quorate init, makes some; or name another directory with --dir"));
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
            out::line(format!("{ok} ok, {warn} to think about, {bad} bad"));
        }
        Ok(if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
