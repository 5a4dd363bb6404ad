//! The file system's experiments: the same client with BFS, the unreplicated service, and NFS-Ganesha.
//!
//! ```text
//! client --TCP--> gateway --UDP--> four replicas      bfs, bfs-strict, bfs-ro-lookup
//!        --TCP--> gateway with the service in it      bfs-nr
//!        --TCP--> ganesha.nfsd                        VFS on the disk, VFS on tmpfs, MEM
//!        --TCP--> gateway --UDP--> four replicas      BASE-FS, CBASE-FS (`replica`), some with a `store` each
//! ```
//!
//! The client is part of this process (`client`). It needs no root, is the same for all arms, and caches nothing. So each
//! experiment defines its calls.

pub mod andrew;
pub(crate) mod client;
mod ganesha;
pub mod iozone;
pub mod micro;
pub mod postmark;
pub(crate) mod replica;
pub(crate) mod servers;
pub(crate) mod store;

/// The note below every table.
pub(crate) const CONDITIONS: &str = "bfs: four replicas and a gateway, bfs-nr: a gateway with the service in it, all on \
    this machine; the papers' unreplicated service had two UDP relays at the client and a thin veneer at the server; \
    durability is the variant's: memory writes nothing, sync writes everything to disk before it is answered; NFS-Ganesha \
    syncs data that is written FILE_SYNC and leaves names to the file system's journal";

/// Pseudo-random numbers, the same in every run: Marsaglia's xorshift with 64 bits.
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        let number = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16;
        usize::try_from(number % u64::try_from(bound).unwrap_or(u64::MAX)).unwrap_or(0)
    }
}

/// Returns pseudo-random bytes.
pub(crate) fn noise(bytes: usize) -> Vec<u8> {
    let mut chance = Chance::new(7);
    (0..bytes).map(|_| u8::try_from(chance.below(256)).unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_is_the_same_again_and_within_its_bound() {
        let draw = || {
            let mut chance = Chance::new(3);
            (0..1000).map(|_| chance.below(10)).collect::<Vec<_>>()
        };
        assert_eq!(draw(), draw());
        assert!((0..10).all(|number| draw().contains(&number)) && draw().iter().all(|number| *number < 10));
        assert_ne!(noise(100)[..50], noise(100)[50..]);
    }
}
