//! `node.toml`: the settings of a node.
//!
//! An unknown key or an invalid value is refused, with its line, the expected value and the nearest existing key. No
//! setting is silently ignored.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use quorate_pbft::config::Config;
use quorate_wire::ClusterId;
use quorate_wire::{Cluster, Principal};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub use self::given::{configure, protocol_keys};
use self::keys::{KEYS, Key};
use self::value::Value;
use crate::idle::Waiting;
use crate::members::{client_name, client_number};
use crate::secret;
use crate::trouble::{Kind, Trouble};

mod exports;
mod given;
mod keys;
mod value;

/// The replicated services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceName {
    /// The file system.
    Fs,
    /// The key-value store.
    Kv,
    /// No state: arguments and results of any size.
    Null,
    /// The service of another program, which runs the node.
    Own,
}

impl ServiceName {
    /// Returns the service with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Fs, Self::Kv, Self::Null, Self::Own].into_iter().find(|service| service.name() == name)
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fs => "fs",
            Self::Kv => "kv",
            Self::Null => "null",
            Self::Own => "own",
        }
    }
}

/// The settings of a node.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address that the node listens on.
    pub listen: SocketAddr,
    /// The addresses of the replicas, in the order of their ids.
    pub replicas: Vec<SocketAddr>,
    /// The addresses of the clients, by their numbers.
    pub clients: BTreeMap<u64, SocketAddr>,
    /// The replicated service.
    pub service: ServiceName,
    /// The settings of the file system, for that service.
    pub fs: quorate_fs::Settings,
    /// The settings of the protocol.
    pub config: Config,
    /// How long session keys are used, in nanoseconds.
    pub key_interval_ns: u64,
    /// Maximum size of the log before the state is written to disk, in bytes.
    pub log_bytes_max: usize,
    /// Bytes of the state that are kept in memory, if it is also on disk.
    pub state_memory_max: usize,
    /// How long to poll before sleeping.
    pub waiting: Waiting,
    /// The core that the main thread is pinned to.
    pub core: Option<usize>,
    /// The size of the flight recorder, in bytes.
    pub recording_bytes: usize,
}

/// Returns the defaults of a file system. Its name follows from the cluster's, so that file handles of another
/// cluster are detected.
fn file_system(cluster_id: ClusterId) -> quorate_fs::Settings {
    let name = cluster_id.0.first_chunk().map_or(1, |name| u64::from_le_bytes(*name));
    quorate_fs::Settings { service_id: name, ..quorate_fs::Settings::default() }
}

impl Settings {
    /// Returns the defaults of a node that listens on `listen` and reaches the replicas at these
    /// addresses.
    pub fn new(
        cluster: Cluster,
        cluster_id: ClusterId,
        listen: SocketAddr,
        replicas: Vec<SocketAddr>,
    ) -> Self {
        Self {
            listen,
            replicas,
            clients: BTreeMap::new(),
            service: ServiceName::Kv,
            fs: file_system(cluster_id),
            config: Config::new(cluster, cluster_id),
            key_interval_ns: 900_000_000_000,
            log_bytes_max: 64 << 20,
            state_memory_max: 1 << 30,
            waiting: Waiting::default(),
            core: None,
            recording_bytes: 0,
        }
    }

    /// Returns the file system with the settings in `path`.
    ///
    /// # Errors
    ///
    /// They break a rule.
    pub fn file_system(&self, path: &Path) -> Result<quorate_fs::Fs, Trouble> {
        quorate_fs::Fs::new(self.fs.clone())
            .map_err(|error| Trouble::new(Kind::Rule, format!("fs_{error}")).in_file(path))
    }

    /// Returns the front of a digest of what this replica runs above agreement: replicas with other services, or the
    /// same with other settings, disagree about the state.
    pub fn service_digest(&self) -> u64 {
        let options = crate::drive::options(&self.config, 0);
        let pages = (options.page_bytes, options.pages_max, options.result_bytes_max);
        let text = format!("{} {pages:?} {:?}", self.service.name(), self.fs);
        let digest = blake3::derive_key("quorate 2026 service settings", text.as_bytes());
        digest.first_chunk().map_or(0, |front| u64::from_le_bytes(*front))
    }

    /// Reads the `node.toml` of `own`.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is invalid: the error has the line.
    pub fn read(
        path: &Path,
        own: Principal,
        cluster: Cluster,
        cluster_id: ClusterId,
    ) -> Result<Self, Trouble> {
        let text = secret::read_text(path)?;
        Self::parse(path, &text, own, cluster, cluster_id)
    }

    fn parse(
        path: &Path,
        text: &str,
        own: Principal,
        cluster: Cluster,
        cluster_id: ClusterId,
    ) -> Result<Self, Trouble> {
        let file = File { path, text };
        let table = DeTable::parse(text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            file.trouble(Kind::Unreadable, error.message().to_owned(), &span, "")
        })?;
        let replicas = file.replicas(table.get_ref(), cluster)?;
        let listen = file.listen(table.get_ref())?;
        let mut settings = Self::new(cluster, cluster_id, listen, replicas);
        for (name, value) in table.get_ref() {
            match name.get_ref().as_ref() {
                "listen" | "replicas" => {}
                "clients" if matches!(own, Principal::Replica(_)) => {
                    settings.clients = file.clients(value)?;
                }
                _ => file.set(&mut settings, name, value, own)?,
            }
        }
        if let Err(error) = settings.config.check() {
            let (key, what) = given::broken_rule(&error);
            let near = text.lines().position(|line| line.trim_start().starts_with(&key));
            let place = near.map_or(String::new(), |line| format!(":{}", line + 1));
            return Err(Trouble::new(Kind::Rule, what).at(format!("{}{place}", path.display())));
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
            "# {title}\n# This file lists all keys. A key in a comment has its default value.\n\n\
             # The address that this node listens on: UDP, and for replicas also TCP on the same port.\nlisten = \"{}\"\n",
            self.listen
        );
        for key in KEYS.iter().filter(|key| is_replica || !key.replicas_only) {
            let about = key.about.replace('\n', "\n# ");
            let _ = write!(text, "\n# {about} ({})\n", key.takes);
            let _ = match chosen.iter().find(|(name, _)| *name == key.name) {
                Some((name, value)) => writeln!(text, "{name} = {value}"),
                None => writeln!(text, "# {} = {}", key.name, key.default),
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

/// The file, for errors with a line.
struct File<'a> {
    path: &'a Path,
    text: &'a str,
}

type Entry<'a> = Spanned<DeValue<'a>>;

impl File<'_> {
    /// Returns an error that shows its place in the file.
    fn trouble(&self, kind: Kind, what: String, span: &std::ops::Range<usize>, note: &str) -> Trouble {
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
        Trouble::new(kind, what).at(place)
    }

    fn listen(&self, table: &DeTable<'_>) -> Result<SocketAddr, Trouble> {
        match table.get("listen") {
            Some(value) => self.address("listen", value),
            None => Err(self.missing("listen")),
        }
    }

    fn missing(&self, key: &str) -> Trouble {
        Trouble::new(Kind::Setting, format!("the key `{key}` is missing")).in_file(self.path)
    }

    fn address(&self, key: &str, value: &Entry<'_>) -> Result<SocketAddr, Trouble> {
        let text = value.get_ref().as_str();
        text.and_then(|text| text.parse().ok()).ok_or_else(|| {
            let what = format!("invalid value for `{key}`");
            self.trouble(Kind::Value, what, &value.span(), "expected \"IP:PORT\", such as \"127.0.0.1:7000\"")
        })
    }

    fn table<'a, 'b>(&self, key: &str, value: &'a Entry<'b>) -> Result<&'a DeTable<'b>, Trouble> {
        value.get_ref().as_table().ok_or_else(|| {
            self.trouble(Kind::Value, format!("`{key}` is not a table"), &value.span(), "expected a table")
        })
    }

    fn replicas(&self, table: &DeTable<'_>, cluster: Cluster) -> Result<Vec<SocketAddr>, Trouble> {
        let value = table.get("replicas").ok_or_else(|| self.missing("replicas"))?;
        let table = self.table("replicas", value)?;
        for (name, _) in table {
            let known = cluster.replicas().any(|id| id.to_string() == name.get_ref().as_ref());
            if !known {
                let what = format!("no replica `{}` in this cluster", name.get_ref());
                let note = format!("n = {}: r0 to r{}", cluster.n(), cluster.n() - 1);
                return Err(self.trouble(Kind::Setting, what, &name.span(), &note));
            }
        }
        let address = |id: quorate_wire::ReplicaId| {
            let key = id.to_string();
            let value = table.get(key.as_str()).ok_or_else(|| self.missing(&format!("replicas.{key}")))?;
            self.address(&key, value)
        };
        cluster.replicas().map(address).collect()
    }

    fn clients(&self, value: &Entry<'_>) -> Result<BTreeMap<u64, SocketAddr>, Trouble> {
        let mut clients = BTreeMap::new();
        for (name, value) in self.table("clients", value)? {
            let Some(number) = client_number(name.get_ref()) else {
                let what = format!("`{}` is not a client name", name.get_ref());
                return Err(self.trouble(
                    Kind::Setting,
                    what,
                    &name.span(),
                    "expected client-0, client-1, ...",
                ));
            };
            clients.insert(number, self.address(name.get_ref(), value)?);
        }
        Ok(clients)
    }

    /// Sets one key to its value.
    fn set(
        &self,
        settings: &mut Settings,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        value: &Entry<'_>,
        own: Principal,
    ) -> Result<(), Trouble> {
        let typed = name.get_ref().as_ref();
        let mut keys = KEYS.iter().filter(|key| matches!(own, Principal::Replica(_)) || !key.replicas_only);
        let Some(key) = keys.find(|key| key.name == typed) else {
            let what = format!("unknown key `{typed}`");
            let note = match nearest(typed) {
                Some(key) => {
                    format!("did you mean `{}`? ({}, default {})", key.name, key.takes, key.default)
                }
                None => "no key has a similar name".to_owned(),
            };
            return Err(self.trouble(Kind::Setting, what, &name.span(), &note));
        };
        (key.set)(settings, plain(value.get_ref())).ok_or_else(|| {
            let what = format!("invalid value for `{typed}`");
            let note = format!("expected {} (default {})", key.takes, key.default);
            self.trouble(Kind::Value, what, &value.span(), &note)
        })
    }
}

/// Converts a TOML value.
fn plain<'a>(value: &'a DeValue<'_>) -> Value<'a> {
    if let Some(text) = value.as_str() {
        return Value::Text(text);
    }
    if let Some(on) = value.as_bool() {
        return Value::Switch(on);
    }
    let number =
        value.as_integer().and_then(|integer| u64::from_str_radix(integer.as_str(), integer.radix()).ok());
    number.map_or(Value::Other, Value::Number)
}

/// Returns the most similar key, if one is similar.
fn nearest(typed: &str) -> Option<&'static Key> {
    let distance = |name: &str| {
        let common = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
        let (a, b): (String, String) = (typed.chars().rev().collect(), name.chars().rev().collect());
        let shared = common(typed, name) + common(&a, &b);
        typed.len().max(name.len()).saturating_sub(shared)
    };
    let best = KEYS.iter().min_by_key(|key| distance(key.name))?;
    (distance(best.name) <= typed.len() / 3).then_some(best)
}

#[cfg(test)]
mod tests;
