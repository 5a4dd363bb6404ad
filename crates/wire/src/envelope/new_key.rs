//! The exchange of session keys (spec §2.4).

use crate::envelope::codec::{DecodeError, Decoded, Writer};
use crate::envelope::parts::whole;

/// NEW-KEY: `t 8 | kid 4 | share 32 | settings 8 | want 1`, signed (spec §2.4, KX-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewKey {
    /// Strictly increasing for each sender (KX-1).
    pub time: u64,
    /// The generation of the sender's keys.
    pub key_id: u32,
    /// An ephemeral X25519 public key.
    pub share: [u8; 32],
    /// The front of the digest of the sender's settings that all replicas must have alike. 0: a client, which has
    /// none.
    pub settings: u64,
    /// The sender lacks the receiver's share and asks for it.
    pub want: bool,
}

impl NewKey {
    /// Appends the body.
    pub fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.time);
        out.u32(self.key_id);
        out.bytes(&self.share);
        out.u64(self.settings);
        out.u8(u8::from(self.want));
    }

    /// Reads a whole body.
    pub fn decode(body: &[u8]) -> Decoded<Self> {
        whole(body, |r| {
            let (time, key_id, share, settings) = (r.u64()?, r.u32()?, r.array()?, r.u64()?);
            // 0 stands for "no key" in an entry.
            if key_id == 0 {
                return Err(DecodeError::NotCanonical);
            }
            Ok(Self { time, key_id, share, settings, want: r.bool()? })
        })
    }
}
