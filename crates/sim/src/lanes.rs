//! Draws a trace with one lane for each node, to show a phase at a glance (style §11).

use std::fmt::Write;

use crate::trace::{Line, What};

/// Maximum number of letters in a lane: what is longer is cut.
const LETTERS_MAX: usize = 22;

/// Draws `lines`, one lane for each of `names`, in their order. Lines of others are left out.
pub fn draw<'a>(names: &[String], lines: impl IntoIterator<Item = &'a Line>) -> String {
    let lane = |who: &String| names.iter().position(|name| name == who);
    let cells: Vec<(usize, String)> =
        lines.into_iter().filter_map(|line| Some((lane(&line.who)?, text(line)))).collect();
    let letters = cells.iter().map(|(_, text)| text.len()).chain(names.iter().map(String::len)).max();
    let width = letters.unwrap_or(0).min(LETTERS_MAX) + 2;
    let mut out = String::new();
    row(&mut out, names.iter().map(String::as_str), width);
    for (lane, text) in &cells {
        row(&mut out, (0..names.len()).map(|i| if i == *lane { text } else { "|" }), width);
    }
    out
}

/// Writes one row of cells.
fn row<'a>(out: &mut String, cells: impl Iterator<Item = &'a str>, width: usize) {
    let start = out.len();
    for cell in cells {
        let shown: String = cell.chars().take(width - 2).collect();
        let _ = write!(out, "{shown:<width$}");
    }
    out.truncate(start + out[start..].trim_end().len());
    out.push('\n');
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
        What::Executed(text) => format!("! {}", text.split(" [").next().unwrap_or(text)),
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
c0                 r0                 r1
REQUEST t=1 > r0   |                  |
|                  PRE-PREPARE n=1 >  |
|                  |                  pre-prepared n=1
";
        assert_eq!(draw(&names, &lines), expected);
    }
}
