//! Errors of commands: what failed, where, and what to do next, under a stable code that `quorate explain`
//! describes.

use std::fmt;
use std::process::ExitCode;

use crate::code::Code;

/// A failure of a command.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    /// What failed: one sentence without a full stop.
    pub(crate) what: String,
    /// The flag, file or address concerned.
    pub(crate) place: Option<String>,
    /// What to type next.
    pub(crate) next: Option<String>,
}

/// The result of a command.
pub(crate) type CommandResult = Result<ExitCode, Failure>;

impl Failure {
    pub(crate) fn new(code: Code, what: impl Into<String>) -> Self {
        Self { code, what: what.into(), place: None, next: None }
    }

    pub(crate) fn at(self, place: impl Into<String>) -> Self {
        Self { place: Some(place.into()), ..self }
    }

    pub(crate) fn next(self, command: impl Into<String>) -> Self {
        Self { next: Some(command.into()), ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {}: {}", self.code, self.what)?;
        if let Some(place) = &self.place {
            write!(f, "\n  --> {place}")?;
        }
        match &self.next {
            Some(next) => write!(f, "\n  do: {next}"),
            None => write!(f, "\n  do: quorate explain {}", self.code),
        }
    }
}

/// Returns the name that is most similar to `typed`, if one is similar.
pub(crate) fn nearest<'a>(typed: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = typed.chars().count().max(3) / 3;
    let mut best: Option<(usize, &str)> = None;
    for name in names {
        let distance = distance(typed, name);
        if distance <= limit && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, name));
        }
    }
    best.map(|(_, name)| name)
}

/// The edit distance: characters changed, added, dropped or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = change.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found_and_a_far_one_is_not() {
        assert_eq!(nearest("stauts", ["status", "start"]), Some("status"));
        assert_eq!(nearest("runn", ["run", "replay", "list"]), Some("run"));
        assert_eq!(nearest("p1_equivocate", ["p1_equivocates", "p2_conflicts"]), Some("p1_equivocates"));
        assert_eq!(nearest("bank", ["sim", "explain"]), None);
        assert_eq!(nearest("", ["sim"]), None);
    }

    #[test]
    fn a_failure_says_what_where_and_what_to_do() {
        let failure = Failure::new(Code::Rule, "n = 3: too few").at("--n 3").next("quorate sim run --n 4");
        assert_eq!(
            failure.to_string(),
            "error Q004: n = 3: too few\n  --> --n 3\n  do: quorate sim run --n 4"
        );
    }
}
