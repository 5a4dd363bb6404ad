//! Compares the settings that all nodes of a cluster must have alike.

use quorate_node::examine::Examined;
use quorate_node::settings::Shared;
use quorate_service::registry::Setting;
use quorate_wire::Principal;

use super::finding::{Finding, Grade, counted};

/// A node's name with one of its settings.
struct Value<'a> {
    node: &'a str,
    is_replica: bool,
    /// The file that has its setting.
    file: &'static str,
    shared: Shared,
}

/// Compares nodes of one cluster, each setting with the value that most replicas have.
pub(super) fn compare(nodes: &[&(String, Examined)]) -> Vec<Finding> {
    let mut values: Vec<Value<'_>> = Vec::new();
    let mut keys: Vec<&'static str> = Vec::new();
    for (node, its) in nodes {
        let is_replica = matches!(its.own, Principal::Replica(_));
        for shared in its.settings.shared(its.own) {
            if !keys.contains(&shared.key) {
                keys.push(shared.key);
            }
            // An earlier version made no such section.
            let file = if its.members.settings.is_empty() { "node.toml" } else { "cluster.toml" };
            values.push(Value { node, is_replica, file, shared });
        }
    }
    let mut findings = Vec::new();
    for key in &keys {
        let of_key: Vec<_> = values.iter().filter(|value| value.shared.key == *key).collect();
        findings.extend(differences(&of_key));
    }
    if findings.is_empty() && nodes.len() > 1 {
        // `doctor` reads files, and not the state.
        let ordered: Vec<&str> = Setting::ALL.iter().map(|setting| setting.name()).collect();
        let what = format!(
            "{} equal at {} (a value from `quorate set` takes precedence: {})",
            counted(keys.len(), "shared setting"),
            counted(nodes.len(), "node"),
            ordered.join(", ")
        );
        findings.push(Finding::new(Grade::Ok, "settings", "cluster", what));
    }
    findings
}

/// Returns a finding for each node whose value of this setting is not that of most replicas.
fn differences(values: &[&Value<'_>]) -> Vec<Finding> {
    let alike = |one: &Value<'_>| -> Vec<&str> {
        let same = values.iter().filter(|other| other.shared.agrees_with(&one.shared));
        same.map(|other| other.node).collect()
    };
    // Of two values that are equally frequent, that of the first node counts.
    let replicas = |one: &Value<'_>| {
        let same = values.iter().filter(|other| other.is_replica && other.shared.agrees_with(&one.shared));
        same.count()
    };
    let Some(most) = values.iter().rev().max_by_key(|one| replicas(one)) else { return Vec::new() };
    let others = values.iter().filter(|one| !one.shared.agrees_with(&most.shared));
    let finding = |one: &&Value<'_>| {
        let (key, text) = (one.shared.key, &most.shared.text);
        let what = format!("{key} = {}, but {text} at {}", one.shared.text, alike(most).join(", "));
        // A replica with another value may disagree about the state; a client with one is refused or slow.
        let grade = if one.is_replica { Grade::Bad } else { Grade::Warn };
        let next = format!("set `{key} = {text}` in its {} and start it again", one.file);
        Finding::new(grade, "settings", one.node, what).next(next)
    };
    others.map(finding).collect()
}
