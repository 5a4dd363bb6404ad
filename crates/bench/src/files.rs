//! The file system's experiments: the same client before BFS, the same service without replicas, and NFS-Ganesha.
//!
//! ```text
//! client --TCP--> relay --UDP--> four replicas        bfs, bfs-strict, bfs-ro-lookup
//!        --TCP--> relay with the service in it        bfs-nr
//!        --TCP--> ganesha.nfsd                        VFS on the disk, VFS on tmpfs, MEM
//! ```
//!
//! The client is in this process (`client`): it needs no root, is the same for all arms and keeps nothing of a file,
//! so that each experiment says which calls it makes.

pub mod andrew;
pub(crate) mod client;
mod ganesha;
pub mod iozone;
pub mod micro;
pub mod postmark;
pub(crate) mod servers;

/// What stands below every table.
pub(crate) const CONDITIONS: &str = "bfs: four replicas and a relay, bfs-nr: a relay with the service in it, all on this \
    machine; durability is the variant's: memory writes nothing, sync has everything on disk before it is answered; \
    NFS-Ganesha syncs data that is written FILE_SYNC and leaves names to the file system's journal";

/// Numbers that look random and are the same in every run. Marsaglia's xorshift, 64 bits.
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

/// Returns bytes that look random.
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
