//! The program `postmark`, as Debian has it (DSN01 Figure 9): many small files that come and go.

use anyhow::{Context as _, Result};

use super::Heard;

/// The paper's transactions [DSN01 §5.2], and a tenth.
pub(super) const FULL: u32 = 100_000;
pub(super) const QUICK: u32 = 10_000;
/// The paper's transactions for each file that there is.
const EACH: u32 = 10;

/// A load: a number of transactions on a tenth as many files of 512 bytes to 16 KB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Postmark {
    pub(super) transactions: u32,
}

impl Postmark {
    pub(super) fn files(self) -> u32 {
        self.transactions / EACH
    }

    /// Returns what the guest runs in the directory that is mounted.
    pub(super) fn script(self) -> String {
        format!(
            "mkdir postmark && cd postmark || exit 1\npostmark <<END\nset location .\nset number {}\n\
             set transactions {}\nset size 512 16384\nset seed 42\nrun\nquit\nEND\ncd .. && rmdir postmark\n",
            self.files(),
            self.transactions
        )
    }

    /// Returns transactions a second, by the host's clock: the program counts whole seconds.
    pub(super) fn read(self, heard: &[Heard]) -> Result<Vec<f64>> {
        let when = |begin: &str| {
            let found = heard.iter().find(|heard| {
                heard.line.split_once(begin).is_some_and(|(_, rest)| rest.trim_start_matches('.') == "Done")
            });
            found
                .map(|heard| heard.at_s)
                .with_context(|| format!("PostMark did not come to `{begin}...Done`"))
        };
        let took = when("Performing transactions")? - when("Creating files")?;
        heard
            .iter()
            .find_map(|heard| own_figure(&heard.line))
            .context("PostMark did not come to its figures")?;
        Ok(vec![f64::from(self.transactions) / took.max(1e-3)])
    }
}

/// Takes the seconds out of the program's own line: `8 seconds of transactions (12500 per second)`.
pub(super) fn own_figure(line: &str) -> Option<f64> {
    line.split_once("seconds of transactions (")?.0.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn heard(lines: &[(f64, &str)]) -> Vec<Heard> {
        lines.iter().map(|(at_s, line)| Heard { at_s: *at_s, line: (*line).to_owned() }).collect()
    }

    const LOAD: Postmark = Postmark { transactions: QUICK };

    /// As the program says it, on a terminal.
    const SAID: &[(f64, &str)] = &[
        (1.0, "PostMark v1.51 : 8/14/01"),
        (3.5, "pm>pm>pm>pm>pm>pm>Creating files...Done"),
        (8.5, "Performing transactions..........Done"),
        (9.0, "Deleting files...Done"),
        (9.0, "Time:"),
        (9.0, "\t8 seconds total"),
        (9.0, "\t5 seconds of transactions (2000 per second)"),
    ];

    #[test]
    fn the_script_asks_for_the_papers_files() {
        let script = Postmark { transactions: FULL }.script();
        assert!(
            script.contains("set number 10000\nset transactions 100000\nset size 512 16384\n"),
            "{script}"
        );
    }

    #[test]
    fn transactions_are_timed_from_the_last_file_made_to_the_last_transaction() {
        assert_eq!(LOAD.read(&heard(SAID)).unwrap(), [2000.0]);
    }

    #[test]
    fn a_program_that_did_not_end_has_no_figure() {
        for lines in 0..SAID.len() {
            assert!(LOAD.read(&heard(&SAID[..lines])).is_err(), "after {lines} lines");
        }
        let failed = [(1.0, "Creating files...Error: cannot open `./7' for writing"), (2.0, "Done")];
        assert!(LOAD.read(&heard(&failed)).is_err());
    }

    #[test]
    fn the_programs_own_seconds_are_read() {
        assert_eq!(own_figure("\t8 seconds of transactions (12500 per second)"), Some(8.0));
        assert_eq!(own_figure("\t9 seconds total"), None);
    }
}
