//! Digests: BLAKE3-256, with a domain for each kind of content (spec §2.2).
//!
//! `D(tag, x)` is BLAKE3 keyed with `derive_key("quorate/1/" tag, cluster id)`: the domain and the cluster are in the
//! key, so that a short `x` costs a single compression.

mod value;

pub use self::value::Digest;
use crate::envelope::short::HashKey;

/// Names a cluster: part of every digest and MAC, so that nothing crosses between clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterId(pub [u8; 32]);

/// The domains of §2.2 for one cluster, with their keys derived once.
#[derive(Clone, Debug)]
pub struct Domains {
    request: HashKey,
    batch: HashKey,
    reply: HashKey,
    view_change: HashKey,
    message: HashKey,
    signature: HashKey,
    leaf: HashKey,
    node: HashKey,
}

impl Domains {
    /// Returns the domains of `cluster`.
    pub fn new(cluster: ClusterId) -> Self {
        let key = |context: &str| HashKey::new(blake3::derive_key(context, &cluster.0));
        Self {
            request: key("quorate/1/req"),
            batch: key("quorate/1/batch"),
            reply: key("quorate/1/reply"),
            view_change: key("quorate/1/vc"),
            message: key("quorate/1/msg"),
            signature: key("quorate/1/sig"),
            leaf: key("quorate/1/leaf"),
            node: key("quorate/1/node"),
        }
    }

    /// Digests a request: client, timestamp and operation, and nothing else (spec §2.2).
    pub fn request(&self, client: u64, timestamp: u64, operation: &[u8]) -> Digest {
        digest_with_head(&self.request, client, timestamp, operation)
    }

    /// Digests a reply: 24 bytes of the digest of client, timestamp and result, then the first 8 of the digest of
    /// the request. So a reply to another request under the same timestamp is known for what it is (RP-5): a client
    /// may have used the timestamp before, without knowing it.
    ///
    /// Eight bytes are enough for that: nobody but the client makes requests in its name, and what comes of two
    /// that collide is that one client takes an old result of its own. The 24 are what others could lie about.
    #[inline]
    pub fn reply(&self, client: u64, timestamp: u64, request: &Digest, result: &[u8]) -> Digest {
        self.result(client, timestamp, result).answering(request)
    }

    /// Digests a result: client, timestamp and result.
    #[inline]
    pub fn result(&self, client: u64, timestamp: u64, result: &[u8]) -> Digest {
        digest_with_head(&self.reply, client, timestamp, result)
    }

    /// Digests a batch: the requests' digests in execution order, then the primary's choice.
    ///
    /// `digests` yields them in order. View and sequence number are left out, so that a batch keeps
    /// its digest when a later view proposes it again.
    pub fn batch<'a>(&self, digests: impl ExactSizeIterator<Item = &'a Digest>, choice: &[u8]) -> Digest {
        let count = u32::try_from(digests.len()).unwrap_or(u32::MAX).to_le_bytes();
        let mut digests = digests;
        if digests.len() == 1
            && let Some(only) = digests.next()
        {
            // A batch of one, as in an idle system, in one call.
            let mut head = [0; 36];
            head[..4].copy_from_slice(&count);
            head[4..].copy_from_slice(&only.0);
            return self.batch.hash_parts(&head, choice);
        }
        let mut hasher = self.batch.hasher();
        hasher.update(&count);
        digests.for_each(|digest| _ = hasher.update(&digest.0));
        hasher.update(choice);
        Digest(*hasher.finalize().as_bytes())
    }

    /// Digests the whole body of a VIEW-CHANGE.
    pub fn view_change(&self, body: &[u8]) -> Digest {
        self.view_change.hash(body)
    }

    /// Digests the fixed part of a message: CR-2's `H`.
    pub fn message(&self, fixed: &[u8]) -> Digest {
        self.message.hash(fixed)
    }

    /// Digests what a signature covers, given in two parts.
    pub(crate) fn signature_parts<const HEAD: usize>(&self, head: &[u8; HEAD], body: &[u8]) -> Digest {
        self.signature.hash_parts(head, body)
    }

    /// Digests what a signature covers.
    pub fn signature(&self, covered: &[u8]) -> Digest {
        self.signature.hash(covered)
    }

    /// Digests a leaf of the state (spec §8.3).
    pub fn leaf(&self, covered: &[u8]) -> Digest {
        self.leaf.hash(covered)
    }

    /// Digests an inner node of the state's tree (spec §8.3).
    pub fn node(&self, covered: &[u8]) -> Digest {
        self.node.hash(covered)
    }

    /// Returns the digest of the null batch: no request, no choice (spec §2.2).
    pub fn null_batch(&self) -> Digest {
        self.batch([].iter(), &[])
    }
}

/// Digests two numbers and bytes.
fn digest_with_head(key: &HashKey, a: u64, b: u64, bytes: &[u8]) -> Digest {
    let mut head = [0; 16];
    head[..8].copy_from_slice(&a.to_le_bytes());
    head[8..].copy_from_slice(&b.to_le_bytes());
    key.hash_parts(&head, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_and_clusters_are_apart() {
        let (a, b) = (Domains::new(ClusterId([1; 32])), Domains::new(ClusterId([2; 32])));
        assert_ne!(a.request(1, 1, b"x"), a.result(1, 1, b"x"));
        assert_ne!(a.request(1, 1, b"x"), b.request(1, 1, b"x"));
        assert_ne!(a.leaf(b"x"), a.node(b"x"));
    }

    /// RP-5: the digest of a reply tells which request it answers, and every byte counts.
    #[test]
    fn a_replys_digest_is_of_one_request_and_one_result() {
        let domains = Domains::new(ClusterId([1; 32]));
        let (put, get) = (domains.request(7, 1, b"put"), domains.request(7, 1, b"get"));
        let reply = domains.reply(7, 1, &put, b"ok");
        assert!(reply.answers(&put) && !reply.answers(&get));
        assert!(reply.is_of_result(&domains.result(7, 1, b"ok")));
        assert!(!reply.is_of_result(&domains.result(7, 1, b"no")));
        assert_eq!(domains.reply(7, 1, &get, b"ok").answering_like(&reply), reply);
        for at in 0..32 {
            let mut other = reply;
            other.0[at] ^= 1;
            assert_ne!(other.answers(&put), other.is_of_result(&reply), "byte {at}");
        }
    }
}
