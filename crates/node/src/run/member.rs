//! A node of another protocol than agreement: its keys, addresses, sockets and authenticator, from its directory. The
//! registers' servers and clients begin with it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::fcntl::Flock;
use quorate_pbft::config::Durability;
use quorate_wire::Principal;
use quorate_wire::auth::{Authenticator, Protocol};
use quorate_wire::sign::{PublicKey, Signer, Verifier};

use crate::error::{NodeError, NodeErrorKind};
use crate::home::members::{Members, client_identity};
use crate::home::place::lock;
use crate::home::secret;
use crate::home::settings::Settings;
use crate::net::open::open_socket_above;
use crate::net::socket::Socket;
use crate::run::clock::Clock;
use crate::run::replica::pin;
use quorate_process::Directory;

/// What a server writes to disk before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writes {
    /// What the answer promises: durability `sync`.
    First,
    /// The same, without waiting: `async`.
    Later,
    /// Nothing: `memory`.
    Never,
}

/// What an authenticator's session keys are made of.
#[derive(Debug)]
struct Keys {
    epoch: u32,
    entropy: [u8; 32],
    time: u64,
}

/// A node's identity, settings and sockets.
#[derive(Debug)]
pub struct Member {
    /// Who it is.
    pub own: Principal,
    /// Its directory.
    pub dir: PathBuf,
    /// The members of its cluster.
    pub members: Members,
    /// Its settings.
    pub settings: Settings,
    /// Its signing key.
    pub signer: Signer,
    /// The public keys of all members.
    pub verifier: Verifier,
    /// What its session keys are made of.
    keys: Keys,
    /// The addresses of the others.
    pub directory: Directory,
    /// Its sockets.
    pub socket: Socket,
    /// Fresh and secret.
    pub entropy: [u8; 32],
    /// Keeps other processes from this directory.
    lock: Flock<File>,
}

impl Member {
    /// Opens the node `own` in `dir`. Frames of more than `above` bytes travel over TCP.
    ///
    /// # Errors
    ///
    /// A file is missing, invalid, or accessible to other users; a port is taken; another process uses the directory.
    pub fn open(dir: &Path, own: Principal, epoch: u32, above: usize) -> Result<Self, NodeError> {
        let listed = dir.join("cluster.toml");
        let members = Members::read(&listed)?;
        let Some(public) = members.key_of(own) else {
            let what = format!("{own} is not a member of this cluster");
            return Err(NodeError::new(NodeErrorKind::Rule, what).in_file(&listed));
        };
        let cluster_id = members.cluster_id();
        let settings = Settings::read(&dir.join("node.toml"), own, members.cluster, cluster_id)?;
        let key = match own {
            Principal::Replica(_) => "keys/replica.key",
            Principal::Client(_) => "keys/client.key",
        };
        let signer = secret::read(&dir.join(key), public)?;
        let lock = lock(dir)?;
        let mut directory = Directory::new(&settings.replicas);
        for (number, address) in &settings.clients {
            directory.add_client(client_identity(*number), *address);
        }
        let socket = open_socket_above(settings.listen, &directory, &dir.join("node.toml"), above)?;
        let mut verifier = members.verifier();
        for (number, key) in members.clients.iter().chain(&members.added) {
            verifier.insert(client_identity(*number), &PublicKey::Ed25519(*key));
        }
        let time = secret::reserve_time(dir, Clock::new().now().wall_ns)?;
        let (dir, keys) = (dir.to_path_buf(), Keys { epoch, entropy: secret::entropy()?, time });
        let entropy = secret::entropy()?;
        Ok(Self { own, dir, members, settings, signer, verifier, keys, directory, socket, entropy, lock })
    }

    /// Returns what its settings say of the disk.
    pub fn writes(&self) -> Writes {
        match self.settings.config.durability {
            Durability::Sync => Writes::First,
            Durability::Async => Writes::Later,
            Durability::Memory => Writes::Never,
        }
    }

    /// Pins this thread to the core that the settings name.
    ///
    /// # Errors
    ///
    /// The core is not available to this process.
    pub fn pin(&self) -> Result<(), NodeError> {
        self.settings.core.map_or(Ok(()), pin)
    }

    /// Returns the number of this start, from 1: it rises with each, and is on disk when this returns.
    ///
    /// # Errors
    ///
    /// The file with it is damaged or cannot be written.
    pub fn count_start(&self) -> Result<u32, NodeError> {
        let (path, draft) = (self.dir.join("keys/starts"), self.dir.join("keys/starts.new"));
        let before = match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse::<u32>().ok(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(0),
            Err(error) => return Err(NodeError::unreadable(&path, &error)),
        };
        let next = before.and_then(|before| before.checked_add(1)).ok_or_else(|| {
            let what = "the number of this client's starts: not a number, or a damaged one";
            let next = "write a number into it that is above that of every earlier start";
            NodeError::new(NodeErrorKind::Unreadable, what).in_file(&path).next(next)
        })?;
        let write = || {
            let mut file = File::create(&draft)?;
            std::io::Write::write_all(&mut file, format!("{next}\n").as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            File::open(self.dir.join("keys"))?.sync_all()
        };
        write().map_err(|error| NodeError::unwritable(&path, &error))?;
        Ok(next)
    }

    /// Returns fresh and secret bytes.
    ///
    /// # Errors
    ///
    /// The machine has no source of randomness.
    pub fn fresh() -> Result<[u8; 32], NodeError> {
        secret::entropy()
    }

    /// Returns its authenticator for the protocol `P`, its sockets, addresses, and the lock of the directory, for who
    /// keeps it beyond this.
    pub fn into_parts<P: Protocol + Default>(self) -> (Authenticator<P>, Socket, Directory, Flock<File>) {
        let (id, Keys { epoch, entropy, time }) = (self.members.cluster_id(), self.keys);
        let (cluster, signer, verifier) = (self.members.cluster, self.signer, self.verifier);
        let auth = Authenticator::new(self.own, cluster, id, epoch, signer, verifier, entropy, time);
        (auth, self.socket, self.directory, self.lock)
    }
}
