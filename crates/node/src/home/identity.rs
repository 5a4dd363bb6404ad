//! Identities derived from a seed, for benchmarks and tests: the seed determines all keys. Real identities are files with
//! mode 0600.

use quorate_wire::auth::{Authenticator, Protocol};
use quorate_wire::sign::{Signer, Verifier};
use quorate_wire::{ClientId, Cluster, ClusterId, Door, Principal};

/// All keys of a cluster, from one seed.
#[derive(Clone, Debug)]
pub struct TestKeys {
    seed: [u8; 32],
    cluster: Cluster,
    clients: u64,
}

impl TestKeys {
    /// Returns the keys of a cluster and of client principals 1 to `clients`.
    pub fn new(seed: u64, cluster: Cluster, clients: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Self { seed: bytes, cluster, clients }
    }

    /// Returns the cluster's name.
    pub fn cluster_id(&self) -> ClusterId {
        ClusterId(self.derive(0xff, 0))
    }

    /// Returns the signing key of a replica or client.
    pub fn signer(&self, of: Principal) -> Signer {
        Signer::ed25519(self.derive(1, of.key_holder()))
    }

    /// Returns the authenticator of a replica or client, with everyone's public keys behind it. `wall_ns` makes
    /// its session keys new at each start.
    pub fn door(&self, of: Principal, wall_ns: u64) -> Door {
        self.authenticator(of, wall_ns)
    }

    /// The same for any protocol.
    pub fn authenticator<P: Protocol + Default>(&self, of: Principal, wall_ns: u64) -> Authenticator<P> {
        let replicas = self.cluster.replicas().map(Principal::Replica);
        let clients = (1..=self.clients).map(|principal| Principal::Client(ClientId::new(principal, 0)));
        let mut verifier = Verifier::default();
        for who in replicas.chain(clients) {
            verifier.insert(who, &self.signer(who).public());
        }
        let mut entropy = self.derive(2, of.key_holder());
        entropy[..8].copy_from_slice(&wall_ns.to_le_bytes());
        Authenticator::new(
            of,
            self.cluster,
            self.cluster_id(),
            0,
            self.signer(of),
            verifier,
            entropy,
            wall_ns,
        )
    }

    /// Returns bytes that depend on the seed, a purpose and a number. Not secret, so plain mixing does.
    fn derive(&self, purpose: u8, number: u64) -> [u8; 32] {
        let mut bytes = self.seed;
        bytes[8] = purpose;
        bytes[9] = 1; // never all zeros
        bytes[16..24].copy_from_slice(&number.to_le_bytes());
        bytes
    }
}
