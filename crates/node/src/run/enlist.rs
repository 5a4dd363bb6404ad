//! Changes of a running cluster by ordered operations on the client registry: clients are added, with a directory of
//! their own, and removed; replicas move; settings change.
//!
//! The directory, including the key, exists before the operation is sent. So after any failure, repeating the command
//! completes it with the same key.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use quorate_service::registry::{Client, RegistryOp, RegistryResult, Rights, Setting};
use quorate_wire::ReplicaId;

use crate::error::{NodeError, NodeErrorKind};
use crate::home::init::{client_dir, draft_of, install, make_private_dir, write_file};
use crate::home::members::{Members, client_identity, client_name, principal};
use crate::home::secret;
use crate::home::settings::Settings;
use crate::run::caller::{CallError, Caller};
use crate::run::client_node::ClientNode;

/// The directory of a client that may not be in the client registry yet.
#[derive(Clone, Debug)]
pub struct Recruit {
    /// Its number.
    pub number: u64,
    /// Its directory.
    pub dir: PathBuf,
    /// Its public key.
    pub key: [u8; 32],
    /// The address it listens on.
    pub listen: SocketAddr,
    /// Whether the directory existed already.
    pub was_there: bool,
}

/// Creates the directory of client `number` of the cluster in `dir`, with a new key, unless it exists. The client
/// listens on `listen`, or on the machine of `administrator`, and gets the table of replicas of `administrator`.
///
/// # Errors
///
/// A file cannot be read or written, or the directory exists and is another client's. Nothing has changed then.
pub fn recruit(
    dir: &Path,
    number: u64,
    listen: Option<SocketAddr>,
    administrator: &ClientNode,
) -> Result<Recruit, NodeError> {
    let (path, own) = (client_dir(dir, number), client_identity(number));
    if path.exists() {
        let members = Members::read(&path.join("cluster.toml"))?;
        let settings = Settings::read(&path.join("node.toml"), own, members.cluster, members.cluster_id())?;
        let Some(key) = members.key_of(own).copied() else {
            let what = "the directory exists, and is not this client's";
            return Err(NodeError::new(NodeErrorKind::Occupied, what).in_file(&path).next("move it away"));
        };
        secret::read(&path.join("keys/client.key"), &key)?;
        if listen.is_some_and(|listen| listen != settings.listen) {
            let what = format!("{} listens on {}", client_name(number), settings.listen);
            let next = "change `listen` in that file first, then give the same address";
            return Err(NodeError::new(NodeErrorKind::Occupied, what)
                .in_file(&path.join("node.toml"))
                .next(next));
        }
        return Ok(Recruit { number, dir: path, key, listen: settings.listen, was_there: true });
    }
    let settings = administrator.settings();
    let in_turn = || {
        // Ports are assigned as in `init`: consecutively.
        let first = u64::from(settings.listen.port()).saturating_sub(administrator.number());
        let port = u16::try_from(first.saturating_add(number)).ok()?;
        Some(SocketAddr::new(settings.listen.ip(), port))
    };
    let listen = listen.or_else(in_turn).ok_or_else(|| {
        let what = format!("{} would have a port above {}", client_name(number), u16::MAX);
        NodeError::new(NodeErrorKind::Rule, what).at("--host").next("choose its address with --host IP:PORT")
    })?;
    let draft = draft_of(&path);
    let made =
        write(&draft, number, listen, administrator).and_then(|key| install(&draft, &path).map(|()| key));
    if made.is_err() {
        let _ = fs::remove_dir_all(&draft);
    }
    made.map(|key| Recruit { number, dir: path, key, listen, was_there: false })
}

fn write(
    draft: &Path,
    number: u64,
    listen: SocketAddr,
    administrator: &ClientNode,
) -> Result<[u8; 32], NodeError> {
    let (keys, own) = (draft.join("keys"), client_identity(number));
    fs::create_dir(draft).map_err(|error| NodeError::unwritable(draft, &error))?;
    make_private_dir(&keys)?;
    let key = secret::create(&keys.join("client.key"))?;
    let mut members = administrator.members().clone();
    members.added = BTreeMap::from([(number, key)]);
    let mut settings = administrator.settings().clone();
    settings.listen = listen;
    let title = format!("client {number} of a cluster of {} replicas", members.cluster.n());
    // In a cluster of an earlier version, the settings that all nodes have alike are in `node.toml`.
    let shared = settings.shared(own).into_iter().map(|shared| (shared.key, shared.text));
    let chosen: Vec<_> = shared.filter(|_| members.settings.is_empty()).collect();
    write_file(&draft.join("node.toml"), &settings.example(own, &title, &chosen))?;
    write_file(&draft.join("cluster.toml"), &members.text())?;
    Ok(key)
}

/// Adds a client to the registry, or changes its rights or address.
///
/// # Errors
///
/// Nothing was changed, or the outcome is unknown: the operation can be repeated.
pub fn add(caller: &Caller, recruit: &Recruit, rights: Rights) -> Result<RegistryResult, CallError> {
    let person = Client { rights, key: recruit.key, address: Some(recruit.listen) };
    order(caller, &RegistryOp::Add(principal(recruit.number), person))
}

/// Removes client `number` from the registry.
///
/// # Errors
///
/// As [`add`].
pub fn remove(caller: &Caller, number: u64) -> Result<RegistryResult, CallError> {
    order(caller, &RegistryOp::Remove(principal(number)))
}

/// Says in the state where a replica is: all replicas and clients send to it there, when they have learnt it (ADR 23).
///
/// # Errors
///
/// As [`add`].
pub fn move_replica(
    caller: &Caller,
    replica: ReplicaId,
    address: SocketAddr,
) -> Result<RegistryResult, CallError> {
    order(caller, &RegistryOp::Move(replica, Some(address)))
}

/// Gives a setting of the cluster a value in the state (ADR 23).
///
/// # Errors
///
/// As [`add`].
pub fn set(caller: &Caller, setting: Setting, value: u64) -> Result<RegistryResult, CallError> {
    order(caller, &RegistryOp::Set(setting, value))
}

fn order(caller: &Caller, order: &RegistryOp) -> Result<RegistryResult, CallError> {
    let mut bytes = Vec::new();
    order.encode(&mut bytes);
    let result = caller.call(&bytes, false)?;
    // Replicas of an older version pass it to the service, which does not understand it.
    Ok(RegistryResult::decode(&result).unwrap_or(RegistryResult::Malformed))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::home::init::{Host, NewCluster};
    use crate::testing::TempDir;

    /// A cluster of an earlier version has the settings that all nodes have alike in `node.toml`. A new client gets
    /// them.
    #[test]
    fn a_client_of_an_older_cluster_has_its_settings() {
        let dir = TempDir::new("enlist");
        let [.., c, d] = std::process::id().to_be_bytes();
        let host = Host { ip: IpAddr::from([127, 61, c, d]), port: None };
        let cluster = NewCluster { hosts: vec![host], ..NewCluster::local(1) };
        let root = dir.path().join("c");
        cluster.make(&root).unwrap();
        let edit = |name: &str, change: &dyn Fn(String) -> String| {
            let path = client_dir(&root, 0).join(name);
            fs::write(&path, change(fs::read_to_string(&path).unwrap())).unwrap();
        };
        edit("cluster.toml", &|text| text.split("[settings]").next().unwrap().to_owned());
        edit("node.toml", &|text| format!("service = \"null\"\nwindow = 1024\nread_only = false\n{text}"));
        let administrator = ClientNode::open(&client_dir(&root, 0)).unwrap();
        let recruit = recruit(&root, 7, None, &administrator).unwrap();
        let members = Members::read(&recruit.dir.join("cluster.toml")).unwrap();
        let (path, cluster, id) = (recruit.dir.join("node.toml"), members.cluster, members.cluster_id());
        let settings = Settings::read(&path, client_identity(7), cluster, id).unwrap();
        assert_eq!((settings.service.name(), settings.config.window), ("null", 1024));
        assert!(!settings.config.read_only);
    }

    /// A client whose number is too large for a port in turn needs an address. It gets none that another one has.
    #[test]
    fn a_port_in_turn_exists() {
        let dir = TempDir::new("enlist-port");
        let root = dir.path().join("c");
        NewCluster::local(1).make(&root).unwrap();
        let administrator = ClientNode::open(&client_dir(&root, 0)).unwrap();
        let last = u64::from(u16::MAX - administrator.settings().listen.port());
        assert_eq!(recruit(&root, last, None, &administrator).unwrap().listen.port(), u16::MAX);
        let trouble = recruit(&root, last + 1, None, &administrator).unwrap_err();
        assert_eq!((trouble.kind, trouble.place.as_deref()), (NodeErrorKind::Rule, Some("--host")));
        let listen = Some("127.0.0.1:9".parse().unwrap());
        assert_eq!(recruit(&root, last + 1, listen, &administrator).unwrap().listen.port(), 9);
    }
}
