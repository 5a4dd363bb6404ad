//! The replies of one executed batch, in one buffer.

use alloc::vec::Vec;

use crate::envelope::digest::Digest;
use crate::envelope::id::{ClientId, Timestamp};

/// The result of one request of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyOutcome {
    /// It ran now.
    Executed,
    /// Its timestamp is the client's last one: it had run before, and this is the cached reply
    /// (spec EX-2). Empty where the cache holds the digest alone.
    Repeated,
    /// Its timestamp is older than the client's last one: nothing was done (spec EX-2).
    Superseded,
    /// Its client has no entry and there is no room for another: nothing was done, nor will it be (spec §8.2).
    Refused,
    /// Its lane had an entry that made room for others, or may have had: what became of the request, nobody knows
    /// any more. The result is the timestamp that was reached, in 8 bytes.
    Overtaken,
}

/// The reply to one request of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The requesting client.
    pub client: ClientId,
    /// The client's number for the request.
    pub timestamp: Timestamp,
    /// Digest of client, timestamp, request and result.
    pub digest: Digest,
    /// The replica that is to send the result; none: all of them.
    pub replier: Option<u16>,
    /// The result of the request.
    pub outcome: ReplyOutcome,
    /// The result. None where only its digest is kept (`RESULT_CACHE`).
    pub result: Option<&'a [u8]>,
}

#[derive(Clone, Copy, Debug)]
struct ReplyEntry {
    client: ClientId,
    timestamp: Timestamp,
    digest: Digest,
    replier: Option<u16>,
    outcome: ReplyOutcome,
    result: Option<(usize, usize)>,
}

/// The replies of one batch, in execution order. The driver owns it and uses its memory again.
#[derive(Debug, Default)]
pub struct Replies {
    entries: Vec<ReplyEntry>,
    bytes: Vec<u8>,
}

impl Replies {
    /// Returns an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the list and keeps its memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
    }

    /// Returns the number of replies.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Appends a reply, copying its result.
    pub fn push(&mut self, reply: Reply<'_>) {
        let result = reply.result.map(|result| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(result);
            (start, result.len())
        });
        let Reply { client, timestamp, digest, replier, outcome, result: _ } = reply;
        self.entries.push(ReplyEntry { client, timestamp, digest, replier, outcome, result });
    }

    /// Returns the replies in execution order.
    pub fn iter(&self) -> impl Iterator<Item = Reply<'_>> {
        self.entries.iter().map(|e| Reply {
            client: e.client,
            timestamp: e.timestamp,
            digest: e.digest,
            replier: e.replier,
            outcome: e.outcome,
            result: e.result.and_then(|(start, len)| self.bytes.get(start..start + len)),
        })
    }
}
