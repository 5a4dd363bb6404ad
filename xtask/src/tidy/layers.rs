//! Which crate may use which (`ARCHITECTURE.md`), read from the `Cargo.toml` files.

use super::Finding;
use crate::tree::Tree;

/// A room and the rooms that it may use.
struct Room {
    directory: &'static str,
    uses: &'static [&'static str],
    /// In its tests as well.
    tests_use: &'static [&'static str],
}

/// The table of `ARCHITECTURE.md`: down only.
const ROOMS: &[Room] = &[
    Room { directory: "crates/wire", uses: &[], tests_use: &[] },
    Room { directory: "crates/pbft", uses: &["wire"], tests_use: &[] },
    Room { directory: "crates/service", uses: &["wire"], tests_use: &[] },
    Room { directory: "crates/quorum", uses: &["wire"], tests_use: &[] },
    Room { directory: "crates/quorum-sim", uses: &["quorum", "wire"], tests_use: &[] },
    Room { directory: "crates/fs", uses: &["service", "wire"], tests_use: &[] },
    Room { directory: "crates/process", uses: &["pbft", "service", "wire"], tests_use: &[] },
    Room {
        directory: "crates/sim",
        uses: &["process", "pbft", "service", "quorum", "wire"],
        tests_use: &["fs"],
    },
    Room {
        directory: "crates/node",
        uses: &["process", "pbft", "service", "quorum", "fs", "wire"],
        tests_use: &[],
    },
    Room { directory: "crates/gateways", uses: &["node", "pbft", "service", "fs", "wire"], tests_use: &[] },
    Room { directory: "crates/quorum-node", uses: &["node", "quorum", "wire"], tests_use: &["quorum-sim"] },
    Room { directory: "crates/mount", uses: &["node", "service", "fs", "wire"], tests_use: &["pbft"] },
    Room { directory: "crates/derive", uses: &[], tests_use: &[] },
    Room {
        directory: "crates/quorate",
        uses: &["derive", "node", "sim", "service", "pbft", "wire"],
        tests_use: &[],
    },
    Room {
        directory: "crates/bench",
        uses: &[
            "quorate",
            "node",
            "sim",
            "fs",
            "quorum",
            "quorum-sim",
            "quorum-node",
            "service",
            "pbft",
            "wire",
        ],
        tests_use: &[],
    },
    Room {
        directory: "crates/cli",
        uses: &[
            "bench",
            "gateways",
            "quorate",
            "mount",
            "node",
            "sim",
            "fs",
            "quorum",
            "quorum-sim",
            "quorum-node",
            "service",
            "pbft",
            "wire",
        ],
        tests_use: &[],
    },
    Room {
        directory: "fuzz",
        uses: &["gateways", "node", "sim", "fs", "quorum", "quorum-node", "service", "pbft", "wire"],
        tests_use: &[],
    },
    Room { directory: "fuzz/libfuzzer", uses: &["fuzz"], tests_use: &[] },
    Room { directory: "xtask", uses: &[], tests_use: &[] },
    Room { directory: "tests/kernel", uses: &[], tests_use: &[] },
];

/// Finds dependencies that go up, and crates that are not in the table.
pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in manifests(tree) {
        let directory = path.trim_end_matches("/Cargo.toml");
        let Some(room) = ROOMS.iter().find(|room| room.directory == directory) else {
            found.push(Finding::new(path, 0, "this crate is not in the table of rooms"));
            continue;
        };
        for dependency in dependencies(text) {
            // On itself: its tests have its features.
            let is_itself = dependency.in_tests && directory.ends_with(&format!("/{}", dependency.room));
            let allowed = is_itself
                || room.uses.contains(&dependency.room)
                || (dependency.in_tests && room.tests_use.contains(&dependency.room));
            if !allowed {
                let says = format!("{directory} may not use {}", dependency.room);
                found.push(Finding::new(path, dependency.line, says));
            }
        }
    }
    found
}

/// Finds crates that do not take the workspace's lints.
pub(super) fn lints(tree: &Tree) -> Vec<Finding> {
    manifests(tree)
        .filter(|(path, _)| !path.starts_with("fuzz/libfuzzer"))
        .filter(|(_, text)| !text.contains("[lints]\nworkspace = true"))
        .map(|(path, _)| Finding::new(path, 0, "[lints] workspace = true is missing"))
        .collect()
}

fn manifests(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.ending("/Cargo.toml")
}

struct Dependency<'a> {
    room: &'a str,
    in_tests: bool,
    line: usize,
}

/// Returns the rooms of ours that a manifest names as dependencies.
fn dependencies(manifest: &str) -> Vec<Dependency<'_>> {
    let mut found = Vec::new();
    let mut section = "";
    for (index, line) in manifest.lines().map(str::trim).enumerate() {
        let name = if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']');
            // `[dependencies.quorate-wire]`
            section.rsplit_once("dependencies.").map(|(_, name)| name)
        } else if section.ends_with("dependencies") {
            line.split(['.', '=', ' ']).next()
        } else {
            None
        };
        if let Some(room) = name.and_then(room_of) {
            found.push(Dependency { room, in_tests: section.contains("dev-dependencies"), line: index + 1 });
        }
    }
    found
}

fn room_of(package: &str) -> Option<&str> {
    if package == "quorate" { Some(package) } else { package.strip_prefix("quorate-") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_that_goes_up_is_found() {
        let manifest = "[dependencies]\nquorate-wire.workspace = true\nquorate-sim = { path = \"x\" }\n";
        let tree = Tree::of(&[("crates/pbft/Cargo.toml", manifest)]);
        let found = check(&tree);
        assert_eq!(found, [Finding::new("crates/pbft/Cargo.toml", 3, "crates/pbft may not use sim")]);
    }

    #[test]
    fn tests_may_use_what_the_table_grants_them_and_no_more() {
        let manifest = "[dev-dependencies.quorate-fs]\nworkspace = true\n[dev-dependencies]\nquorate-node.workspace = true\n";
        let found = check(&Tree::of(&[("crates/sim/Cargo.toml", manifest)]));
        assert_eq!(found, [Finding::new("crates/sim/Cargo.toml", 4, "crates/sim may not use node")]);
        let manifest = "[dependencies.quorate-fs]\nworkspace = true\n";
        assert_eq!(check(&Tree::of(&[("crates/sim/Cargo.toml", manifest)])).len(), 1);
    }

    #[test]
    fn only_tests_may_use_their_own_crate() {
        let manifest = "[dev-dependencies.quorate]\npath = \".\"\n";
        assert_eq!(check(&Tree::of(&[("crates/quorate/Cargo.toml", manifest)])), []);
        let manifest = "[dependencies.quorate]\npath = \".\"\n";
        assert_eq!(check(&Tree::of(&[("crates/quorate/Cargo.toml", manifest)])).len(), 1);
    }

    #[test]
    fn a_new_crate_has_to_be_placed_and_to_take_the_lints() {
        let tree = Tree::of(&[("crates/common/Cargo.toml", "[package]\nname = \"quorate-common\"\n")]);
        assert_eq!(check(&tree).len(), 1);
        assert_eq!(lints(&tree).len(), 1);
    }
}
