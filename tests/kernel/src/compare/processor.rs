//! The processor time of processes and of all that they have started.

use std::collections::BTreeMap;
use std::fs;

/// Ticks of a second, in `/proc`, on all machines.
const TICKS: f64 = 100.0;

/// A process, in the words of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    parent: u32,
    ticks: u32,
}

/// Returns how many seconds these have had, and those that they have started and that run.
pub(crate) fn seconds(roots: &[u32]) -> f64 {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, process(&fs::read_to_string(entry.path().join("stat")).ok()?)?))
    });
    f64::from(ticks(&all.collect(), roots)) / TICKS
}

fn ticks(all: &BTreeMap<u32, Process>, roots: &[u32]) -> u32 {
    let descends = |pid: u32| {
        let line = std::iter::successors(Some(pid), |pid| all.get(pid).map(|process| process.parent));
        // A process that has gone since may have given its number to another: no line is longer than this.
        line.take(64).any(|pid| roots.contains(&pid))
    };
    all.iter().filter(|(pid, _)| descends(**pid)).map(|(_, process)| process.ticks).sum()
}

/// Reads `PID (NAME) S PARENT ... utime stime ...`: a name may have blanks and brackets.
fn process(stat: &str) -> Option<Process> {
    let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |at: usize| words.get(at)?.parse::<u32>().ok();
    Some(Process { parent: number(1)?, ticks: number(11)? + number(12)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let stat = "17 (a (b) c) S 4 17 17 0 -1 4194560 100 0 0 0 250 50 7 7 20 0 1 0 100";
        assert_eq!(process(stat), Some(Process { parent: 4, ticks: 300 }));
        assert_eq!(process("17 (short) S 4"), None);
    }

    #[test]
    fn what_a_process_has_started_counts_and_what_others_have_does_not() {
        let all = [(1, 0, 1000), (4, 1, 10), (5, 4, 20), (6, 5, 30), (7, 1, 500)];
        let all = all.map(|(pid, parent, ticks)| (pid, Process { parent, ticks })).into();
        assert_eq!(ticks(&all, &[4]), 60);
        assert_eq!(ticks(&all, &[5, 7]), 550);
    }
}
