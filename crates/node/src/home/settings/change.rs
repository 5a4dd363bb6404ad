//! How each setting changes after the first start (ADR 23).

use quorate_service::registry::Setting;

use super::keys::{KEYS, nearest};

/// How a setting changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// By an ordered operation: it is a part of the state.
    Ordered(Setting),
    /// All nodes are stopped, and their files changed: why.
    Stopped(&'static str),
    /// Not at all: why.
    Fixed(&'static str),
    /// In the file of each node, which then starts again.
    Node,
}

/// The settings that all nodes must have alike and that no ordered operation changes.
const OTHERS: &[(&str, Change)] = &[
    ("service", Change::Fixed("the state belongs to one service")),
    (
        "checkpoint_interval",
        Change::Stopped("the log of messages and the proofs of checkpoints depend on it"),
    ),
    (
        "window",
        Change::Stopped(
            "the log of messages depends on it, and how long a rejoining replica waits before it votes",
        ),
    ),
    ("read_only", Change::Stopped("clients and replicas must agree on what is served without ordering")),
    (
        "request_auth",
        Change::Stopped(
            "replicas check a request before it is ordered, so they could not all change at the same position in the order",
        ),
    ),
    ("clients_max", Change::Fixed("it sets the layout of the pages")),
    ("fs_exports", Change::Stopped("gateways read it from cluster.toml, too")),
    ("fs_atime", Change::Stopped("it decides which calls gateways send as reads")),
    ("fs_read_only", Change::Stopped("clients and replicas must agree on what is served without ordering")),
    ("fs_inodes_max", Change::Fixed("it sets the layout of the pages")),
    ("fs_capacity", Change::Fixed("it sets the layout of the pages")),
    ("fs_quota_bytes", Change::Fixed("a change is not implemented yet")),
    ("fs_quota_inodes", Change::Fixed("a change is not implemented yet")),
];

/// Returns how the setting with this key changes. None: there is no such setting.
pub fn change_of(name: &str) -> Option<Change> {
    let key = KEYS.iter().find(|key| key.name == name)?;
    let ordered = Setting::ALL.iter().find(|setting| setting.name() == key.name);
    let other =
        || OTHERS.iter().find(|(other, _)| *other == key.name).map_or(Change::Node, |(_, change)| *change);
    Some(ordered.map_or_else(other, |setting| Change::Ordered(*setting)))
}

/// Returns the settings that all nodes must have alike, and how each changes.
pub fn changes() -> impl Iterator<Item = (&'static str, Change)> {
    KEYS.iter().filter(|key| key.shared).filter_map(|key| Some((key.name, change_of(key.name)?)))
}

/// Returns which values a setting can have.
pub fn takes(name: &str) -> &'static str {
    KEYS.iter().find(|key| key.name == name).map_or("", |key| key.takes)
}

/// Returns the setting whose name is most similar.
pub fn nearest_setting(typed: &str) -> Option<&'static str> {
    nearest(typed).map(|key| key.name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// Every setting that all nodes must have alike has its row, and no other.
    #[test]
    fn every_shared_setting_says_how_it_changes() {
        for key in KEYS {
            let change = change_of(key.name).unwrap();
            assert_eq!(change == Change::Node, !key.shared, "{}", key.name);
            let is_fixed = matches!(change, Change::Fixed(_)) && key.name != "service";
            let says = key.about.replace('\n', " ").contains("fixed at the first start");
            assert!(!is_fixed || says, "{}", key.name);
        }
        assert!(OTHERS.iter().all(|(name, _)| KEYS.iter().any(|key| key.name == *name && key.shared)));
        assert_eq!(change_of("nonsense"), None);
    }
}
