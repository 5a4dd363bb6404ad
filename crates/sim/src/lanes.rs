//! Draws a trace with one lane for each node, to show a phase at a glance (style §11).

use std::fmt::Write;

use crate::trace::{Line, What};

/// Maximum number of letters in a lane: what is longer is cut.
const LETTERS_MAX: usize = 22;
/// The same in a diagram that has to fit a terminal.
const SHORT_MAX: usize = 18;
/// Rows between two heads: those of a terminal.
const PAGE_ROWS: usize = 40;
/// The head of the column that all clients share.
const CLIENTS: &str = "clients";

/// A trace as a table: a column for each replica and one for all clients, and a row for each event.
#[derive(Clone, Debug)]
pub struct Diagram<'a> {
    heads: Vec<&'a str>,
    rows: Vec<Row<'a>>,
}

/// An event in its column.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    line: &'a Line,
    column: usize,
    text: String,
}

impl<'a> Row<'a> {
    /// Returns the event.
    pub fn line(&self) -> &'a Line {
        self.line
    }

    /// Returns the index of its column.
    pub fn column(&self) -> usize {
        self.column
    }

    /// Returns its essence.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl<'a> Diagram<'a> {
    /// Makes the diagram of `lines`. Lines of nodes that are not in `names` are left out.
    pub fn new(names: &'a [String], lines: impl IntoIterator<Item = &'a Line>) -> Self {
        let is_client = |name: &str| name.starts_with('c');
        let mut heads: Vec<&str> = names.iter().map(String::as_str).filter(|name| !is_client(name)).collect();
        let clients = heads.len();
        if clients < names.len() {
            heads.push(CLIENTS);
        }
        let row = |line: &'a Line| {
            let (name, what) = (line.who.as_str(), text(line));
            if is_client(name) && names.contains(&line.who) {
                return Some(Row { line, column: clients, text: format!("{name} {what}") });
            }
            let column = heads.iter().position(|head| *head == name)?;
            Some(Row { line, column, text: what })
        };
        let rows = lines.into_iter().filter_map(row).collect();
        Self { heads, rows }
    }

    /// Returns the heads of the columns: the replicas, then the clients.
    pub fn heads(&self) -> &[&'a str] {
        &self.heads
    }

    /// Returns the events.
    pub fn rows(&self) -> &[Row<'a>] {
        &self.rows
    }

    /// Draws it for a terminal. The head stands above each page.
    pub fn draw(&self) -> String {
        let mut out = String::new();
        let width = SHORT_MAX + 2;
        for (index, event) in self.rows.iter().enumerate() {
            if index % PAGE_ROWS == 0 {
                let _ = write!(out, "{:>7}  ", "step");
                row(&mut out, self.heads.iter().copied(), width);
            }
            let _ = write!(out, "{:>7}  ", event.line.step);
            out.push_str(&format!("{:<width$}", "|").repeat(event.column));
            // Nothing follows the last column.
            let is_last = event.column + 1 == self.heads.len();
            out.extend(event.text.chars().take(if is_last { 2 * SHORT_MAX } else { SHORT_MAX }));
            out.push('\n');
        }
        out
    }
}

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

    #[test]
    fn a_diagram_has_replicas_first_and_all_clients_in_one_column() {
        let names = ["c0", "c0.1", "r0", "r1"].map(str::to_owned);
        let line = |step, who: &str, text: &str| {
            let what = What::Sent { to: "r0".to_owned(), text: text.to_owned() };
            Line { step, at: 0, who: who.to_owned(), what }
        };
        let mut lines =
            vec![line(1, "c0.1", "REQUEST t=1"), line(2, "r1", "PREPARE n=1"), line(3, "x", "READ")];
        let diagram = Diagram::new(&names, &lines);
        assert_eq!(diagram.heads(), ["r0", "r1", "clients"]);
        let expected = [
            "   step  r0                  r1                  clients",
            "      1  |                   |                   c0.1 REQUEST t=1 > r0",
            "      2  |                   PREPARE n=1 > r0",
        ];
        assert_eq!(diagram.draw().lines().collect::<Vec<_>>(), expected);
        lines.truncate(1);
        let lines: Vec<Line> = std::iter::repeat_n(lines.remove(0), 41).collect();
        assert_eq!(Diagram::new(&names, &lines).draw().matches("clients").count(), 2, "a head on each page");
    }
}
