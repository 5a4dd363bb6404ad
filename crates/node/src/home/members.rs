//! `cluster.toml`: the members of a cluster with their public keys, at its creation. The same file on every node.
//!
//! Clients that were added or removed later are not in it, but in the client registry, a part of the replicated state
//! (EX-3). The directory of an added client lists it separately.
//!
//! The cluster's name is the digest of its size, its replicas' keys and 32 bytes drawn at its creation. So damage to
//! the file, or a file of another cluster, is detected. Two nodes with different replicas cannot communicate, because
//! the name is part of every digest and MAC. Statements of one cluster never count in another, even if both use the same
//! keys. A file of an earlier version has no drawn bytes: its cluster keeps its name and continues to run.
//!
//! The file also has the settings that all nodes must have alike. Those are not in the name, because some can change.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use quorate_service::registry::{Client, Rights};
use quorate_wire::sign::{PublicKey, Verifier};
use quorate_wire::{ClientId, Cluster, ClusterId, Principal, ReplicaId};
use toml::de::DeTable;

use crate::error::{NodeError, NodeErrorKind};
use crate::home::hex::{hex, unhex};

/// The version of the file's format.
const FORMAT: &str = "1";

/// Returns the name of a client in files and commands.
pub fn client_name(number: u64) -> String {
    format!("client-{number}")
}

/// Returns the number of a client with this name.
pub fn client_number(name: &str) -> Option<u64> {
    let number: u64 = name.strip_prefix("client-")?.parse().ok()?;
    (client_name(number) == name && number < (1 << 47)).then_some(number)
}

/// Returns the identity of a client, by its number.
pub fn client_identity(number: u64) -> Principal {
    Principal::Client(ClientId::new(principal(number), 0))
}

/// Returns the principal of a client, by its number.
pub fn principal(number: u64) -> u64 {
    number + 1
}

/// The members of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// Its size.
    pub cluster: Cluster,
    /// What was drawn when it was made. None: it was made by a version that drew nothing.
    pub drawn: Option<[u8; 32]>,
    /// The replicas' public keys, in the order of their ids.
    pub replicas: Vec<[u8; 32]>,
    /// The public keys of the clients at the creation of the cluster, by their numbers.
    pub clients: BTreeMap<u64, [u8; 32]>,
    /// The clients among them that may add and remove clients.
    pub administrators: BTreeSet<u64>,
    /// The client that owns this copy of the file, if it was added later, with its public key.
    pub added: BTreeMap<u64, [u8; 32]>,
    /// The section of the settings that all nodes have alike, as it stands in the file. Empty: an earlier version made
    /// the file, and these settings are in `node.toml`.
    pub settings: String,
}

/// The head of the section of the settings.
const SETTINGS: &str = "[settings]";

/// The default administrators.
const ADMINISTRATORS: [u64; 4] = [0, 1, 2, 3];

impl Members {
    /// Returns the cluster's name.
    pub fn cluster_id(&self) -> ClusterId {
        let mut hash = blake3::Hasher::new_derive_key("quorate 2026 cluster name");
        let (n, f) = (self.cluster.n(), self.cluster.f());
        hash.update(format!("n={n} f={f}").as_bytes());
        self.replicas.iter().for_each(|key| _ = hash.update(key));
        if let Some(drawn) = &self.drawn {
            hash.update(b"drawn").update(drawn);
        }
        ClusterId(*hash.finalize().as_bytes())
    }

    /// Returns the clients at the creation of the cluster, by their principals, with their rights.
    pub fn founders(&self) -> BTreeMap<u64, Client> {
        let founder = |(number, key): (&u64, &[u8; 32])| {
            let is_admin = self.administrators.contains(number);
            let rights = if is_admin { Rights::Admin } else { Rights::Write };
            (principal(*number), Client { rights, key: *key, address: None })
        };
        self.clients.iter().map(founder).collect()
    }

    /// Returns a digest of the founders, so that changes to a copy are detected: replicas with different founders
    /// would disagree.
    fn founders_digest(&self) -> String {
        let mut hash = blake3::Hasher::new_derive_key("quorate 2026 founders");
        for (number, key) in &self.clients {
            hash.update(&number.to_le_bytes());
            hash.update(&[u8::from(self.administrators.contains(number))]);
            hash.update(key);
        }
        hex(hash.finalize().as_bytes())
    }

    /// Returns a verifier of the replicas' signatures. The state determines which clients are valid.
    pub fn verifier(&self) -> Verifier {
        let mut verifier = Verifier::default();
        for (id, key) in self.replicas.iter().enumerate() {
            verifier.insert(ReplicaId::at(id).into(), &PublicKey::Ed25519(*key));
        }
        verifier
    }

    /// Returns the public key of a member.
    pub fn key_of(&self, whom: Principal) -> Option<&[u8; 32]> {
        match whom {
            Principal::Replica(id) => self.replicas.get(id.index()),
            Principal::Client(id) => {
                let number = id.principal().checked_sub(1)?;
                self.clients.get(&number).or_else(|| self.added.get(&number))
            }
        }
    }

    /// Returns the text of the file.
    pub fn text(&self) -> String {
        let administrators = self.administrators.iter().map(|number| format!("\"{}\"", client_name(*number)));
        let administrators: Vec<String> = administrators.collect();
        let drawn = self.drawn.map_or(String::new(), |drawn| format!("drawn = \"{}\"\n", hex(&drawn)));
        let mut text = format!(
            "# The members of this cluster with their public keys. The same at every node.\n\
             format = {FORMAT}\n{drawn}cluster = \"{}\"\nf = {}\n\n\
             # The clients that may add and remove clients. Do not edit: replicas with different lists would disagree.\n\
             administrators = [{}]\nfounders = \"{}\"\n\n[replicas]\n",
            hex(&self.cluster_id().0),
            self.cluster.f(),
            administrators.join(", "),
            self.founders_digest()
        );
        // Writing to a string does not fail.
        for (id, key) in self.replicas.iter().enumerate() {
            let _ = writeln!(text, "r{id} = \"{}\"", hex(key));
        }
        let clients = |text: &mut String, title: &str, clients: &BTreeMap<u64, [u8; 32]>| {
            let _ = writeln!(text, "\n{title}");
            for (number, key) in clients {
                let _ = writeln!(text, "{} = \"{}\"", client_name(*number), hex(key));
            }
        };
        clients(&mut text, "# The clients at the creation of the cluster.\n[clients]", &self.clients);
        if !self.added.is_empty() {
            clients(&mut text, "# The client that owns this copy; it was added later.\n[added]", &self.added);
        }
        if !self.settings.is_empty() {
            let _ = write!(text, "\n{}", self.settings);
        }
        text
    }

    /// Reads a `cluster.toml`.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not what `init` wrote.
    pub fn read(path: &Path) -> Result<Self, NodeError> {
        let text = crate::home::secret::read_text(path)?;
        Self::parse(&text).map_err(|trouble| {
            let next = "copy the file from another node: it is the same on all nodes";
            trouble.in_file(path).next(next)
        })
    }

    fn parse(source: &str) -> Result<Self, NodeError> {
        let damaged = |what: String| NodeError::new(NodeErrorKind::Unreadable, what);
        let table = DeTable::parse(source).map_err(|error| {
            let before = source.get(..error.span().map_or(0, |span| span.start)).unwrap_or(source);
            let line = before.matches('\n').count() + 1;
            damaged(format!("line {line} cannot be parsed: {}", error.message()))
        })?;
        let table = table.get_ref();
        let integer = |key: &str| Some(table.get(key)?.get_ref().as_integer()?.as_str().to_owned());
        let format = integer("format").ok_or_else(|| damaged("the key `format` is missing".to_owned()))?;
        if format != FORMAT {
            let what = format!("format {format}: this version reads format {FORMAT}");
            return Err(NodeError::new(NodeErrorKind::OtherFormat, what));
        }
        let keys = |section: &str| -> Result<Vec<(String, [u8; 32])>, NodeError> {
            let section = table.get(section).and_then(|value| value.get_ref().as_table());
            let section = section.ok_or_else(|| damaged("a section is missing".to_owned()))?;
            let key = |(name, value): (&toml::Spanned<std::borrow::Cow<'_, str>>, &toml::Spanned<_>)| {
                let value: &toml::de::DeValue<'_> = value.get_ref();
                let key = value.as_str().and_then(unhex);
                let name = name.get_ref().to_string();
                let key =
                    key.ok_or_else(|| damaged(format!("the key of {name} is not 64 hexadecimal digits")))?;
                Ok((name, key))
            };
            section.iter().map(key).collect()
        };
        let by_name: BTreeMap<String, [u8; 32]> = keys("replicas")?.into_iter().collect();
        let f = integer("f").and_then(|f| f.parse().ok());
        let f = f.ok_or_else(|| damaged("the key `f` is missing".to_owned()))?;
        let n = u16::try_from(by_name.len()).unwrap_or(u16::MAX);
        let cluster = Cluster::new(n, f).map_err(|error| damaged(error.to_string()))?;
        let replica = |id: ReplicaId| {
            let key = by_name.get(&id.to_string());
            key.copied().ok_or_else(|| damaged(format!("{id} is missing")))
        };
        let replicas = cluster.replicas().map(replica).collect::<Result<_, _>>()?;
        let number = |name: &str| {
            client_number(name).ok_or_else(|| damaged(format!("`{name}` is not a client name: use client-N")))
        };
        let numbered = |keys: Vec<(String, [u8; 32])>| -> Result<BTreeMap<u64, [u8; 32]>, NodeError> {
            keys.into_iter().map(|(name, key)| Ok((number(&name)?, key))).collect()
        };
        let clients = numbered(keys("clients")?)?;
        let added = if table.contains_key("added") { numbered(keys("added")?)? } else { BTreeMap::new() };
        let administrators = match table.get("administrators") {
            None => ADMINISTRATORS.into_iter().filter(|number| clients.contains_key(number)).collect(),
            Some(value) => {
                let names = value.get_ref().as_array();
                let names = names.ok_or_else(|| damaged("`administrators` is not a list".to_owned()))?;
                let name = |name: &toml::Spanned<toml::de::DeValue<'_>>| {
                    let known = name.get_ref().as_str().and_then(client_number);
                    known.filter(|number| clients.contains_key(number)).ok_or_else(|| {
                        damaged("`administrators` has a name that is not in [clients]".to_owned())
                    })
                };
                names.iter().map(name).collect::<Result<_, _>>()?
            }
        };
        let drawn = match table.get("drawn") {
            None => None,
            Some(value) => {
                let drawn = value.get_ref().as_str().and_then(unhex);
                Some(drawn.ok_or_else(|| damaged("`drawn` is not 64 hexadecimal digits".to_owned()))?)
            }
        };
        let settings = section_of_settings(source);
        if settings.is_empty() && table.contains_key("settings") {
            return Err(damaged("`[settings]` does not stand on a line of its own".to_owned()));
        }
        let members = Self { cluster, drawn, replicas, clients, administrators, added, settings };
        let said = table.get("founders").and_then(|value| value.get_ref().as_str());
        if table.contains_key("administrators") != said.is_some()
            || said.is_some_and(|said| said != members.founders_digest())
        {
            let what =
                "damaged: the clients or administrators were changed after the creation of the cluster";
            return Err(damaged(what.to_owned()));
        }
        let said = table.get("cluster").and_then(|value| value.get_ref().as_str());
        if said != Some(hex(&members.cluster_id().0).as_str()) {
            let what = "damaged: the cluster's name is not the digest of what it was made of";
            return Err(damaged(what.to_owned()));
        }
        Ok(members)
    }
}

/// Returns the section of the settings as it stands in the file, up to the next section.
fn section_of_settings(source: &str) -> String {
    let mut lines = source.lines().skip_while(|line| line.trim() != SETTINGS);
    let head = lines.next();
    let own = lines.take_while(|line| !line.trim_start().starts_with('['));
    head.into_iter().chain(own).flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members() -> Members {
        let replicas = (1..=4).map(|i| [i; 32]).collect();
        let clients = [(0, [9; 32]), (3, [8; 32])].into();
        let (administrators, added) = ([3].into(), [(7, [5; 32])].into());
        let (cluster, drawn) = (Cluster::tolerating(1).unwrap(), Some([6; 32]));
        let settings = "[settings]\n# L\nwindow = 2048\n".to_owned();
        Members { cluster, drawn, replicas, clients, administrators, added, settings }
    }

    /// Two clusters that were made alike differ; a file without drawn bytes keeps the name that it had.
    #[test]
    fn a_clusters_name_depends_on_what_was_drawn() {
        let one = members();
        let other = Members { drawn: Some([7; 32]), ..members() };
        let old = Members { drawn: None, ..members() };
        assert_ne!(one.cluster_id(), other.cluster_id());
        assert_ne!(one.cluster_id(), old.cluster_id());
        assert_eq!(Members::parse(&old.text()).unwrap(), old);
        let mut before = blake3::Hasher::new_derive_key("quorate 2026 cluster name");
        before.update(b"n=4 f=1");
        old.replicas.iter().for_each(|key| _ = before.update(key));
        assert_eq!(old.cluster_id(), ClusterId(*before.finalize().as_bytes()));
        // It cannot be left out or changed without its being noticed.
        let line = format!("drawn = \"{}\"\n", hex(&[6; 32]));
        assert!(Members::parse(&one.text().replace(&line, "")).is_err());
        assert!(Members::parse(&one.text().replace(&hex(&[6; 32]), &hex(&[7; 32]))).is_err());
    }

    /// Defaults for older files are the same on all nodes, and unknown names are detected.
    #[test]
    fn the_administrators_are_those_named_or_the_first() {
        let rights = |text: &str| -> Option<Vec<Rights>> {
            Some(Members::parse(text).ok()?.founders().values().map(|founder| founder.rights).collect())
        };
        let text = members().text();
        assert_eq!(rights(&text), Some(vec![Rights::Write, Rights::Admin]));
        let line = "administrators = [\"client-3\"]";
        let digest = text.lines().find(|line| line.starts_with("founders")).unwrap();
        assert_eq!(rights(&text.replace(line, "")), None);
        let old = text.replace(line, "").replace(digest, "");
        assert_eq!(rights(&old), Some(vec![Rights::Admin, Rights::Admin]));
        assert_eq!(rights(&text.replace(line, "administrators = [\"client-7\"]")), None);
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Members::parse(&members().text()).unwrap(), members());
        // The section may be moved, and may come from an editor that ends lines in another way.
        let text = members().text();
        let (before, section) = text.split_at(text.find(SETTINGS).unwrap());
        let moved = before.replace("[clients]", &format!("{section}  [clients]"));
        let moved = Members::parse(&moved).unwrap();
        assert_eq!(moved, members());
        assert_eq!(Members::parse(&moved.text()).unwrap(), members());
        assert_eq!(Members::parse(&text.replace('\n', "\r\n")).unwrap(), members());
        let broken = Members::parse(&text.replace("window = 2048", "window = ")).unwrap_err();
        let line = 1 + text.lines().position(|line| line.starts_with("window")).unwrap();
        assert!(broken.what.starts_with(&format!("line {line} cannot be parsed: ")), "{broken}");
        assert_eq!(client_number("client-12"), Some(12));
        assert_eq!(client_number("client-012"), None);
        assert_eq!(client_identity(0).as_client().to_string(), "c0");
    }

    /// Every change of a character in the agreed part of the file is detected.
    #[test]
    fn damage_is_noticed() {
        let text = members().text();
        let (agreed, _) = text.split_once("[added]").unwrap();
        for at in agreed.find("format").unwrap()..agreed.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let Ok(changed) = String::from_utf8(bytes) else { continue };
            if let Ok(read) = Members::parse(&changed) {
                assert_eq!(read, members(), "at {at}: {changed}");
            }
        }
    }

    #[test]
    fn another_format_is_told_as_such() {
        let text = members().text().replace("format = 1", "format = 7");
        assert_eq!(Members::parse(&text).unwrap_err().kind, NodeErrorKind::OtherFormat);
    }
}
