//! Settings of the protocol on a command line: `KEY=VALUE`, with the keys and formats of `node.toml`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

use quorate_pbft::config::{Config, ConfigError};
use quorate_wire::{Cluster, ClusterId};

use super::fields::Settings;
use super::keys::{KEYS, Key, nearest};
use super::value::Value;
use crate::error::{NodeError, NodeErrorKind};
use crate::services::ServiceName;

/// Keys of a node that are not settings of the protocol. Those of the file system are not either.
const OF_THE_NODE: &[&str] = &[
    "service",
    "key_interval",
    "log_bytes_max",
    "state_memory_max",
    "poll",
    "core",
    "workers",
    "parallel",
    "recording",
];

/// Returns `config` with the given settings. The result obeys every rule.
///
/// # Errors
///
/// A key does not exist, a value is invalid, or the settings break a rule or conflict with each other. The error has
/// the key, the value and the rule.
pub fn configure(config: &Config, given: &[String]) -> Result<Config, NodeError> {
    let mut settings = blank(config.cluster, config.cluster_id);
    settings.config = config.clone();
    let given = given.iter().map(|text| key_and_value(text, is_of_protocol));
    set_all(&mut settings, &given.collect::<Result<Vec<_>, _>>()?)?;
    Ok(settings.config)
}

/// Checks that a node of this cluster can have these settings together, with their values as in a file.
///
/// # Errors
///
/// A setting is given twice, a value is invalid, or a rule is broken.
pub(crate) fn check(cluster: Cluster, given: &[(&'static str, String)]) -> Result<(), NodeError> {
    let key = |name| KEYS.iter().find(|key| key.name == name);
    let given = given.iter().filter_map(|(name, value)| Some((key(*name)?, value.trim_matches('"'))));
    set_all(&mut blank(cluster, ClusterId([0; 32])), &given.collect::<Vec<_>>())
}

/// Reads a setting of `node.toml` or `cluster.toml` from a command line, `KEY=VALUE`. Returns its key, and its value as in
/// a file.
///
/// # Errors
///
/// The key does not exist, or the value is invalid.
pub fn chosen(text: &str) -> Result<(&'static str, String), NodeError> {
    let (key, value) = key_and_value(text, |_| true)?;
    let value = parse(value);
    let cluster = Cluster::tolerating(1);
    let cluster = cluster.map_err(|error| NodeError::new(NodeErrorKind::Rule, error.to_string()))?;
    (key.set)(&mut blank(cluster, ClusterId([0; 32])), value).ok_or_else(|| {
        let expected = format!("{text}: expected {} (default {})", bare(key.takes), bare(key.default));
        NodeError::new(NodeErrorKind::Value, expected)
    })?;
    Ok((
        key.name,
        match value {
            Value::Text(text) => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
            Value::Switch(on) => on.to_string(),
            Value::Number(number) => number.to_string(),
            Value::Other => String::new(),
        },
    ))
}

/// Returns the defaults of a node without addresses.
fn blank(cluster: Cluster, cluster_id: ClusterId) -> Settings {
    Settings::new(cluster, cluster_id, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Vec::new())
}

/// Splits `KEY=VALUE`. The key is one of those that `may` be given.
fn key_and_value(text: &str, may: fn(&Key) -> bool) -> Result<(&'static Key, &str), NodeError> {
    let Some((typed, value)) = text.split_once('=').map(|(key, value)| (key.trim(), value.trim())) else {
        return Err(NodeError::new(NodeErrorKind::Value, format!("`{text}`: expected KEY=VALUE")));
    };
    let Some(key) = KEYS.iter().find(|key| key.name == typed && may(key)) else {
        let near = nearest(typed).filter(|near| near.name != typed && may(near));
        let near = near.map_or(String::new(), |near| format!(". Nearest: {}", near.name));
        return Err(NodeError::new(NodeErrorKind::Setting, format!("no setting `{typed}`{near}")));
    };
    Ok((key, value))
}

/// Sets each key once, and checks all rules.
fn set_all(settings: &mut Settings, given: &[(&'static Key, &str)]) -> Result<(), NodeError> {
    let mut seen = BTreeSet::new();
    for (key, value) in given {
        let name = key.name;
        if !seen.insert(name) {
            return Err(NodeError::new(NodeErrorKind::Rule, format!("{name} = {value}: given twice"))
                .next("give each setting once, with its own option or as KEY=VALUE"));
        }
        (key.set)(settings, parse(value)).ok_or_else(|| {
            NodeError::new(NodeErrorKind::Value, format!("{name} = {value}: expected {}", bare(key.takes)))
        })?;
    }
    rules(settings).map_err(|(_, what)| NodeError::new(NodeErrorKind::Rule, what))
}

/// Returns the keys of the protocol's settings with the values that they accept, one per line.
pub fn protocol_keys() -> String {
    let mut text = String::new();
    let width = protocols().map(|key| key.name.len()).max().unwrap_or(0);
    for key in protocols() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:<width$}  {}", key.name, bare(key.takes));
    }
    text
}

/// Checks every rule. An error has the key and the rule that is broken.
pub(super) fn rules(settings: &Settings) -> Result<(), (String, String)> {
    settings.config.check().map_err(|error| broken_rule(&error))?;
    if settings.service != ServiceName::FS {
        return Ok(());
    }
    settings.fs.check().map_err(|error| {
        let key = error.key.split('.').next().unwrap_or(error.key);
        (format!("fs_{key}"), format!("fs_{error}"))
    })
}

/// Returns the key and the broken rule. The protocol uses nanoseconds, users give durations.
fn broken_rule(error: &ConfigError) -> (String, String) {
    let key = error.key.trim_end_matches("_ns").replace("status", "status_interval");
    let value = match error.value.parse() {
        Ok(ns) if error.key.ends_with("_ns") => duration(ns),
        _ => error.value.clone(),
    };
    let what = format!("{key} = {value}: {}", error.rule.replace("_ns", ""));
    (key, what)
}

fn is_of_protocol(key: &Key) -> bool {
    !OF_THE_NODE.contains(&key.name) && !key.name.starts_with("fs_")
}

fn protocols() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(|key| is_of_protocol(key))
}

/// Values that have quotes in a file have none on a command line.
fn bare(takes: &str) -> String {
    takes.replace('"', "")
}

fn parse(text: &str) -> Value<'_> {
    match text {
        "true" => Value::Switch(true),
        "false" => Value::Switch(false),
        _ => text.parse().map_or(Value::Text(text), Value::Number),
    }
}

fn duration(ns: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    match units.into_iter().find(|(unit, _)| ns >= *unit && ns.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", ns / unit),
        None => format!("{ns}ns"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use quorate_pbft::config::{Durability, MS};

    use super::*;

    fn given(settings: &[&str]) -> Result<Config, NodeError> {
        let base = Config::new(Cluster::tolerating(1).unwrap(), ClusterId([7; 32]));
        configure(&base, &settings.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn settings_of_every_form_are_taken() {
        let config = given(&[
            "checkpoint_interval=16",
            "window = 32",
            "batch_bytes_max=8KiB",
            "tentative=false",
            "durability=memory",
            "view_timeout_max=3s",
        ])
        .unwrap();
        assert_eq!((config.checkpoint_interval, config.window, config.batch_bytes_max), (16, 32, 8192));
        assert!(!config.tentative && config.durability == Durability::Memory);
        assert_eq!(config.view_timeout_max_ns, 3_000 * MS);
        for key in protocols() {
            let default = bare(key.default);
            assert!(given(&[&format!("{}={default}", key.name)]).is_ok(), "{} = {default}", key.name);
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_key_value_and_rule() {
        for (settings, kind, says) in [
            (&["windov=32"][..], NodeErrorKind::Setting, "no setting `windov`. Nearest: window"),
            (&["poll=1ms"], NodeErrorKind::Setting, "no setting `poll`"),
            (&["window"], NodeErrorKind::Value, "`window`: expected KEY=VALUE"),
            (
                &["window=wide"],
                NodeErrorKind::Value,
                "window = wide: expected batches, a multiple of checkpoint_interval, at most 4096",
            ),
            (
                &["batch_bytes_max=4096"],
                NodeErrorKind::Value,
                "batch_bytes_max = 4096: expected a size, 1KiB to 56KiB",
            ),
            (
                &["status_interval=1"],
                NodeErrorKind::Value,
                "status_interval = 1: expected a duration, 100ms to 1h",
            ),
            (
                &["batch_bytes_max=1MiB"],
                NodeErrorKind::Rule,
                "batch_bytes_max = 1048576: from 1 KiB to 56 KiB, which fits a datagram",
            ),
            (
                &["checkpoint_interval=100"],
                NodeErrorKind::Rule,
                "window = 2048: a multiple of checkpoint_interval",
            ),
            (
                &["pipeline=65"],
                NodeErrorKind::Rule,
                "pipeline = 65: at most 64, for which messages have room",
            ),
            (
                &["view_timeout_max=1s"],
                NodeErrorKind::Rule,
                "view_timeout_max = 1s: at least request_timeout_max",
            ),
            (&["window=512", "window=256"], NodeErrorKind::Rule, "window = 256: given twice"),
        ] {
            let trouble = given(settings).unwrap_err();
            assert_eq!((trouble.kind, trouble.what.as_str()), (kind, says));
        }
    }

    #[test]
    fn a_setting_is_given_as_in_a_file() {
        for (text, expected) in [
            ("window=4096", ("window", "4096")),
            ("poll = 20us", ("poll", "\"20us\"")),
            ("read_only=false", ("read_only", "false")),
            ("fs_exports=/(rw,no_root_squash) /pub(ro)", ("fs_exports", "\"/(rw,no_root_squash) /pub(ro)\"")),
        ] {
            assert_eq!(chosen(text).unwrap(), (expected.0, expected.1.to_owned()));
        }
        assert_eq!(chosen("windov=1").unwrap_err().what, "no setting `windov`. Nearest: window");
        assert!(chosen("window=wide").unwrap_err().what.starts_with("window=wide: expected batches"));
    }

    #[test]
    fn every_key_is_listed_with_what_it_takes() {
        let list = protocol_keys();
        assert!(
            list.lines().any(|line| line.starts_with("window ") && line.ends_with("at most 4096")),
            "{list}"
        );
        assert!(!list.contains("recording") && !list.contains("fs_"), "{list}");
    }
}
