//! A recording of a replica: its initial state, and every input since then.
//!
//! The same inputs give the same actions, so a recording is enough to replay a run, from a simulator or from a node
//! that has stopped. It holds no keys: frames are stored as the authenticator admitted them, with how the requests in
//! them were authenticated.
//!
//! `magic 4 | version 1 | id 2 | config | resume | input*`, an input being `len 4 | mono 8 | wall 8 |
//! kind 1 | fields`.

use alloc::vec::Vec;

use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};
use quorate_wire::digest::Domains;
use quorate_wire::frame::{FRAME_BYTES_MAX, Frame};
use quorate_wire::id::{ClientId, ReplicaId, SeqNum, Timestamp};
use quorate_wire::message::Proof;
use quorate_wire::recall;
use quorate_wire::reply::{Replies, Reply, ReplyOutcome};
use quorate_wire::sign::Signer;

use crate::io::config::{Config, ConfigError};
use crate::io::resume::Resume;
use crate::io::step::{Actions, CachedReply, Input, Lsn, Now, ReadResult, Ticket, Timer};
use crate::replica::Replica;

mod start;

const MAGIC: u32 = 0x5152_4543;
const VERSION: u8 = 8;
/// The longest input: a frame and the proofs of its requests.
const INPUT_BYTES_MAX: usize = FRAME_BYTES_MAX + (8 << 10);

/// Writes a recording. Stops at a bound; [`Recorder::is_whole`] then says no.
#[derive(Debug)]
pub struct Recorder {
    bytes: Vec<u8>,
    max: usize,
    whole: bool,
    proofs: Vec<Proof>,
}

impl Recorder {
    /// Begins a recording of replica `id`, of at most `max` bytes.
    pub fn new(id: ReplicaId, config: &Config, resume: &Resume, max: usize) -> Self {
        let mut bytes = Vec::new();
        let mut w = Writer::new(&mut bytes);
        w.u32(MAGIC);
        w.u8(VERSION);
        w.u16(id.0);
        start::encode_config(config, &mut w);
        start::encode_resume(resume, &mut w);
        Self { bytes, max, whole: true, proofs: Vec::new() }
    }

    /// Appends an input. `frame` is the one that a message came in, and not looked at otherwise.
    pub fn note(&mut self, now: Now, input: &Input<'_>, frame: &[u8]) {
        if !self.whole {
            return;
        }
        let at = self.bytes.len();
        let mut w = Writer::new(&mut self.bytes);
        w.u32(0);
        w.u64(now.mono_ns);
        w.u64(now.wall_ns);
        encode_input(input, frame, &mut self.proofs, &mut w);
        let len = u32::try_from(self.bytes.len() - at - 4).unwrap_or(u32::MAX);
        if let Some(room) = self.bytes.get_mut(at..at + 4) {
            room.copy_from_slice(&len.to_le_bytes());
        }
        if self.bytes.len() > self.max {
            self.bytes.truncate(at);
            self.whole = false;
        }
    }

    /// Returns whether every input so far is in it.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Returns the recording so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

fn encode_input(input: &Input<'_>, frame: &[u8], proofs: &mut Vec<Proof>, w: &mut Writer<'_>) {
    match input {
        Input::Start => w.u8(0),
        Input::Message(verified) => {
            w.u8(1);
            w.blob(frame);
            proofs.clear();
            recall::proofs(verified.message(), proofs);
            w.count16(proofs.len());
            for proof in proofs {
                w.u8(*proof as u8);
            }
        }
        Input::Timer(timer) => {
            w.u8(2);
            w.count8(timer.index());
        }
        Input::SignatureChecked { request, valid } => {
            w.u8(3);
            w.digest(request);
            w.u8(u8::from(*valid));
        }
        Input::Executed { seq, replies, took_ns } => {
            w.u8(4);
            w.u64(seq.0);
            w.u64(*took_ns);
            w.count16(replies.len());
            for reply in replies.iter() {
                encode_reply(&reply, w);
            }
        }
        Input::Read { ticket, result } => {
            w.u8(5);
            w.u64(ticket.0);
            match result {
                ReadResult::Done { result, digest } => {
                    w.u8(1);
                    w.digest(digest);
                    w.blob(result);
                }
                ReadResult::NeedsOrder => w.u8(0),
            }
        }
        Input::Cached { client, reply } => {
            w.u8(6);
            w.u64(client.0);
            w.u8(u8::from(reply.is_some()));
            if let Some(reply) = reply {
                w.u64(reply.timestamp.0);
                w.digest(&reply.digest);
                encode_result(reply.result, w);
            }
        }
        Input::Checkpointed { seq, root } => {
            w.u8(7);
            w.u64(seq.0);
            w.digest(root);
        }
        Input::Fetched { seq, root, clients, lives, time_ns } => {
            w.u8(8);
            w.u64(seq.0);
            w.digest(root);
            start::encode_clients(clients, w);
            w.u8(u8::from(lives.is_some()));
            start::encode_lives(lives.unwrap_or(&[]), w);
            w.u64(*time_ns);
        }
        Input::Durable(lsn) => {
            w.u8(9);
            w.u64(lsn.0);
        }
        Input::Kept { seq } => {
            w.u8(10);
            w.u64(seq.0);
        }
        Input::Unreadable { executed } => {
            w.u8(11);
            w.u64(executed.0);
        }
        Input::BurstEnd => w.u8(12),
        Input::Replied { seq, reply } => {
            w.u8(13);
            w.u64(seq.0);
            encode_reply(reply, w);
        }
    }
}

fn encode_reply(reply: &Reply<'_>, w: &mut Writer<'_>) {
    w.u64(reply.client.0);
    w.u64(reply.timestamp.0);
    w.digest(&reply.digest);
    w.u16(reply.replier.unwrap_or(u16::MAX));
    w.u8(match reply.outcome {
        ReplyOutcome::Executed => 0,
        ReplyOutcome::Repeated => 1,
        ReplyOutcome::Superseded => 2,
        ReplyOutcome::Refused => 3,
        ReplyOutcome::Overtaken => 4,
    });
    encode_result(reply.result, w);
}

fn encode_result(result: Option<&[u8]>, w: &mut Writer<'_>) {
    w.u8(u8::from(result.is_some()));
    w.blob(result.unwrap_or(&[]));
}

/// Why a recording cannot be played.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordingError {
    /// The bytes are not a recording of this version.
    Malformed(DecodeError),
    /// The settings in it break a rule.
    BadConfig(ConfigError),
    /// This input cannot be read. Those before it can.
    BadInput {
        /// Its place, from 0.
        index: usize,
        /// Why.
        error: DecodeError,
    },
}

impl core::fmt::Display for RecordingError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "not a recording: {error}"),
            Self::BadConfig(error) => write!(f, "its settings: {error}"),
            Self::BadInput { index, error } => write!(f, "input {index}: {error}"),
        }
    }
}

impl core::error::Error for RecordingError {}

impl From<DecodeError> for RecordingError {
    fn from(error: DecodeError) -> Self {
        Self::Malformed(error)
    }
}

/// Steps a replica through a recording. `each` sees every input with the actions that it led to, after
/// the step.
///
/// `signer` signs what the replica signs; with another one than it had, its signatures differ, and
/// nothing else. Returns the replica as it was in the end.
///
/// # Errors
///
/// The bytes are not a recording.
pub fn play(
    bytes: &[u8],
    signer: Signer,
    mut each: impl FnMut(usize, Now, &Input<'_>, &Replica, &Actions),
) -> Result<Replica, RecordingError> {
    let mut r = Reader::new(bytes);
    if r.u32()? != MAGIC || r.u8()? != VERSION {
        return Err(RecordingError::Malformed(DecodeError::NotCanonical));
    }
    let id = ReplicaId(r.u16()?);
    let config = start::decode_config(&mut r)?;
    let resume = start::decode_resume(&mut r)?;
    let domains = config.domains();
    let mut replica = Replica::new(id, config, signer, resume).map_err(RecordingError::BadConfig)?;
    let mut scratch = Scratch::default();
    let mut actions = Actions::new();
    for index in 0.. {
        if r.is_empty() {
            break;
        }
        let input = r.blob(INPUT_BYTES_MAX).map_err(|error| RecordingError::BadInput { index, error })?;
        scratch
            .step(input, &domains, |now, input| {
                actions.clear();
                replica.step(now, *input, &mut actions);
                each(index, now, input, &replica, &actions);
            })
            .map_err(|error| RecordingError::BadInput { index, error })?;
    }
    Ok(replica)
}

/// The buffers that inputs borrow from.
#[derive(Default)]
struct Scratch {
    replies: Replies,
    proofs: Vec<Proof>,
}

impl Scratch {
    /// Reads an input and hands it to `step`.
    fn step(
        &mut self,
        bytes: &[u8],
        domains: &Domains,
        mut step: impl FnMut(Now, &Input<'_>),
    ) -> Decoded<()> {
        let mut r = Reader::new(bytes);
        let now = Now { mono_ns: r.u64()?, wall_ns: r.u64()? };
        match r.u8()? {
            0 => step(now, &Input::Start),
            1 => {
                let frame = Frame::decode(r.blob(FRAME_BYTES_MAX)?)?;
                self.proofs.clear();
                for _ in 0..r.count16(u16::MAX)? {
                    self.proofs.push(decode_proof(r.u8()?)?);
                }
                let verified = recall::recall(&frame, &self.proofs, domains)?;
                step(now, &Input::Message(&verified));
            }
            2 => {
                let index = usize::from(r.u8()?);
                let timer = Timer::ALL.get(index).ok_or(DecodeError::NotCanonical)?;
                step(now, &Input::Timer(*timer));
            }
            3 => step(now, &Input::SignatureChecked { request: r.digest()?, valid: r.bool()? }),
            4 => {
                let (seq, took_ns) = (SeqNum(r.u64()?), r.u64()?);
                self.replies.clear();
                for _ in 0..r.count16(u16::MAX)? {
                    self.replies.push(decode_reply(&mut r)?);
                }
                step(now, &Input::Executed { seq, replies: &self.replies, took_ns });
            }
            5 => {
                let ticket = Ticket(r.u64()?);
                let result = if r.bool()? {
                    let digest = r.digest()?;
                    ReadResult::Done { result: r.blob(INPUT_BYTES_MAX)?, digest }
                } else {
                    ReadResult::NeedsOrder
                };
                step(now, &Input::Read { ticket, result });
            }
            6 => {
                let client = ClientId(r.u64()?);
                let reply = if r.bool()? {
                    let (timestamp, digest) = (Timestamp(r.u64()?), r.digest()?);
                    Some(CachedReply { timestamp, digest, result: decode_result(&mut r)? })
                } else {
                    None
                };
                step(now, &Input::Cached { client, reply });
            }
            7 => step(now, &Input::Checkpointed { seq: SeqNum(r.u64()?), root: r.digest()? }),
            8 => {
                let (seq, root) = (SeqNum(r.u64()?), &r.digest()?);
                let clients = start::decode_clients(&mut r)?;
                let known = r.bool()?;
                let lives = start::decode_lives(&mut r)?;
                let lives = known.then_some(lives.as_slice());
                let time_ns = r.u64()?;
                step(now, &Input::Fetched { seq, root, clients: &clients, lives, time_ns });
            }
            9 => step(now, &Input::Durable(Lsn(r.u64()?))),
            10 => step(now, &Input::Kept { seq: SeqNum(r.u64()?) }),
            11 => step(now, &Input::Unreadable { executed: SeqNum(r.u64()?) }),
            12 => step(now, &Input::BurstEnd),
            13 => {
                let (seq, reply) = (SeqNum(r.u64()?), decode_reply(&mut r)?);
                step(now, &Input::Replied { seq, reply });
            }
            _ => return Err(DecodeError::NotCanonical),
        }
        Ok(())
    }
}

fn decode_proof(byte: u8) -> Decoded<Proof> {
    [Proof::Mac, Proof::Signed, Proof::Unproven]
        .into_iter()
        .find(|proof| *proof as u8 == byte)
        .ok_or(DecodeError::NotCanonical)
}

fn decode_reply<'a>(r: &mut Reader<'a>) -> Decoded<Reply<'a>> {
    let (client, timestamp, digest) = (ClientId(r.u64()?), Timestamp(r.u64()?), r.digest()?);
    let replier = Some(r.u16()?).filter(|id| *id != u16::MAX);
    let outcome = match r.u8()? {
        0 => ReplyOutcome::Executed,
        1 => ReplyOutcome::Repeated,
        2 => ReplyOutcome::Superseded,
        3 => ReplyOutcome::Refused,
        4 => ReplyOutcome::Overtaken,
        _ => return Err(DecodeError::NotCanonical),
    };
    let result = decode_result(r)?;
    Ok(Reply { client, timestamp, digest, replier, outcome, result })
}

fn decode_result<'a>(r: &mut Reader<'a>) -> Decoded<Option<&'a [u8]>> {
    let is_here = r.bool()?;
    let bytes = r.blob(INPUT_BYTES_MAX)?;
    Ok(is_here.then_some(bytes))
}
