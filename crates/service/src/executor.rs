//! Executes batches in order, each request once, and cuts checkpoints of what comes out.

use alloc::vec::Vec;

use quorate_wire::digest::Domains;
use quorate_wire::{Batch, ClientId, Digest, Replies, SeqNum, Timestamp};

use crate::service::{PageFault, Service};

/// The settings of an executor. Those marked "replicated" are the same at all replicas: the digest
/// of the state depends on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a page, a power of two from 512 to 65536. Replicated.
    pub page_bytes: usize,
    /// The most pages of the state, those of the replies included. Replicated.
    pub pages_max: u32,
    /// The most client lanes with an entry (`MAX_CLIENTS`). Replicated.
    pub clients_max: u32,
    /// The longest result that is kept for its client; of longer ones only the digest is
    /// (`RESULT_CACHE`), in bytes. Replicated.
    pub result_bytes_max: usize,
    /// The most checkpoints held at a time: `L / K + 1`. At the bound the oldest goes.
    pub checkpoints_max: usize,
    /// The most unused page buffers kept for later.
    pub pool_pages_max: usize,
    /// Larger than any number this replica has put on a FETCH before, or they would be taken for
    /// replays (ST-3). The time of day at the start, in nanoseconds, serves.
    pub first_rid: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            page_bytes: 4096,
            pages_max: 1 << 24,
            clients_max: 65_536,
            result_bytes_max: 64 << 10,
            checkpoints_max: 4,
            pool_pages_max: 8192,
            first_rid: 1,
        }
    }
}

/// A setting that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionsError {
    /// The key.
    pub key: &'static str,
    /// The value it has.
    pub value: u64,
    /// The rule it breaks.
    pub rule: &'static str,
}

impl core::fmt::Display for OptionsError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} = {}: {}", self.key, self.value, self.rule)
    }
}

impl core::error::Error for OptionsError {}

impl Options {
    /// Checks every rule. The first broken one is returned with its key and value.
    pub fn check(&self) -> Result<(), OptionsError> {
        Ok(())
    }
}

/// The reply that the state holds for a client's last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cached<'a> {
    /// The request's number.
    pub timestamp: Timestamp,
    /// Digest over (client, timestamp, result).
    pub digest: Digest,
    /// The result, unless only its digest is kept.
    pub result: Option<&'a [u8]>,
}

/// Why the bytes of an image are not a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// They are not an image of this version, or are cut short.
    Malformed,
    /// They are of a cluster with another page size, number of pages or number of clients.
    OtherOptions,
    /// The state's digest is not the one that the image gives: the disk has changed it.
    WrongRoot {
        /// What the image says.
        said: Digest,
        /// What its pages give.
        found: Digest,
    },
}

/// Executes batches for one replica: the state, the replies inside it, its checkpoints and the walk of
/// a state transfer.
///
/// The caller's duties, each asserted: batches come in order and without gaps (EX-1); at most one is
/// tentative, and it is merged or undone before the next (TE-1); a checkpoint is cut exactly after
/// its batch is merged (EX-4, I18); nothing is executed while state is being fetched (EX-5).
#[derive(Debug)]
pub struct Executor<S: Service> {
    service: S,
}

impl<S: Service> Executor<S> {
    /// Returns an executor with the initial state, which is checkpoint 0. The caller has checked
    /// `options`.
    pub fn new(service: S, _domains: Domains, _options: Options) -> Self {
        Self { service }
    }

    /// Returns the service.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// Executes the next batch: `replies` becomes one reply for each of its requests, in order.
    ///
    /// A tentative batch goes into an overlay until [`Self::merge`] or [`Self::undo`] (TE-2).
    ///
    /// # Errors
    ///
    /// A page is not here: nothing has been done. Never with a store in memory.
    pub fn execute(
        &mut self,
        _seq: SeqNum,
        _batch: &Batch,
        _tentative: bool,
        _replies: &mut Replies,
    ) -> Result<(), PageFault> {
        todo!()
    }

    /// Makes the tentative batch `seq` part of the state: it has committed.
    pub fn merge(&mut self, _seq: SeqNum) {
        todo!()
    }

    /// Drops the tentative batch, if there is one above `after`: its writes, its replies and its
    /// clients' timestamps go together (TE-4).
    pub fn undo(&mut self, _after: SeqNum) {
        todo!()
    }

    /// Executes a read-only operation on the committed state, appends the result to `out` and
    /// returns its digest. None: the service wants it ordered (RO-1).
    pub fn read(
        &self,
        _client: ClientId,
        _timestamp: Timestamp,
        _operation: &[u8],
        _out: &mut Vec<u8>,
    ) -> Option<Digest> {
        todo!()
    }

    /// Returns the reply that the committed state holds for `client` (RP-2).
    pub fn cached(&mut self, _client: ClientId) -> Option<Cached<'_>> {
        todo!()
    }

    /// Returns the last batch that the committed state reflects.
    pub fn last_executed(&self) -> SeqNum {
        todo!()
    }

    /// Returns the tentative batch, if there is one.
    pub fn tentative(&self) -> Option<SeqNum> {
        todo!()
    }

    /// Replaces `clients` by the last executed timestamp of each client lane, in no order.
    pub fn clients(&self, _clients: &mut Vec<(ClientId, Timestamp)>) {
        todo!()
    }

    /// Cuts the checkpoint after `seq`, the last batch executed, and returns its root (CK-1).
    pub fn checkpoint(&mut self, _seq: SeqNum) -> Digest {
        todo!()
    }

    /// Forgets the checkpoints before `below`.
    pub fn discard(&mut self, _below: SeqNum) {
        todo!()
    }

    /// Returns the root of checkpoint `seq`, if it is held.
    pub fn root_at(&self, _seq: SeqNum) -> Option<Digest> {
        todo!()
    }

    /// Returns the checkpoints held, oldest first.
    pub fn checkpoints(&self) -> impl Iterator<Item = (SeqNum, Digest)> + '_ {
        core::iter::empty()
    }

    /// Computes the root of the newest checkpoint anew from all its pages, for comparison with the
    /// one kept up to date (I17).
    pub fn recompute(&self) -> Digest {
        todo!()
    }

    /// Appends checkpoint `seq` to `out` as bytes for a disk. Says whether it is held.
    pub fn image(&self, _seq: SeqNum, _out: &mut Vec<u8>) -> bool {
        todo!()
    }

    /// Replaces the state by that of an image, which becomes the only checkpoint, and returns its
    /// number and root. The image is checked in full, and nothing changes if it is wrong.
    ///
    /// # Errors
    ///
    /// The bytes are not an image, or not of this cluster, or were changed since.
    pub fn restore(&mut self, _image: &[u8]) -> Result<(SeqNum, Digest), ImageError> {
        todo!()
    }

    /// Flips one bit of a written page behind the back of the digests, as failing memory would: for
    /// simulators (B21). Says whether there was a page.
    pub fn damage(&mut self, _choice: u64) -> bool {
        todo!()
    }
}
