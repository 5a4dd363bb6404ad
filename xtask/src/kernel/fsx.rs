//! Reads, writes, truncates and maps at random, each compared with what is known: `fsx`, with a file for each seed.

use std::path::Path;

use anyhow::Result;

use super::suites;

const VERSION: &str = "0.3.2";
const SEEDS: u64 = 5;
const OPERATIONS: u64 = 100_000;

/// All that NFS version 3 has. Most of it stays in the client's cache, as it does for a program; what makes the client
/// send and fetch is rarer: truncation, `fsync`, another opening, and dropping what is mapped.
const CONFIGURATION: &str = "flen = 131072\nnomsyncafterwrite = true\n[opsize]\nmax = 16384\n[weights]\n\
    close_open = 0.5\ninvalidate = 0.5\nmapread = 10.0\nmapwrite = 10.0\nread = 10.0\nwrite = 10.0\ntruncate = 2.0\n\
    fsync = 0.5\nfdatasync = 0.5\nposix_fadvise = 1.0\ncopy_file_range = 0.5\nsendfile = 0.5\n";

/// Returns the script that the guest runs.
pub(crate) fn script(cache: &Path) -> Result<String> {
    let program = suites::program(cache, "fsx", VERSION)?;
    let configuration = cache.join("fsx.toml");
    std::fs::write(&configuration, CONFIGURATION)?;
    Ok(format!(
        "mkdir fsx && cd fsx || exit 1\nfor seed in $(seq 1 {SEEDS}); do (\n  \
         if said=$('{}' -S $seed -N {OPERATIONS} -f '{}' file-$seed 2>&1); then echo \"ok      seed $seed\"\n  \
         else echo \"FAILED  seed $seed: $(echo \"$said\" | tail -n 20)\"; fi) & \ndone\nwait\n",
        program.display(),
        configuration.display()
    ))
}

/// Says how it went, and whether that is as good as it can be.
pub(crate) fn judge(lines: &[String]) -> (String, bool) {
    let clean = u64::try_from(lines.iter().filter(|line| line.starts_with("ok ")).count()).unwrap_or(0);
    (format!("{clean} of {SEEDS} seeds clean, {OPERATIONS} operations each"), clean == SEEDS)
}
