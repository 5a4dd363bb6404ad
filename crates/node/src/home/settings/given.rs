//! Settings of the protocol on a command line: `KEY=VALUE`, with the keys and formats of `node.toml`.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

use quorate_pbft::config::{Config, ConfigError};
use quorate_wire::{Cluster, ClusterId};

use super::fields::Settings;
use super::keys::{KEYS, Key, nearest};
use super::value::Value;
use crate::error::{NodeError, NodeErrorKind};

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
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut settings = Settings::new(config.cluster, config.cluster_id, nowhere, Vec::new());
    settings.config = config.clone();
    let mut seen: Vec<&str> = Vec::new();
    for text in given {
        let Some((typed, value)) = text.split_once('=').map(|(key, value)| (key.trim(), value.trim())) else {
            return Err(NodeError::new(NodeErrorKind::Value, format!("`{text}`: expected KEY=VALUE")));
        };
        let Some(key) = protocols().find(|key| key.name == typed) else { return Err(unknown(typed)) };
        if seen.contains(&typed) {
            return Err(NodeError::new(NodeErrorKind::Rule, format!("{typed} = {value}: given twice")));
        }
        seen.push(typed);
        (key.set)(&mut settings, parse(value)).ok_or_else(|| {
            NodeError::new(NodeErrorKind::Value, format!("{typed} = {value}: expected {}", bare(key.takes)))
        })?;
    }
    match settings.config.check() {
        Ok(()) => Ok(settings.config),
        Err(error) => Err(NodeError::new(NodeErrorKind::Rule, broken_rule(&error).1)),
    }
}

/// Checks that these settings, with their values as on a command line, obey every rule together.
///
/// # Errors
///
/// A value is invalid, or a rule is broken.
pub(crate) fn check<'a>(
    cluster: Cluster,
    given: impl Iterator<Item = (&'static str, &'a str)>,
) -> Result<(), NodeError> {
    let of_protocol = given.filter(|(key, _)| protocols().any(|known| known.name == *key));
    let given: Vec<String> = of_protocol.map(|(key, value)| format!("{key}={value}")).collect();
    configure(&Config::new(cluster, ClusterId([0; 32])), &given).map(drop)
}

/// Reads a setting of `node.toml` or `cluster.toml` from a command line, `KEY=VALUE`. Returns its key, and its value as in
/// a file.
///
/// # Errors
///
/// The key does not exist, or the value is invalid.
pub fn chosen(text: &str) -> Result<(&'static str, String), NodeError> {
    let Some((typed, value)) = text.split_once('=').map(|(key, value)| (key.trim(), value.trim())) else {
        return Err(NodeError::new(NodeErrorKind::Value, format!("`{text}`: expected KEY=VALUE")));
    };
    let Some(key) = KEYS.iter().find(|key| key.name == typed) else {
        let near = nearest(typed).map_or(String::new(), |near| format!(". Nearest: {}", near.name));
        return Err(NodeError::new(NodeErrorKind::Setting, format!("no setting `{typed}`{near}")));
    };
    let value = parse(value);
    let cluster = Cluster::tolerating(1);
    let cluster = cluster.map_err(|error| NodeError::new(NodeErrorKind::Rule, error.to_string()))?;
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut blank = Settings::new(cluster, ClusterId([0; 32]), nowhere, Vec::new());
    (key.set)(&mut blank, value).ok_or_else(|| {
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

/// Returns the key and the broken rule. The protocol uses nanoseconds, users give durations.
pub(super) fn broken_rule(error: &ConfigError) -> (String, String) {
    let key = error.key.trim_end_matches("_ns").replace("status", "status_interval");
    let value = match error.value.parse() {
        Ok(ns) if error.key.ends_with("_ns") => duration(ns),
        _ => error.value.clone(),
    };
    let what = format!("{key} = {value}: {}", error.rule.replace("_ns", ""));
    (key, what)
}

fn protocols() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(|key| !OF_THE_NODE.contains(&key.name) && !key.name.starts_with("fs_"))
}

fn unknown(typed: &str) -> NodeError {
    let near =
        nearest(typed).filter(|near| near.name != typed && protocols().any(|key| key.name == near.name));
    let says = match near {
        Some(key) => format!("no setting `{typed}`. Nearest: {}", key.name),
        None => format!("no setting `{typed}`"),
    };
    NodeError::new(NodeErrorKind::Setting, says)
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
