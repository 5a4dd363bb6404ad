//! The declared order of the files of each crate, from the ground up: a file uses those of its own row and
//! of the rows before it. A folder has the place of the file that owns it; the root file is above all.

use crate::tidy::Finding;

/// The rows of a crate, the lowest first. A row is a list of files and folders below `src/`.
pub(super) type Order = &'static [&'static str];

/// A crate of the tests.
pub(super) const PLANTED: &str = "planted";

const ORDERS: &[(&str, Order)] = &[
    (PLANTED, &["a", "b", "c"]),
    (
        "wire",
        &[
            // What every protocol needs, up to the authenticator.
            "envelope/id envelope/digest envelope/short",
            "envelope/cluster envelope/codec envelope/memo envelope/parts",
            "envelope/new_key envelope/seal",
            "envelope/frame",
            "envelope/keys",
            "envelope/exchange envelope/sign",
            "envelope",
            // Replicas and their clients.
            "protocol/bounds protocol/kinds protocol/life protocol/reply",
            "protocol/frame protocol/sign",
            "protocol/batch protocol/message",
            "protocol",
        ],
    ),
    (
        "pbft",
        &[
            "io mutants",
            "away order requests",
            // Parts of a replica: they do not know the whole.
            "checkpoint client execution status view",
            "recovery",
            "replica",
            "recording",
        ],
    ),
    (
        "service",
        &[
            "mutants planted page",
            "stop",
            // The committed pages and what an execution writes over them.
            "state",
            "service",
            "lives replies",
            "registry",
            "options",
            "transfer",
            "image",
            "executor queue",
            "parallel",
            "alone builtin",
        ],
    ),
    (
        "process",
        &[
            "counters deadlines endpoint event statement storage transfer_meter",
            "admission ahead collector core observer options reads",
            "process",
        ],
    ),
    (
        "quorum",
        &[
            "channel mutants thresholds version",
            "crypto",
            "access",
            "settings",
            "cert",
            "message",
            "saved step",
            "admission engine repair",
            "bftbc phalanx",
            "accusation minimal",
        ],
    ),
    (
        "quorum-sim",
        &[
            "geo history placement rng stats",
            "checker keys model network",
            "hand machines profile",
            "guest rogue",
            "administrator client_profile unlisted",
            "lab scenario",
            "cell world",
            "swarm",
            "hunt",
        ],
    ),
    (
        "fs",
        &[
            "error types",
            "rpc settings",
            "volume",
            // The operations know no protocol; the face of NFS version 3 is above them.
            "op",
            "nfs3",
        ],
    ),
    (
        "sim",
        &[
            "clock describe expected hash orders panics pool queue rng summary trace",
            "disk follow lanes network recording work",
            "core event",
            "app",
            "checker",
            "governed",
            "host",
            "adversary",
            "setup",
            "world",
            "report",
            "swarm",
            "scenario",
            "command script",
            "hunt",
        ],
    ),
    (
        "node",
        &[
            "patience services error",
            "home/hex home/identity net/crowd net/ports run/clock run/surroundings",
            "home/secret net/side_channel net/wake run/signals",
            "net storage",
            "home/members home/place home/settings home/timestamps",
            "home",
            "run",
            "files observe",
        ],
    ),
    ("gateways", &["network", "front page row", "nfs resp"]),
    (
        "quorum-node",
        &[
            "config crypto envelope evidence lie store suspicion watchers",
            "note",
            "drive init link",
            "core server",
            "client measure",
        ],
    ),
    ("mount", &["opens table words", "server", "work", "kernel"]),
    ("derive", &[]),
    ("quorate", &["key panics value", "state", "map", "table", "service", "client sim", "program"]),
    (
        "bench",
        &[
            "allocations cable figures link machine processes progress signatures",
            "effort",
            "group instructions load report setup",
            "figure",
            "experiment",
            "core_step nodes unreplicated",
            "draw",
            "attacks bqs busy checkpoint_cost durable echo files recovery",
            "arms page",
            "cbase crypto echoes micro_latency micro_throughput optimisations",
        ],
    ),
    (
        "cli",
        &[
            "code",
            "fail",
            "out",
            "explain",
            "bench doctor local log values",
            "clients liar sim status",
            "change fault node",
            "fs gateway kv quorum",
            "demo mount",
            "up",
        ],
    ),
];

/// Returns the order of a crate; a new crate has none yet.
pub(super) fn of(name: &str) -> Order {
    ORDERS.iter().find(|(known, _)| *known == name).map_or(&[], |(_, order)| order)
}

/// Returns the row of a file: its own, or that of the closest folder around it. The root file and tests have none.
pub(super) fn place(order: Order, file: &str) -> Option<usize> {
    let row_of = |module: &str| order.iter().position(|row| row.split(' ').any(|name| name == module));
    modules(file).find_map(row_of)
}

/// The module that a file is, and the folders around it, up to the one directly below `src/`.
fn modules(file: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(file.trim_end_matches(".rs")), |path| {
        path.rsplit_once('/').map(|(folder, _)| folder)
    })
}

/// Finds files without a place, and places without a file.
pub(super) fn unplaced(name: &str, order: Order, files: &[&str]) -> Vec<Finding> {
    let here = file!();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !matches!(**file, "lib.rs" | "main.rs") && !file.contains('/')) {
        if place(order, file).is_none() {
            found.push(Finding::new(
                &format!("crates/{name}/src/{file}"),
                0,
                format!("this file has no place in the order of {name} in {here}"),
            ));
        }
    }
    for named in order.iter().flat_map(|row| row.split(' ')) {
        if !files.iter().any(|file| modules(file).any(|module| module == named)) {
            found.push(Finding::new(here, 0, format!("{name} has no file {named}")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_place_of_its_folder() {
        let order = of(PLANTED);
        assert_eq!(
            [place(order, "a.rs"), place(order, "c/d/e.rs"), place(order, "lib.rs")],
            [Some(0), Some(2), None]
        );
        let split: Order = &["a/low", "b", "a"];
        assert_eq!(
            [place(split, "a.rs"), place(split, "a/low/x.rs"), place(split, "a/y.rs")],
            [Some(2), Some(0), Some(2)]
        );
    }

    #[test]
    fn a_file_without_a_place_and_a_place_without_a_file_are_found() {
        let found = unplaced(PLANTED, of(PLANTED), &["lib.rs", "a.rs", "b.rs", "new.rs"]);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].path, "crates/planted/src/new.rs");
        assert_eq!(found[1].says, "planted has no file c");
    }
}
