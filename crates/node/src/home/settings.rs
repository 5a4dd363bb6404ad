//! `node.toml`: the settings of a node.
//!
//! An unknown key or an invalid value is refused, with its line, the expected value and the nearest existing key. No
//! setting is silently ignored. The settings that all nodes must have alike are in `cluster.toml`; another value in
//! `node.toml` is refused.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use quorate_wire::ClusterId;
use quorate_wire::{Cluster, Principal};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use self::fields::Settings;
pub(crate) use self::given::check;
pub use self::given::{chosen, configure, protocol_keys};
use self::keys::{KEYS, Key, nearest};
pub use self::shared::{Shared, shared_names};
use self::value::Value;
use crate::error::{NodeError, NodeErrorKind};
use crate::home::members::{client_name, client_number};
use crate::home::secret;
use crate::net::names;
pub use crate::services::ServiceName;

pub mod change;
mod exports;
mod fields;
mod given;
mod keys;
mod shared;
mod value;

impl Settings {
    /// Reads the `node.toml` of `own`, and the settings in the `cluster.toml` beside it.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is invalid: the error has the line.
    pub fn read(
        path: &Path,
        own: Principal,
        cluster: Cluster,
        cluster_id: ClusterId,
    ) -> Result<Self, NodeError> {
        let shared = path.with_file_name("cluster.toml");
        let (text, shared_text) = (secret::read_text(path)?, secret::read_text(&shared)?);
        let files = (File { path, text: &text }, File { path: &shared, text: &shared_text });
        Self::parse(files, own, cluster, cluster_id)
    }

    fn parse(
        (file, shared): (File<'_>, File<'_>),
        own: Principal,
        cluster: Cluster,
        cluster_id: ClusterId,
    ) -> Result<Self, NodeError> {
        let is_replica = matches!(own, Principal::Replica(_));
        let table = file.table_of_all()?;
        let replicas = file.replicas(table.get_ref(), cluster)?;
        let listen = file.listen(table.get_ref())?;
        let mut settings = Self::new(cluster, cluster_id, listen, replicas);
        if let Some(section) = shared.table_of_all()?.get_ref().get("settings") {
            for (name, value) in shared.table("settings", section)? {
                shared.set(&mut settings, name, value, |key| key.shared)?;
            }
        }
        for (name, value) in table.get_ref() {
            match name.get_ref().as_ref() {
                "listen" | "replicas" => {}
                "clients" if is_replica => {
                    settings.clients = file.clients(value)?;
                }
                _ => file.set(&mut settings, name, value, |key| is_replica || !key.replicas_only)?,
            }
        }
        if let Err((key, what)) = given::rules(&settings) {
            let place = file.line_of(&key).or_else(|| shared.line_of(&key));
            let place = place.unwrap_or_else(|| file.path.display().to_string());
            return Err(NodeError::new(NodeErrorKind::Rule, what).at(place));
        }
        Ok(settings)
    }

    /// Returns the text of a `node.toml`: the addresses, `chosen` keys with their values, and every other
    /// key with its default in a comment.
    pub fn example(&self, own: Principal, title: &str, chosen: &[(&str, String)]) -> String {
        let mut text = String::new();
        let is_replica = matches!(own, Principal::Replica(_));
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "# {title}\n# A key in a comment has its default value. Settings that must be the same on all nodes are in cluster.toml.\n\n\
             # The address that this node listens on: UDP, and for replicas also TCP on the same port.\nlisten = \"{}\"\n",
            self.listen
        );
        let value_of = |key: &Key| chosen.iter().find(|(name, _)| *name == key.name);
        for key in KEYS.iter().filter(|key| is_replica || !key.replicas_only) {
            let _ = match value_of(key) {
                Some((_, value)) => write!(text, "\n{}{} = {value}\n", key.comment(), key.name),
                // It is in `cluster.toml`.
                None if key.shared => Ok(()),
                None => write!(text, "\n{}# {} = {}\n", key.comment(), key.name, key.default),
            };
        }
        text.push_str("\n# The addresses where this node reaches the others. Each node has its own table.\n[replicas]\n");
        for (id, address) in self.replicas.iter().enumerate() {
            let _ = writeln!(text, "r{id} = \"{address}\"");
        }
        if is_replica {
            text.push_str("\n[clients]\n");
            for (number, address) in &self.clients {
                let _ = writeln!(text, "{} = \"{address}\"", client_name(*number));
            }
        }
        text
    }
}

/// Returns the section of `cluster.toml` with the settings that all nodes must have alike: `chosen` keys with their
/// values, and the others with their defaults.
pub(crate) fn shared_section(chosen: &[(&str, String)]) -> String {
    let mut text = "[settings]\n# These settings must be the same at every node. To change one that is not fixed, stop all nodes, change it in\n\
                    # cluster.toml of every node, and start them again.\n"
        .to_owned();
    for key in KEYS.iter().filter(|key| key.shared) {
        let given = chosen.iter().find(|(name, _)| *name == key.name);
        let value = given.map_or(key.default, |(_, value)| value);
        // Writing to a string does not fail.
        let _ = write!(text, "\n{}{} = {value}\n", key.comment(), key.name);
    }
    text
}

/// Returns whether all nodes must have this key of `node.toml` alike.
pub(crate) fn is_shared(name: &str) -> bool {
    KEYS.iter().any(|key| key.name == name && key.shared)
}

/// The file, for errors with a line.
#[derive(Clone, Copy)]
struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

type TomlValue<'a> = Spanned<DeValue<'a>>;

impl File<'_> {
    /// Returns an error that shows its place in the file.
    fn trouble(
        &self,
        kind: NodeErrorKind,
        what: String,
        span: &std::ops::Range<usize>,
        note: &str,
    ) -> NodeError {
        let start = span.start.min(self.text.len());
        let before = self.text.get(..start).unwrap_or("");
        let number = before.matches('\n').count() + 1;
        let line = self.text.lines().nth(number - 1).unwrap_or("");
        let column = before.len() - before.rfind('\n').map_or(0, |at| at + 1);
        let width = span.len().clamp(1, line.len().saturating_sub(column).max(1));
        let (gap, marks) = (" ".repeat(column), "^".repeat(width));
        let place = format!(
            "{}:{number}\n  {number:>3} | {line}\n      | {gap}{marks}{}{note}",
            self.path.display(),
            if note.is_empty() { "" } else { " " }
        );
        NodeError::new(kind, what).at(place)
    }

    fn table_of_all(&self) -> Result<Spanned<DeTable<'_>>, NodeError> {
        DeTable::parse(self.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            self.trouble(NodeErrorKind::Unreadable, error.message().to_owned(), &span, "")
        })
    }

    /// Returns where a key stands, if it does.
    fn line_of(&self, key: &str) -> Option<String> {
        let line = self.text.lines().position(|line| line.trim_start().starts_with(key))?;
        Some(format!("{}:{}", self.path.display(), line + 1))
    }

    fn listen(&self, table: &DeTable<'_>) -> Result<SocketAddr, NodeError> {
        match table.get("listen") {
            Some(value) => self.address("listen", value),
            None => Err(self.missing("listen")),
        }
    }

    fn missing(&self, key: &str) -> NodeError {
        NodeError::new(NodeErrorKind::Setting, format!("the key `{key}` is missing")).in_file(self.path)
    }

    fn address(&self, key: &str, value: &TomlValue<'_>) -> Result<SocketAddr, NodeError> {
        // A name stands for its address at the start.
        value.get_ref().as_str().and_then(names::resolve).ok_or_else(|| {
            let what = format!("invalid value for `{key}`");
            self.trouble(
                NodeErrorKind::Value,
                what,
                &value.span(),
                "expected \"IP:PORT\" or \"NAME:PORT\", such as \"127.0.0.1:7000\"",
            )
        })
    }

    fn table<'a, 'b>(&self, key: &str, value: &'a TomlValue<'b>) -> Result<&'a DeTable<'b>, NodeError> {
        value.get_ref().as_table().ok_or_else(|| {
            self.trouble(
                NodeErrorKind::Value,
                format!("`{key}` is not a table"),
                &value.span(),
                "expected a table",
            )
        })
    }

    fn replicas(&self, table: &DeTable<'_>, cluster: Cluster) -> Result<Vec<SocketAddr>, NodeError> {
        let value = table.get("replicas").ok_or_else(|| self.missing("replicas"))?;
        let table = self.table("replicas", value)?;
        for (name, _) in table {
            let known = cluster.replicas().any(|id| id.to_string() == name.get_ref().as_ref());
            if !known {
                let what = format!("no replica `{}` in this cluster", name.get_ref());
                let note = format!("n = {}: r0 to r{}", cluster.n(), cluster.n() - 1);
                return Err(self.trouble(NodeErrorKind::Setting, what, &name.span(), &note));
            }
        }
        let address = |id: quorate_wire::ReplicaId| {
            let key = id.to_string();
            let value = table.get(key.as_str()).ok_or_else(|| self.missing(&format!("replicas.{key}")))?;
            self.address(&key, value)
        };
        cluster.replicas().map(address).collect()
    }

    fn clients(&self, value: &TomlValue<'_>) -> Result<BTreeMap<u64, SocketAddr>, NodeError> {
        let mut clients = BTreeMap::new();
        for (name, value) in self.table("clients", value)? {
            let Some(number) = client_number(name.get_ref()) else {
                let what = format!("`{}` is not a client name", name.get_ref());
                return Err(self.trouble(
                    NodeErrorKind::Setting,
                    what,
                    &name.span(),
                    "expected client-0, client-1, ...",
                ));
            };
            clients.insert(number, self.address(name.get_ref(), value)?);
        }
        Ok(clients)
    }

    /// Sets one key to its value, if the file `may` have it.
    fn set(
        &self,
        settings: &mut Settings,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &TomlValue<'_>,
        may: impl Fn(&Key) -> bool,
    ) -> Result<(), NodeError> {
        let typed = name.get_ref().as_ref();
        let Some(key) = KEYS.iter().find(|key| key.name == typed && may(key)) else {
            let what = format!("unknown key `{typed}`");
            let note = match nearest(typed) {
                Some(key) if key.name == typed && key.shared => "a setting for cluster.toml".to_owned(),
                Some(key) if key.name == typed => {
                    let who = if key.replicas_only { "replica" } else { "node" };
                    format!("a setting of each {who}, for its node.toml")
                }
                Some(key) => {
                    format!("did you mean `{}`? ({}, default {})", key.name, key.takes, key.default)
                }
                None => "no key has a similar name".to_owned(),
            };
            return Err(self.trouble(NodeErrorKind::Setting, what, &name.span(), &note));
        };
        (key.set)(settings, Value::of(value.get_ref())).ok_or_else(|| {
            let what = format!("invalid value for `{typed}`");
            let note = format!("expected {} (default {})", key.takes, key.default);
            self.trouble(NodeErrorKind::Value, what, &value.span(), &note)
        })?;
        let Some(text) = self.text.get(value.span()).filter(|_| key.shared) else { return Ok(()) };
        match settings.written.insert(key.name, text.to_owned()) {
            Some(agreed) if settings.meaning(key, &agreed) != settings.meaning(key, text) => {
                let what = format!(
                    "{typed} = {text}: must be the same at every node, and cluster.toml says {agreed}"
                );
                let trouble = self.trouble(NodeErrorKind::Rule, what, &name.span(), "remove this line");
                Err(trouble.next("remove the line, or change the setting in cluster.toml of every node"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
