//! What happened, line by line: `->` is a message, `.` a milestone, `!` something executed, `#` something
//! that happened to a node (style §11).

use std::fmt;

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The step of the world.
    pub step: u64,
    /// World time, in nanoseconds.
    pub at: u64,
    /// Who: `r0`, `r0'` for a second copy, `c0`, `c0.1` for a lane.
    pub who: String,
    /// What.
    pub what: What,
}

/// The content of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A message left.
    Sent {
        /// For whom: `r1`, `c0`, `*` for all other replicas.
        to: String,
        /// Kind and fields.
        text: String,
    },
    /// Something was reached.
    Milestone(String),
    /// A batch was executed; one line for each request.
    Executed(String),
    /// A fault, or its end.
    Fault(String),
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = &self.who;
        match &self.what {
            What::Sent { to, text } => write!(f, "{who} -> {to:<3} {text}"),
            What::Milestone(text) => write!(f, "{who:<3} .    {text}"),
            What::Executed(text) => write!(f, "{who:<3} !    {text}"),
            What::Fault(text) => write!(f, "{who:<3} #    {text}"),
        }
    }
}

/// Lines kept in memory: the last ones, or all.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    lines: std::collections::VecDeque<Line>,
    /// 0: no bound.
    max: usize,
}

impl Trace {
    /// Returns a trace that keeps every line.
    pub fn all() -> Self {
        Self::default()
    }

    /// Returns a trace that keeps the last `max` lines.
    pub fn last(max: usize) -> Self {
        Self { max, ..Self::default() }
    }

    /// Appends a line. At the bound the oldest goes.
    pub fn push(&mut self, line: Line) {
        if self.max > 0 && self.lines.len() == self.max {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Returns the lines, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter()
    }

    /// Takes the lines out.
    pub fn take(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.lines).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(who: &str, what: What) -> Line {
        Line { step: 1, at: 0, who: who.to_owned(), what }
    }

    #[test]
    fn lines_look_as_in_the_style_guide() {
        let sent = What::Sent { to: "r0".to_owned(), text: "REQUEST     t=1 \"put x 1\"".to_owned() };
        assert_eq!(line("c0", sent).to_string(), "c0 -> r0  REQUEST     t=1 \"put x 1\"");
        let reached = What::Milestone("pre-prepared n=1".to_owned());
        assert_eq!(line("r0", reached).to_string(), "r0  .    pre-prepared n=1");
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let mut trace = Trace::last(2);
        for i in 0..5 {
            trace.push(line("r0", What::Fault(i.to_string())));
        }
        let kept: Vec<String> = trace.lines().map(ToString::to_string).collect();
        assert_eq!(kept, ["r0  #    3", "r0  #    4"]);
    }
}
