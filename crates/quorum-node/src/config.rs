//! `register.toml`: the register that servers keep, the same at every node.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use quorate_node::NodeError;
use quorate_node::error::NodeErrorKind;
use quorate_node::members::{client_name, client_number, principal};
use quorate_quorum::access::{Rights, Rules, Who};
use quorate_quorum::version::Namespace;
use quorate_quorum::{ObjectId, Protocol, Settings, Thresholds};
use toml::de::{DeTable, DeValue};

/// The file.
pub const FILE: &str = "register.toml";
/// The longest file, in bytes.
const BYTES_MAX: u64 = 1 << 20;
/// The most objects of a server.
const OBJECTS_MAX: usize = 1 << 18;

/// A register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The protocol.
    pub protocol: Protocol,
    /// The epoch, from 1.
    pub epoch: u32,
    /// The rights on keys, by prefix. Empty: every client may read and write every key.
    pub rules: BTreeMap<String, Rights>,
}

impl Config {
    /// Returns a register of this protocol, open to all clients.
    pub fn new(protocol: Protocol) -> Self {
        Self { protocol, epoch: 1, rules: BTreeMap::new() }
    }

    /// Returns the prefix that a key belongs to: the longest one of the rules, or the empty one.
    pub fn prefix_of(&self, key: &[u8]) -> &str {
        let fitting = self.rules.keys().filter(|prefix| key.starts_with(prefix.as_bytes()));
        fitting.max_by_key(|prefix| prefix.len()).map_or("", String::as_str)
    }

    /// Returns the object that a key names.
    pub fn object(&self, key: &[u8]) -> ObjectId {
        ObjectId::new(self.prefix_of(key).as_bytes(), key)
    }

    /// Returns the settings of the protocol's processes. `administrators`: the numbers of the clients that sign access lists.
    pub fn settings(&self, thresholds: Thresholds, administrators: &BTreeSet<u64>) -> Settings {
        let mut settings = Settings::new(thresholds, self.protocol);
        settings.limits.objects = OBJECTS_MAX;
        let by =
            self.rules.iter().map(|(prefix, rights)| (Namespace::new(prefix.as_bytes()), rights.clone()));
        settings.rules = Rules { by: by.collect() };
        settings.administrators = administrators.iter().map(|number| principal(*number)).collect();
        settings
    }

    /// Returns the text of the file.
    pub fn text(&self) -> String {
        let mut text = format!(
            "# The protocol and the rights of the registers on these servers. The same at every node.\nformat = 1\nprotocol = \"{}\"\nepoch = {}\n\n\
             # Each rule names the readers and writers of the keys with a prefix. If several prefixes match a key, the\n\
             # longest one counts. Without any rule, every client may read and write every key. If there is a rule, no\n\
             # client may use a key that no rule matches. \"all\" stands for every client. An example:\n\
             # \"config/\" = {{ readers = \"all\", writers = [\"client-0\"] }}\n\
             # To take the right to write from a client, move its name from `writers` to a list `former_writers`. What the\n\
             # client wrote then stays valid.\n[rules]\n",
            self.protocol.name(),
            self.epoch
        );
        let list = |principals: &BTreeSet<u64>| {
            let names = principals.iter().map(|one| format!("\"{}\"", client_name(one.saturating_sub(1))));
            format!("[{}]", names.collect::<Vec<_>>().join(", "))
        };
        let who = |who: &Who| match who {
            Who::All => "\"all\"".to_owned(),
            Who::These(principals) => list(principals),
        };
        for (prefix, rights) in &self.rules {
            let former = if rights.former.is_empty() {
                String::new()
            } else {
                format!(", former_writers = {}", list(&rights.former))
            };
            // Writing to a string does not fail. A prefix is in the form of a basic string of TOML.
            let _ = writeln!(
                text,
                "{prefix:?} = {{ readers = {}, writers = {}{former} }}",
                who(&rights.readers),
                who(&rights.writers)
            );
        }
        text
    }

    /// Reads the file of a node.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is invalid.
    pub fn read(dir: &Path) -> Result<Self, NodeError> {
        let path = dir.join(FILE);
        let length = std::fs::metadata(&path).map(|found| found.len());
        let text = match length {
            Ok(length) if length <= BYTES_MAX => std::fs::read_to_string(&path),
            Ok(_) => Err(std::io::Error::other("it is too long")),
            Err(error) => Err(error),
        };
        let text = text.map_err(|error| {
            NodeError::new(NodeErrorKind::Unreadable, format!("cannot be read: {error}"))
                .in_file(&path)
                .next("create the directories of a register with: quorate quorum init")
        })?;
        Self::parse(&text).map_err(|what| NodeError::new(NodeErrorKind::Setting, what).in_file(&path))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let table = DeTable::parse(text).map_err(|error| format!("cannot be parsed: {}", error.message()))?;
        let table = table.get_ref();
        let known = ["format", "protocol", "epoch", "rules"];
        if let Some((name, _)) = table.iter().find(|(name, _)| !known.contains(&name.get_ref().as_ref())) {
            return Err(format!("unknown key `{}`: {}", name.get_ref(), known.join(", ")));
        }
        let number =
            |key: &str| -> Option<u32> { table.get(key)?.get_ref().as_integer()?.as_str().parse().ok() };
        if number("format") != Some(1) {
            return Err("`format` is not 1: another version of the program wrote this".to_owned());
        }
        let epoch = number("epoch").filter(|epoch| *epoch > 0).ok_or("`epoch` is not a number from 1")?;
        let name = table.get("protocol").and_then(|value| value.get_ref().as_str()).unwrap_or("");
        let protocol = Protocol::ALL.iter().find(|(_, other)| *other == name).map(|(protocol, _)| *protocol);
        let protocol = protocol.ok_or_else(|| {
            let names: Vec<&str> = Protocol::ALL.iter().map(|(_, name)| *name).collect();
            format!("`protocol` is not one of {}", names.join(", "))
        })?;
        let mut rules = BTreeMap::new();
        if let Some(section) = table.get("rules") {
            let section = section.get_ref().as_table().ok_or("`rules` is not a table")?;
            for (prefix, rights) in section {
                let prefix = prefix.get_ref().to_string();
                let bad = || {
                    format!(
                        "rule {prefix:?}: expected {{ readers = .., writers = .. }}, or in addition `former_writers`"
                    )
                };
                let rights = rights.get_ref().as_table().ok_or_else(bad)?;
                let former = rights.get("former_writers");
                if rights.len() != 2 + usize::from(former.is_some()) {
                    return Err(bad());
                }
                let part = |name| {
                    rights.get(name).and_then(|value| who(value.get_ref())).ok_or_else(|| {
                    format!("rule {prefix:?}: `{name}` is neither \"all\" nor a list of clients such as [\"client-0\"]")
                })
                };
                let former = match former.map(|value| who(value.get_ref())) {
                    None => BTreeSet::new(),
                    Some(Some(Who::These(former))) => former,
                    Some(_) => {
                        return Err(format!(
                            "rule {prefix:?}: `former_writers` is not a list of clients such as [\"client-0\"]"
                        ));
                    }
                };
                let rights = Rights { readers: part("readers")?, writers: part("writers")?, former };
                rules.insert(prefix, rights);
            }
        }
        let spaces: BTreeSet<Namespace> =
            rules.keys().map(|prefix| Namespace::new(prefix.as_bytes())).collect();
        if spaces.len() < rules.len() {
            return Err("two prefixes have the same name in objects: change one of them".to_owned());
        }
        Ok(Self { protocol, epoch, rules })
    }
}

fn who(value: &DeValue<'_>) -> Option<Who> {
    if value.as_str() == Some("all") {
        return Some(Who::All);
    }
    let client =
        |name: &toml::Spanned<DeValue<'_>>| name.get_ref().as_str().and_then(client_number).map(principal);
    value.as_array()?.iter().map(client).collect::<Option<_>>().map(Who::These)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_quorum::settings::Variant;

    #[test]
    fn what_is_written_is_read() {
        for (protocol, _) in Protocol::ALL {
            let mut config = Config::new(*protocol);
            assert_eq!(Config::parse(&config.text()), Ok(config.clone()));
            let some = Who::These([1, 4].into());
            let (former, none) = (BTreeSet::from([2]), BTreeSet::new());
            config
                .rules
                .insert("a \"b\"/".to_owned(), Rights { readers: Who::All, writers: some.clone(), former });
            let writers = Who::These(BTreeSet::new());
            config.rules.insert(String::new(), Rights { readers: some, writers, former: none });
            config.epoch = 7;
            assert_eq!(Config::parse(&config.text()), Ok(config));
        }
    }

    #[test]
    fn the_longest_prefix_counts() {
        let mut config = Config::new(Protocol::BftBc(Variant::Base));
        assert_eq!(config.object(b"a/x"), ObjectId::new(b"", b"a/x"));
        for prefix in ["a/", "a/b/"] {
            config.rules.insert(prefix.to_owned(), Rights::default());
        }
        assert_eq!(
            ["a/x", "a/b/x", "a/b", "b"].map(|key| config.prefix_of(key.as_bytes())),
            ["a/", "a/b/", "a/", ""]
        );
        let settings =
            config.settings(Thresholds::tolerating(1).unwrap_or_else(|_| unreachable!()), &BTreeSet::new());
        let client = quorate_wire::ClientId::new(1, 0);
        assert!(settings.rules.may_write(client, &config.object(b"a/x")));
        assert!(!settings.rules.may_write(client, &config.object(b"b")));
    }

    #[test]
    fn mistakes_are_told() {
        let good = Config::new(Protocol::MinimalF).text();
        let says = |old: &str, new: &str| Config::parse(&good.replace(old, new)).unwrap_err();
        assert!(says("format = 1", "format = 2").contains("another version"));
        assert!(says("minimal-f", "minimal").contains("bft-bc-base"));
        assert!(says("epoch = 1", "epoch = 0").contains("epoch"));
        assert!(says("[rules]", "speed = 1\n[rules]").contains("unknown key `speed`"));
        assert!(says("[rules]\n", "[rules]\n\"a\" = { readers = \"all\" }\n").contains("expected {"));
        assert!(
            says("[rules]\n", "[rules]\na = { readers = \"all\", writers = [\"bob\"] }\n")
                .contains("`writers`")
        );
        let former = "[rules]\na = { readers = \"all\", writers = \"all\", former_writers = \"all\" }\n";
        assert!(says("[rules]\n", former).contains("`former_writers`"));
    }
}
