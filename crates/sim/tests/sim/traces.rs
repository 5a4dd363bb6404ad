//! Every golden trace under `traces/` is played and has to come out as it stands there.
//!
//! `UPDATE_TRACES=1 cargo test -p quorate-sim --test sim traces` rewrites the files.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::fs;
use std::path::{Path, PathBuf};

use quorate_sim::script::{diff, play};

/// The traces' folder.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces")
}

/// Returns every trace below `folder`, in the order of their names. Those of the registers are another
/// simulator's: `crates/quorum-sim/tests/traces.rs`.
fn traces(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("quorum") {
            found.extend(traces(&path));
        } else if path.extension().is_some_and(|extension| extension == "txt") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn every_trace_comes_out_as_it_stands() {
    let root = root();
    let update = std::env::var_os("UPDATE_TRACES").is_some();
    let mut failures = Vec::new();
    let paths = traces(&root);
    assert!(!paths.is_empty(), "no traces in {}", root.display());
    for path in paths {
        let name = Path::new("traces").join(path.strip_prefix(&root).unwrap());
        let name = name.display();
        let old = fs::read_to_string(&path).unwrap();
        let played = play(&old);
        for trouble in &played.troubles {
            failures.push(format!("{name}:{}: {}", trouble.line, trouble.text));
        }
        if played.text == old {
            continue;
        }
        if update && played.troubles.is_empty() {
            fs::write(&path, &played.text).unwrap();
        } else {
            let changes = diff::show(&old, &played.text);
            failures.push(format!("{name} comes out differently:\n{changes}"));
        }
    }
    if !failures.is_empty() {
        let how = "If each change is right:  UPDATE_TRACES=1 cargo test -p quorate-sim --test sim traces";
        panic!("\n{}\n{how}\n", failures.join("\n"));
    }
}

/// A trace does not depend on anything but itself.
#[test]
fn a_trace_comes_out_the_same_each_time() {
    for path in traces(&root()).into_iter().take(3) {
        let text = fs::read_to_string(path).unwrap();
        assert_eq!(play(&text).text, play(&text).text);
    }
}
