//! What a replica has and lacks, and the messages it is sent in return (spec §10).

use alloc::vec::Vec;

use crate::envelope::cluster::REPLICAS_MAX;
use crate::envelope::codec::{DecodeError, Decoded, Reader, Writer};
use crate::envelope::digest::Digest;
use crate::envelope::id::{ReplicaId, SeqNum, ViewNum};
use crate::envelope::parts::{plain_message, take_list};
use crate::protocol::message::{WANTS_MAX, WINDOW_MAX};

/// A proof asked for in a STATUS: who pre-prepared `digest` at `seq` in `view` or later (DP-4)?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// The sequence number.
    pub seq: SeqNum,
    /// The batch.
    pub digest: Digest,
    /// The oldest view that helps.
    pub view: ViewNum,
}

/// STATUS: `ctr 8 | v 8 | h 8 | executed 8 | start 16 | settings 8 | echoes | flags 1 | prepared | committed |
/// have 8 | wants` (spec §10).
#[derive(Clone, Debug)]
pub struct Status<'a> {
    /// Increases with every STATUS of the sender; older ones are replays.
    pub counter: u64,
    /// The sender's view.
    pub view: ViewNum,
    /// Its stable checkpoint.
    pub stable: SeqNum,
    /// The last batch that it executed and that committed.
    pub executed: SeqNum,
    /// Its last start (§14.3).
    pub start: Start,
    /// The front of the digest of its settings that all replicas must have alike.
    pub settings: u64,
    /// The latest start that it has seen of each replica, in order.
    pub echoes: Echoes<'a>,
    /// It is in normal operation; otherwise it waits for a NEW-VIEW.
    pub normal: bool,
    /// It holds a valid NEW-VIEW message for its view.
    pub has_new_view: bool,
    /// Bit `k`: it has prepared `h + 1 + k` in its view.
    pub prepared: Bitmap<'a>,
    /// Bit `k`: it has seen `h + 1 + k` commit and holds the batch, or has executed it.
    pub committed: Bitmap<'a>,
    /// In a view change: bit `i` says that it holds replica `i`'s VIEW-CHANGE for its view.
    pub have: u64,
    /// Proofs that it lacks. At most [`WANTS_MAX`].
    pub wants: Vec<Want>,
}

impl<'a> Status<'a> {
    /// Appends the body.
    pub fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.counter);
        out.u64(self.view.0);
        out.u64(self.stable.0);
        out.u64(self.executed.0);
        self.start.encode(out);
        out.u64(self.settings);
        out.count8(self.echoes.bytes.len() / Start::BYTES);
        out.bytes(self.echoes.bytes);
        out.u8(u8::from(self.normal) | (u8::from(self.has_new_view) << 1));
        for bitmap in [&self.prepared, &self.committed] {
            out.count16(bitmap.bytes.len());
            out.bytes(bitmap.bytes);
        }
        out.u64(self.have);
        out.count8(self.wants.len());
        for want in &self.wants {
            out.u64(want.seq.0);
            out.digest(&want.digest);
            out.u64(want.view.0);
        }
    }

    /// Reads a whole body.
    pub fn decode(body: &'a [u8]) -> Decoded<Self> {
        let mut r = Reader::new(body);
        let (counter, view, stable) = (r.u64()?, ViewNum(r.u64()?), SeqNum(r.u64()?));
        let (executed, start, settings) = (SeqNum(r.u64()?), Start::decode(&mut r)?, r.u64()?);
        let echoes = r.count8(u8::try_from(REPLICAS_MAX).unwrap_or(u8::MAX))?;
        let echoes = Echoes { bytes: r.bytes(echoes * Start::BYTES)? };
        let flags = r.u8()?;
        if flags > 3 {
            return Err(DecodeError::NotCanonical);
        }
        let mut bitmap = || -> Decoded<Bitmap<'a>> {
            let len = r.count16(WINDOW_MAX / 8)?;
            Ok(Bitmap { bytes: r.bytes(len)? })
        };
        let (prepared, committed) = (bitmap()?, bitmap()?);
        let have = r.u64()?;
        let wants = take_list(r.count8(WANTS_MAX)?, || {
            Ok(Want { seq: SeqNum(r.u64()?), digest: r.digest()?, view: ViewNum(r.u64()?) })
        })?;
        r.end()?;
        let (normal, has_new_view) = (flags & 1 != 0, flags & 2 != 0);
        Ok(Self {
            counter,
            view,
            stable,
            executed,
            start,
            settings,
            echoes,
            normal,
            has_new_view,
            prepared,
            committed,
            have,
            wants,
        })
    }
}

/// A start of a replica: `incarnation 8 | token 8` (§14.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// In the high 44 bits how often it has started, below them random bits.
    pub incarnation: u64,
    /// What only that replica can compute from the incarnation. It recognizes a start of its own by it.
    pub token: u64,
}

impl Start {
    /// Its length in bytes.
    pub const BYTES: usize = 16;

    /// Appends it.
    pub fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.incarnation);
        out.u64(self.token);
    }

    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        Ok(Self { incarnation: r.u64()?, token: r.u64()? })
    }
}

/// The latest starts that a replica has seen, one for each replica: `count 1 | start*`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echoes<'a> {
    bytes: &'a [u8],
}

impl<'a> Echoes<'a> {
    /// Returns a view of `bytes`, [`Start::BYTES`] for each replica.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns the latest start seen of `replica`, or zeros.
    pub fn of(&self, replica: ReplicaId) -> Start {
        let at = replica.index() * Start::BYTES;
        self.bytes.get(at..).and_then(|rest| Start::decode(&mut Reader::new(rest)).ok()).unwrap_or_default()
    }
}

/// A set of small numbers as bytes, lowest bit first: `len 2 | bytes`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bitmap<'a> {
    bytes: &'a [u8],
}

impl<'a> Bitmap<'a> {
    /// Returns a view of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Returns whether bit `k` is set.
    pub fn has(&self, k: usize) -> bool {
        self.bytes.get(k / 8).is_some_and(|byte| byte & (1 << (k % 8)) != 0)
    }
}

plain_message! {
    /// COMMITTED: `v 8 | n 8 | d 32`: the sender has seen the batch commit (ST-5).
    Committed {
        /// The sender's view.
        view: ViewNum = |w, v| w.u64(v.0), |r| r.u64().map(ViewNum);
        /// The sequence number.
        seq: SeqNum = |w, v| w.u64(v.0), |r| r.u64().map(SeqNum);
        /// The batch.
        digest: Digest = |w, v| w.digest(&v), |r| r.digest();
    }
}
