//! A test in a network namespace of its own, where all ports are free.

use std::process::{Command, Stdio};

/// Set in the process that runs in a namespace.
const INSIDE: &str = "QUORATE_INSIDE_A_NAMESPACE";

/// Returns whether this process is in a namespace of its own. If not, runs the test in one, and passes if that passes.
pub(crate) fn in_namespace(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let is_root = nix::unistd::geteuid().is_root();
    let flags: &[&str] = if is_root { &["-n", "-m"] } else { &["-r", "-n", "-m"] };
    let status = Command::new("unshare")
        .args(flags)
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "yes")
        .stdin(Stdio::null())
        .status();
    assert!(
        status.unwrap().success(),
        "it failed in its namespace: root, or user namespaces, and `unshare` are needed"
    );
    false
}
