//! What a replica begins with: nothing, the data of its disk, or the knowledge that it has lost that (spec §14.3).

use alloc::vec::Vec;

use quorate_wire::Digest;
use quorate_wire::id::{ClientId, ReplicaId, SeqNum, Timestamp};
use quorate_wire::life::Lives;

/// The initial state of a replica.
#[derive(Clone, Debug)]
pub enum Resume {
    /// The first start of a new cluster: the initial state, nothing said yet.
    Fresh {
        /// The incarnation: a counter in the high 44 bits, chance in the low 20 (§14.3).
        incarnation: u64,
    },
    /// Its own log and an image of its state.
    Restart(Restart),
    /// It has lost its log, or must not trust it: it rejoins (§14.4).
    Amnesia {
        /// The incarnation.
        incarnation: u64,
    },
}

/// The data from the disk. The driver has checked its checksums and cut an incomplete tail.
#[derive(Clone, Debug)]
pub struct Restart {
    /// The incarnation, higher than every one before.
    pub incarnation: u64,
    /// The records of the log, oldest first.
    pub records: Vec<Vec<u8>>,
    /// The checkpoint whose image the executor has loaded, and its root.
    pub checkpoint: (SeqNum, Digest),
    /// The last executed timestamp of each client lane in that image.
    pub clients: Vec<(ClientId, Timestamp)>,
    /// The lives of the replicas that have had more than one, in that image (RC-11).
    pub lives: Vec<(ReplicaId, Lives)>,
    /// The last agreed time in that image, in nanoseconds (ND-2).
    pub time_ns: u64,
}
