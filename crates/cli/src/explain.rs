//! `quorate explain CODE`, `quorate explain limits` and `quorate explain settings`.

use std::process::ExitCode;

use clap::Args;
use quorate_node::settings::change::{Change, changes};

use crate::code::Code;
use crate::fail::{CommandResult, Failure, nearest};
use crate::out;

/// The page of the documentation.
const LIMITS: &str = include_str!("../../../docs/limits.md");

/// Describe an error code and what to do about it
///
/// Without a code, lists all codes. `limits` lists the largest values that quorate accepts. `settings` says how
/// each setting can change after the first start of the cluster.
///
/// Examples:
///
///   quorate explain Q004
///   quorate explain limits
///   quorate explain settings
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Explain {
    /// The error code, such as Q004, or `limits`, or `settings`
    code: Option<String>,
}

impl Explain {
    pub(crate) fn run(&self) -> CommandResult {
        let Some(typed) = &self.code else {
            for code in Code::ALL {
                out::line(format!("{code}  {}", code.title()));
            }
            return Ok(ExitCode::SUCCESS);
        };
        if typed == "limits" {
            out::line(plain(LIMITS));
            return Ok(ExitCode::SUCCESS);
        }
        if typed == "settings" {
            out::line(settings());
            return Ok(ExitCode::SUCCESS);
        }
        let wanted = typed.to_uppercase();
        if let Some(code) = Code::ALL.iter().find(|code| code.number() == wanted) {
            out::line(format!(
                "{code}: {}\n\n{}\n\nExit status {}.",
                code.title(),
                code.text(),
                code.status()
            ));
            return Ok(ExitCode::SUCCESS);
        }
        let near = nearest(&wanted, Code::ALL.iter().map(|code| code.number()));
        let next = near.map_or("quorate explain".to_owned(), |code| format!("quorate explain {code}"));
        Err(Failure::new(Code::Unknown, format!("no code `{typed}`")).next(next))
    }
}

/// Returns how each setting can change.
fn settings() -> String {
    let mut text = "How settings can change after the first start\n\n\
                    A setting in node.toml may differ between nodes: change it there, and restart the node.\n\n\
                    Settings in cluster.toml:\n"
        .to_owned();
    for (key, change) in changes() {
        let how = match change {
            Change::Ordered(_) => format!("while the cluster runs: quorate set --dir DIR {key} VALUE"),
            Change::Stopped(why) => format!("while all nodes are stopped: {why}"),
            Change::Fixed(why) => format!("cannot change: {why}"),
            Change::Node => continue,
        };
        text.extend(["\n  ", key, "\n      ", &how]);
    }
    text + "\n\nTo change a setting while all nodes are stopped: stop all nodes, change cluster.toml of every node in\n\
            the same way, and start the nodes."
}

/// Returns a page without its markup: each row of a table is a line, with the heads of the later columns.
fn plain(page: &str) -> String {
    let mut heads: Vec<String> = Vec::new();
    let mut out = String::new();
    for line in page.lines() {
        let Some(row) = line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")) else {
            if !line.starts_with("|--") {
                heads.clear();
                out += &text(line.trim_start_matches(['#', ' ']));
                out.push('\n');
            }
            continue;
        };
        let cells: Vec<String> = row.split(" | ").map(text).collect();
        if heads.is_empty() {
            heads = cells;
            continue;
        }
        let named =
            heads.iter().zip(&cells).skip(1).map(|(head, cell)| format!("{}: {cell}", head.to_lowercase()));
        let [what, ..] = cells.as_slice() else { continue };
        out.extend(["  ", what, "\n      ", &named.collect::<Vec<_>>().join("; "), "\n"]);
    }
    out.trim_end().to_owned()
}

/// Returns a text without the marks of code and links.
fn text(marked: &str) -> String {
    let mut out = String::new();
    let mut rest = marked;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((name, after)) =
            link.split_once("](").and_then(|(name, after)| Some((name, after.split_once(')')?.1)))
        else {
            break;
        };
        out += before;
        out += name;
        rest = after;
    }
    (out + rest).replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_limits_is_readable_in_a_terminal() {
        let page = plain(LIMITS);
        assert!(page.starts_with("Limits\n"));
        assert!(
            page.contains("\n  operation\n      limit: 1 MiB + 4 KiB; beyond it: refused by the client\n"),
            "{page}"
        );
        assert!(!page.contains(['`', '[', '|']), "{page}");
    }
}
