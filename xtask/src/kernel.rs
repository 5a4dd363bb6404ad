//! `cargo xtask kernel`: the file system through the NFS client of a real Linux kernel.
//!
//! ```text
//! suite --> Linux in user mode, its NFS client --tap0--> quorate nfs --> 4 replicas
//! \_______ guest ______________________/  \_______ a network namespace of the host ___/
//! ```
//!
//! The kernel is Debian's package `user-mode-linux`: it runs as a process, needs no virtualization and nothing of
//! the host's kernel but a tap device. The guest's root is the host's, read-only, so that it has all programs that
//! the host has. The newest package runs with its own C library, in a jail of its own; nothing is installed.

mod host;
mod machine;

use anyhow::{Context as _, Result, bail};

use self::host::Host;
use self::machine::Machine;
use crate::shell::{cargo, root, run};

/// What the guest runs in the directory that it has mounted.
const SUITE: &str = include_str!("../kernel/basic.sh");

/// Runs the suite against a cluster of its own. With `--program FILE` that one is the `quorate` that is run, and
/// none is built.
pub(crate) fn kernel(args: &[String]) -> Result<()> {
    let given = match args {
        [] => None,
        [flag, file] if flag == "--program" => {
            Some(std::fs::canonicalize(file).with_context(|| file.clone())?)
        }
        _ => bail!("kernel takes --program FILE or nothing"),
    };
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!("the guest is for Linux on x86-64");
    }
    let cache = root().join("target/kernel");
    std::fs::create_dir_all(&cache).with_context(|| format!("{}", cache.display()))?;
    let machine = Machine::get(&cache)?;
    let program = if let Some(program) = given {
        program
    } else {
        run(&mut cargo(&["build", "--release", "--locked", "-p", "quorate-cli"]))?;
        root().join("target/release/quorate")
    };
    let host = Host::start(&cache.join("run"), &program)?;
    let lines = machine.run(&host, &format!("SOURCE='{}'\n{SUITE}", root().join("crates/fs").display()))?;
    drop(host);
    std::fs::write(cache.join("said.txt"), lines.join("\n"))?;
    let count = |begin: &str| lines.iter().filter(|line| line.starts_with(begin)).count();
    let (good, bad) = (count("ok "), count("FAILED "));
    println!("kernel: {good} ok, {bad} failed; what was said: target/kernel/said.txt");
    if bad > 0 || good == 0 || !lines.iter().any(|line| line == "guest: status 0") {
        bail!("the suite did not pass; what the cluster said: target/kernel/run");
    }
    Ok(())
}
