//! A trace drawn with one lane for each node: a phase at a glance (style §11).

use std::fmt::Write;

use crate::trace::{Line, What};

/// Columns of a lane.
const WIDTH: usize = 24;

/// Draws `lines`, one lane for each of `names`, in their order. Lines of others are left out.
pub fn draw<'a>(names: &[String], lines: impl IntoIterator<Item = &'a Line>) -> String {
    let mut out = String::new();
    let last = names.len().saturating_sub(1);
    for (i, name) in names.iter().enumerate() {
        cell(&mut out, name, i == last);
    }
    for line in lines {
        let Some(lane) = names.iter().position(|name| *name == line.who) else { continue };
        for i in 0..names.len() {
            if i == lane {
                cell(&mut out, &text(line), i == last);
            } else {
                cell(&mut out, "|", i == last);
            }
        }
    }
    out
}

fn cell(out: &mut String, text: &str, last: bool) {
    let shown: String = text.chars().take(WIDTH - 2).collect();
    if last {
        let _ = writeln!(out, "{shown}");
    } else {
        let _ = write!(out, "{shown:<WIDTH$}");
    }
}

/// The line's essence: a message's kind, number and receiver, or what was reached.
fn text(line: &Line) -> String {
    match &line.what {
        What::Sent { to, text } => {
            let mut words = text.split_whitespace();
            let kind = words.next().unwrap_or("");
            let number = words.find(|word| word.starts_with("n=") || word.starts_with("t=")).unwrap_or("");
            let to = if to == "*" { "" } else { to };
            format!("{kind} {number} > {to}").replace("  ", " ").trim_end().to_owned()
        }
        What::Milestone(text) => text.clone(),
        What::Executed(text) => format!("! {text}"),
        What::Fault(text) => format!("# {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_node_has_its_lane() {
        let names = ["c0", "r0", "r1"].map(str::to_owned);
        let line = |who: &str, what| Line { step: 0, at: 0, who: who.to_owned(), what };
        let sent = |to: &str, text: &str| What::Sent { to: to.to_owned(), text: text.to_owned() };
        let lines = [
            line("c0", sent("r0", "REQUEST     t=1 \"put x 1\"")),
            line("r0", sent("*", "PRE-PREPARE v=0 n=1 d=ec39")),
            line("r1", What::Milestone("pre-prepared n=1".to_owned())),
        ];
        let expected = "\
c0                      r0                      r1
REQUEST t=1 > r0        |                       |
|                       PRE-PREPARE n=1 >       |
|                       |                       pre-prepared n=1
";
        assert_eq!(draw(&names, &lines), expected);
    }
}
