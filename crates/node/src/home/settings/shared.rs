//! The settings that all nodes must have alike, so that the files of several nodes can be compared.

use std::net::{Ipv4Addr, SocketAddr};

use quorate_wire::Principal;
use toml::de::DeTable;

use super::fields::Settings;
use super::keys::{KEYS, Key};
use super::value::Value;

/// A setting that all nodes that have it must have alike.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Its key in `node.toml`.
    pub key: &'static str,
    /// Its value as in the file, or else its default.
    pub text: String,
    meaning: String,
}

impl Shared {
    /// Returns whether the values are equal, however they are written: `"1024MiB"` is `"1GiB"`.
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.key == other.key && self.meaning == other.meaning
    }
}

/// Returns the keys of the settings that all replicas must have alike, in the order of the file.
pub fn shared_names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().filter(|key| key.shared).map(|key| key.name)
}

impl Settings {
    /// Returns the settings that `own` must have like all other nodes.
    pub fn shared(&self, own: Principal) -> Vec<Shared> {
        let has = |key: &&Key| key.shared && (matches!(own, Principal::Replica(_)) || !key.replicas_only);
        let value = |key: &Key| {
            let text = self.written.get(key.name).map_or(key.default, String::as_str);
            Shared { key: key.name, text: text.to_owned(), meaning: self.meaning(key, text) }
        };
        KEYS.iter().filter(has).map(value).collect()
    }

    /// Returns the front of a digest of each setting that all replicas must have alike, in the order of
    /// [`shared_names`]. So another replica's differences can be named.
    pub fn shared_digests(&self) -> Vec<u16> {
        let digest = |key: &Key| {
            let text = self.written.get(key.name).map_or(key.default, String::as_str);
            let digest =
                blake3::derive_key("quorate 2026 shared setting", self.meaning(key, text).as_bytes());
            digest.first_chunk().map_or(0, |front| u16::from_le_bytes(*front))
        };
        KEYS.iter().filter(|key| key.shared).map(digest).collect()
    }

    /// Returns what the settings are if only `key` is set, to this text of a file.
    pub(super) fn meaning(&self, key: &Key, text: &str) -> String {
        let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut blank = Self::new(self.config.cluster, self.config.cluster_id, nowhere, Vec::new());
        let line = format!("value = {text}");
        let set = DeTable::parse(&line).ok().and_then(|table| {
            let value = table.get_ref().get("value")?;
            (key.set)(&mut blank, Value::of(value.get_ref()))
        });
        // What was read from the file can be read again.
        set.map_or_else(|| text.to_owned(), |()| format!("{blank:?}"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn every_key_that_says_same_is_compared() {
        for key in KEYS {
            assert_eq!(key.about.replace('\n', " ").contains("Same on all"), key.shared, "{}", key.name);
        }
    }
}
