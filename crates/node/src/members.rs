//! `cluster.toml`: the members of a cluster with their public keys. The same file at every node.
//!
//! The cluster's name is the digest of its size and its replicas' keys. So the file cannot be damaged, or
//! belong to another cluster, without its being noticed; and two nodes that disagree about the replicas
//! have nothing to say to one another, because the name is in every digest and MAC.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use quorate_wire::sign::{PublicKey, Verifier};
use quorate_wire::{ClientId, Cluster, ClusterId, Principal, ReplicaId};
use toml::de::DeTable;

use crate::trouble::{Kind, Trouble};

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
    Principal::Client(ClientId::new(number + 1, 0))
}

/// The members of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// Its size.
    pub cluster: Cluster,
    /// The replicas' public keys, in the order of their ids.
    pub replicas: Vec<[u8; 32]>,
    /// The clients' public keys, by their numbers.
    pub clients: BTreeMap<u64, [u8; 32]>,
}

impl Members {
    /// Returns the cluster's name.
    pub fn cluster_id(&self) -> ClusterId {
        let mut hash = blake3::Hasher::new_derive_key("quorate 2026 cluster name");
        let (n, f) = (self.cluster.n(), self.cluster.f());
        hash.update(format!("n={n} f={f}").as_bytes());
        self.replicas.iter().for_each(|key| _ = hash.update(key));
        ClusterId(*hash.finalize().as_bytes())
    }

    /// Returns what verifies everyone's signatures.
    pub fn verifier(&self) -> Verifier {
        let mut verifier = Verifier::default();
        for (id, key) in self.replicas.iter().enumerate() {
            verifier.insert(ReplicaId::at(id).into(), &PublicKey::Ed25519(*key));
        }
        for (number, key) in &self.clients {
            verifier.insert(client_identity(*number), &PublicKey::Ed25519(*key));
        }
        verifier
    }

    /// Returns the public key of a member.
    pub fn key_of(&self, whom: Principal) -> Option<&[u8; 32]> {
        match whom {
            Principal::Replica(id) => self.replicas.get(id.index()),
            Principal::Client(id) => self.clients.get(&id.principal().checked_sub(1)?),
        }
    }

    /// Returns the text of the file.
    pub fn text(&self) -> String {
        let mut text = format!(
            "# The members of this cluster with their public keys. The same at every node.\n\
             format = {FORMAT}\ncluster = \"{}\"\nf = {}\n\n[replicas]\n",
            hex(&self.cluster_id().0),
            self.cluster.f()
        );
        // Writing to a string does not fail.
        for (id, key) in self.replicas.iter().enumerate() {
            let _ = writeln!(text, "r{id} = \"{}\"", hex(key));
        }
        text.push_str("\n[clients]\n");
        for (number, key) in &self.clients {
            let _ = writeln!(text, "{} = \"{}\"", client_name(*number), hex(key));
        }
        text
    }

    /// Reads a `cluster.toml`.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not what `init` wrote.
    pub fn read(path: &Path) -> Result<Self, Trouble> {
        let text = std::fs::read_to_string(path).map_err(|error| Trouble::unreadable(path, &error))?;
        Self::parse(&text).map_err(|trouble| {
            let next = "copy the file from another node: it is the same at all of them";
            trouble.in_file(path).next(next)
        })
    }

    fn parse(text: &str) -> Result<Self, Trouble> {
        let damaged = |what: String| Trouble::new(Kind::Unreadable, what);
        let table = DeTable::parse(text)
            .map_err(|error| damaged(format!("cannot be understood: {}", error.message())))?;
        let table = table.get_ref();
        let integer = |key: &str| Some(table.get(key)?.get_ref().as_integer()?.as_str().to_owned());
        let format = integer("format").ok_or_else(|| damaged("the key `format` is missing".to_owned()))?;
        if format != FORMAT {
            let what = format!("format {format}: this version reads format {FORMAT}");
            return Err(Trouble::new(Kind::OtherFormat, what));
        }
        let keys = |section: &str| -> Result<Vec<(String, [u8; 32])>, Trouble> {
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
        let mut clients = BTreeMap::new();
        for (name, key) in keys("clients")? {
            let number = client_number(&name);
            clients.insert(number.ok_or_else(|| damaged(format!("`{name}` is not a client's name")))?, key);
        }
        let members = Self { cluster, replicas, clients };
        let said = table.get("cluster").and_then(|value| value.get_ref().as_str());
        if said != Some(hex(&members.cluster_id().0).as_str()) {
            let what = "damaged: the cluster's name is not the digest of its replicas";
            return Err(damaged(what.to_owned()));
        }
        Ok(members)
    }
}

/// Returns bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads 32 bytes in hexadecimal.
pub(crate) fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members() -> Members {
        let replicas = (1..=4).map(|i| [i; 32]).collect();
        let clients = [(0, [9; 32]), (3, [8; 32])].into();
        Members { cluster: Cluster::tolerating(1).unwrap(), replicas, clients }
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(Members::parse(&members().text()).unwrap(), members());
        assert_eq!(client_number("client-12"), Some(12));
        assert_eq!(client_number("client-012"), None);
        assert_eq!(client_identity(0).as_client().to_string(), "c0");
    }

    /// No changed character of what the replicas agree on goes unnoticed.
    #[test]
    fn damage_is_noticed() {
        let text = members().text();
        let (agreed, _) = text.split_once("[clients]").unwrap();
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
        assert_eq!(Members::parse(&text).unwrap_err().kind, Kind::OtherFormat);
    }
}
