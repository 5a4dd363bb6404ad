//! The five phases of the Andrew benchmark (OSDI99 Tables 2 and 3, DSN01 Figure 8), over n copies of a tree.
//!
//! Programs that every system has make them. The sources come from the guest's memory, and the compiler's own files
//! go there: what is measured is what happens in the directory that is mounted.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::{Heard, tree};

/// The phases, in the order of the paper.
pub(super) const PHASES: [&str; 5] = ["1 mkdir", "2 copy", "3 stat", "4 read", "5 compile"];
/// What the guest says after each, and before the first.
const MARK: &str = "andrew: phase ";

/// A load: a number of copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Andrew {
    pub(super) copies: u32,
    /// Whether there is a compiler; without one there is no phase 5.
    pub(super) compiles: bool,
}

impl Andrew {
    /// Returns what the guest runs in the directory `place`. `tree` is where the host has the sources.
    pub(super) fn script(self, tree: &Path, place: &str) -> String {
        let dirs: Vec<String> = (0..tree::DIRS).map(|number| format!("\"$copy/dir-{number}\"")).collect();
        let sources = tree::sources().join(" ");
        let mut phases = vec![
            format!("mkdir \"$copy\" {}", dirs.join(" ")),
            "cp -R \"$tree/.\" \"$copy\"".to_owned(),
            "ls -lR \"$copy\" >/dev/null".to_owned(),
            "find \"$copy\" -type f -exec wc -l {} + >/dev/null".to_owned(),
        ];
        if self.compiles {
            phases.push(format!(
                "(cd \"$copy\" && for source in {sources}; do cc -O0 -c -o \"${{source%.c}}.o\" \"$source\" || exit; done && \
                 cc -o program dir-*/*.o)"
            ));
        }
        let each = phases.iter().zip(1..).map(|(phase, number)| {
            format!("for copy in $copies; do {phase} || exit 1; done\necho '{MARK}{number}'\n")
        });
        format!(
            "umask 022\ntree=/mnt/tmp/tree\ncp -R '{}' $tree && mkdir '{place}/andrew' && cd '{place}/andrew' || exit 1\n\
             copies=$(seq -f copy-%.0f 1 {})\necho '{MARK}0'\n{}cd .. && rm -rf andrew\n",
            tree.display(),
            self.copies,
            each.collect::<String>()
        )
    }

    /// Returns the seconds of each phase, and of all.
    pub(super) fn read(self, heard: &[Heard]) -> Result<Vec<f64>> {
        let when = |phase: usize| {
            let mark = format!("{MARK}{phase}");
            let found = heard.iter().find(|heard| heard.line == mark).map(|heard| heard.at_s);
            found.with_context(|| format!("phase {phase} did not end"))
        };
        let mut seconds = Vec::new();
        for phase in 1..self.columns().len() {
            seconds.push(when(phase)? - when(phase - 1)?);
        }
        seconds.push(seconds.iter().sum());
        Ok(seconds)
    }

    pub(super) fn columns(self) -> Vec<&'static str> {
        let phases = if self.compiles { &PHASES[..] } else { &PHASES[..4] };
        phases.iter().copied().chain(["total"]).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    fn heard(marks: &[(f64, usize)]) -> Vec<Heard> {
        marks.iter().map(|(at_s, phase)| Heard { at_s: *at_s, line: format!("{MARK}{phase}") }).collect()
    }

    #[test]
    fn phases_are_timed_apart_and_together() {
        let (with, without) = (Andrew { copies: 1, compiles: true }, Andrew { copies: 1, compiles: false });
        let marks = heard(&[(1.0, 0), (1.5, 1), (3.5, 2), (4.0, 3), (5.0, 4), (9.0, 5)]);
        assert_eq!(with.read(&marks).unwrap(), [0.5, 2.0, 0.5, 1.0, 4.0, 8.0]);
        assert_eq!(without.read(&marks).unwrap(), [0.5, 2.0, 0.5, 1.0, 4.0]);
        assert!(with.read(&marks[..5]).is_err(), "the last phase did not end");
    }

    /// Runs the script itself, in a directory of this machine.
    #[test]
    fn the_script_does_what_it_says() {
        let top = std::env::temp_dir().join(format!("quorate-andrew-{}", std::process::id()));
        let (source, place) = (top.join("source"), top.join("place"));
        tree::write(&source).unwrap();
        std::fs::create_dir_all(&place).unwrap();
        let load = Andrew { copies: 2, compiles: true };
        let script = load.script(&source, &place.display().to_string());
        let script = script.replace("/mnt/tmp/tree", &top.join("tree").display().to_string());
        let out = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        let left = std::fs::read_dir(&place).unwrap().count();
        std::fs::remove_dir_all(&top).unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        let marks: Vec<Heard> = said
            .lines()
            .zip(0_u32..)
            .map(|(line, at)| Heard { at_s: f64::from(at), line: line.to_owned() })
            .collect();
        assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
        assert_eq!(load.read(&marks).unwrap().len(), load.columns().len());
        assert_eq!(left, 0, "it removes what it made");
    }
}
