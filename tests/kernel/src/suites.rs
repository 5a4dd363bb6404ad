//! Suites of others: fetched and built with `cargo install` into `target/kernel/suites`, never part of the project.

use std::path::{Path, PathBuf};

use anyhow::Result;

use xtask::{cargo, run};

/// Returns the program of a crate at this version; it is built if it is not there.
pub(crate) fn program(cache: &Path, name: &str, version: &str) -> Result<PathBuf> {
    let root = cache.join("suites").join(format!("{name}-{version}"));
    let program = root.join("bin").join(name);
    if !program.is_file() {
        let mut install = cargo(&["install", "--locked", "--quiet", "--version", version, name, "--root"]);
        run(install.arg(&root))?;
    }
    Ok(program)
}
