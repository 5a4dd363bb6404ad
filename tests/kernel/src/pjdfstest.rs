//! POSIX conformance of each call, tested by `pjdfstest` in its Rust version.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;

use super::suites;

const VERSION: &str = "0.2.2";

/// The number of passing cases, of 398.
const PASSED_MIN: usize = 380;
/// Cases that fail because of the protocol or its client, with the reason. Any other failure is a bug of ours.
const KNOWN: &[(&str, &str)] = &[
    (
        "unlink::open_file_not_freed",
        "there is no OPEN: the client renames what is removed while it is open, and that keeps its link",
    ),
    ("utimensat::y2038", "a time on the wire has 32 bits of seconds"),
];

/// Two users beside root that Debian has. Not tested: EROFS needs a remount of the file system that is
/// tested, EXDEV a second one of the same kind.
const CONFIGURATION: &str = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutime_now = {}\nutimensat = {}\n\
    [settings]\nnaptime = 0.02\nallow_remount = false\n\
    [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n";

/// Returns the script that the guest runs.
pub(crate) fn script(cache: &Path) -> Result<String> {
    let program = suites::program(cache, "pjdfstest", VERSION)?;
    let configuration = cache.join("pjdfstest.toml");
    std::fs::write(&configuration, CONFIGURATION)?;
    Ok(format!(
        "umask 022\nmkdir pjdfstest && NO_COLOR=1 '{}' -c '{}' -p pjdfstest 2>&1 | cat\n",
        program.display(),
        configuration.display()
    ))
}

/// Says how it went, and whether that is as good as it can be.
pub(crate) fn judge(lines: &[String]) -> (String, bool) {
    let ended = |how: &str| -> Vec<&str> {
        lines
            .iter()
            .filter(|line| !line.starts_with('\t'))
            .filter_map(|line| line.strip_suffix(how)?.strip_suffix(' '))
            .map(str::trim)
            .collect()
    };
    let (passed, failed, skipped) = (ended("ok"), ended("FAILED"), ended("skipped"));
    let reason = |name: &str| KNOWN.iter().find(|(known, _)| *known == name).map(|(_, reason)| *reason);
    let mut said = format!("{} passed, {} failed, {} skipped", passed.len(), failed.len(), skipped.len());
    for name in &failed {
        let _ = write!(said, "\n  {name}: {}", reason(name).unwrap_or("NOT KNOWN"));
    }
    let whole = lines.iter().any(|line| line.starts_with("Summary"));
    if !whole {
        said += "\n  it did not come to its end";
    }
    (said, whole && passed.len() >= PASSED_MIN && failed.iter().all(|name| reason(name).is_some()))
}
