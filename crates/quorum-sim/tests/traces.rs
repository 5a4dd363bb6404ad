//! The traces under `traces/quorum/`: every named scenario, as what was delivered and returned.
//!
//! `UPDATE_TRACES=1 cargo test -p quorate-quorum-sim --test traces` writes the files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

use std::path::Path;

use quorate_quorum_sim::scenario;

#[test]
fn every_scenario_comes_out_as_its_trace_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/quorum");
    let update = std::env::var_os("UPDATE_TRACES").is_some();
    let mut names = Vec::new();
    for scenario in scenario::ALL {
        let path = folder.join(format!("{}.txt", scenario.name.replace('-', "_")));
        let lines = scenario.trace().unwrap();
        assert!(lines.len() > 5, "{} has no trace", scenario.name);
        let text = format!("# {} {}.\n\n{}\n", scenario.source, scenario.about, lines.join("\n"));
        if update {
            std::fs::write(&path, &text).unwrap();
        }
        let stands = std::fs::read_to_string(&path).unwrap_or_default();
        for (number, (stands, got)) in stands.lines().zip(text.lines()).enumerate() {
            assert_eq!(stands, got, "{}, line {}", path.display(), number + 1);
        }
        assert_eq!(stands, text, "{}", path.display());
        names.push(path.file_name().unwrap().to_owned());
    }
    let there = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
    for name in there {
        assert!(names.contains(&name), "{} is no scenario's", name.display());
    }
}
