//! Reads, writes, truncates and maps at random, each compared with what is known: `fsx`, with a file for each seed.

use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::Result;

use super::suites;

const VERSION: &str = "0.3.2";
/// The seeds, if none are named.
pub(crate) const SEEDS: RangeInclusive<u64> = 1..=5;
const OPERATIONS: u64 = 100_000;

/// The even seeds: beside the program's defaults what else NFS version 3 has, each at a tenth of the rate. Sizes, and
/// the weights of reads, writes, maps and truncations to one another, are the defaults. The odd ones have no file.
const MORE: &str = "[weights]\nclose_open = 1.0\ninvalidate = 1.0\nfsync = 1.0\nfdatasync = 1.0\nposix_fadvise = 1.0\n\
    copy_file_range = 1.0\nsendfile = 1.0\nmapread = 10.0\nmapwrite = 10.0\nread = 10.0\nwrite = 10.0\ntruncate = 10.0\n";

/// Returns the script that the guest runs.
pub(crate) fn script(cache: &Path, seeds: &RangeInclusive<u64>) -> Result<String> {
    let program = suites::program(cache, "fsx", VERSION)?;
    let more = cache.join("fsx.toml");
    std::fs::write(&more, MORE)?;
    Ok(runs(&program, &more, seeds))
}

fn runs(program: &Path, more: &Path, seeds: &RangeInclusive<u64>) -> String {
    let (program, more) = (program.display(), more.display());
    let runs = seeds.clone().map(|seed| {
        let settings = if seed % 2 == 0 { format!("-f '{more}' ") } else { String::new() };
        format!(
            "(if said=$('{program}' -S {seed} -N {OPERATIONS} {settings}file-{seed} 2>&1); then echo \"ok      seed {seed}\"\n  \
             else echo \"FAILED  seed {seed}: $(echo \"$said\" | tail -n 20)\"; fi) &\n"
        )
    });
    format!("mkdir fsx && cd fsx || exit 1\n{}wait\n", runs.collect::<String>())
}

/// Says how it went, and whether that is as good as it can be.
pub(crate) fn judge(lines: &[String], seeds: &RangeInclusive<u64>) -> (String, bool) {
    let all = seeds.clone().count();
    let clean = lines.iter().filter(|line| line.starts_with("ok ")).count();
    (format!("{clean} of {all} seeds clean, {OPERATIONS} operations each"), all > 0 && clean == all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_seeds_have_the_programs_defaults_and_even_ones_more() {
        let script = runs(Path::new("/p/fsx"), Path::new("/p/fsx.toml"), &(1..=2));
        assert!(script.contains("'/p/fsx' -S 1 -N 100000 file-1 "), "{script}");
        assert!(script.contains("'/p/fsx' -S 2 -N 100000 -f '/p/fsx.toml' file-2 "), "{script}");
        assert_eq!(script.matches("if said=").count(), 2);
    }

    #[test]
    fn every_seed_has_to_be_clean() {
        let said = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        assert!(judge(&said("ok      seed 1\nok      seed 2"), &(1..=2)).1);
        assert!(!judge(&said("ok      seed 1\nFAILED  seed 2: read"), &(1..=2)).1);
        assert!(!judge(&[], &(1..=2)).1, "a guest that says nothing");
    }
}
