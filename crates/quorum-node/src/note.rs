//! What servers and clients of a register say beside the protocols (`docs/wire-format-registers.md`, kinds from 89).
//!
//! Nothing here decides anything: a reader that is told of news reads, a value that was fetched is checked against the
//! digest in its version, and a state is for people.

use std::sync::Arc;

use quorate_quorum::accusation::Accusation;
use quorate_quorum::message::Rid;
use quorate_quorum::version::VALUE_MAX;
use quorate_quorum::{ObjectId, Value, Version};
use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};
use quorate_wire::{ClientId, Digest};

use crate::evidence::{BYTES_MAX, PART_MAX};
use crate::suspicion::{ENTRIES_MAX, Suspicion};

/// The numbers of the kinds that are notes'. Those below and above are messages'.
pub const NOTES: core::ops::RangeInclusive<u8> = 89..=99;

/// What a server tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// How long it has been running, in milliseconds.
    pub up_ms: u64,
    /// Objects that it holds.
    pub objects: u64,
    /// Bytes of what it keeps of them.
    pub bytes: u64,
    /// Bytes of its log.
    pub log_bytes: u64,
    /// Messages that were taken.
    pub taken: u64,
    /// Frames and messages that were refused.
    pub refused: u64,
    /// Watchers.
    pub watchers: u64,
    /// It lost its disk, and does not hold what it promised yet.
    pub lost: bool,
    /// It lost its disk in this epoch: in BFT-BC it approves nothing.
    pub repaired: bool,
    /// What it and clients have seen of other servers.
    pub suspicions: Arc<[Suspicion]>,
}

/// A note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A client wants to be told of new versions of this object, for a while.
    Watch(ObjectId),
    /// A client wants no more of that.
    Unwatch(ObjectId),
    /// A server stored this version.
    News(ObjectId, Version),
    /// VAL without its value: a store that is forwarded to a listener.
    Forwarded(ObjectId, Rid, Version),
    /// A reader asks for the value of this version.
    Fetch(ObjectId, Version),
    /// The value that was asked for.
    Fetched(ObjectId, Version, Value),
    /// A client asks for the state.
    Probe(u64),
    /// The state, with the number of the question.
    State(u64, State),
    /// What a client has seen of a server. The witness is the sender.
    Suspect(Suspicion),
    /// A client asks for the accusations of a server, from this number on.
    AskEvidence(u16),
    /// Some of them, from this number on, of how many.
    Evidence(u16, u16, Arc<[Accusation]>),
}

fn put_version(w: &mut Writer<'_>, version: Version) {
    w.u64(version.val);
    w.u64(version.client.0);
    w.digest(&version.digest);
}

fn version(r: &mut Reader<'_>) -> Decoded<Version> {
    Ok(Version { val: r.u64()?, client: ClientId(r.u64()?), digest: Digest(r.array()?) })
}

impl Note {
    /// Returns the number of its kind.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Watch(_) => 89,
            Self::Unwatch(_) => 90,
            Self::News(..) => 91,
            Self::Forwarded(..) => 92,
            Self::Fetch(..) => 93,
            Self::Fetched(..) => 94,
            Self::Probe(_) => 95,
            Self::State(..) => 96,
            Self::Suspect(_) => 97,
            Self::AskEvidence(_) => 98,
            Self::Evidence(..) => 99,
        }
    }

    /// Returns the bytes of the value in it.
    pub(crate) fn value_bytes(&self) -> usize {
        if let Self::Fetched(_, _, value) = self { value.len() } else { 0 }
    }

    /// Appends the body of its frame.
    pub fn encode(&self, counter: u64, out: &mut Vec<u8>) {
        let mut to = Writer::new(out);
        let w = &mut to;
        w.u64(counter);
        match self {
            Self::Watch(object) | Self::Unwatch(object) => w.bytes(&object.0),
            Self::News(object, version) | Self::Fetch(object, version) => {
                w.bytes(&object.0);
                put_version(w, *version);
            }
            Self::Forwarded(object, rid, version) => {
                w.bytes(&object.0);
                w.u32(rid.incarnation);
                w.u64(rid.counter);
                put_version(w, *version);
            }
            Self::Fetched(object, version, value) => {
                w.bytes(&object.0);
                put_version(w, *version);
                w.blob(value);
            }
            Self::Probe(number) => w.u64(*number),
            Self::State(number, state) => {
                w.u64(*number);
                let State {
                    up_ms,
                    objects,
                    bytes,
                    log_bytes,
                    taken,
                    refused,
                    watchers,
                    lost,
                    repaired,
                    suspicions,
                } = state;
                for field in [up_ms, objects, bytes, log_bytes, taken, refused, watchers] {
                    w.u64(*field);
                }
                w.u8(u8::from(*lost));
                w.u8(u8::from(*repaired));
                let shown = suspicions.get(..usize::from(ENTRIES_MAX)).unwrap_or(suspicions);
                w.count16(shown.len());
                for one in shown {
                    one.encode(w);
                }
            }
            Self::Suspect(one) => one.encode(w),
            Self::AskEvidence(from) => w.u16(*from),
            Self::Evidence(from, total, items) => {
                w.u16(*from);
                w.u16(*total);
                w.count16(items.len());
                for item in items.iter() {
                    let mut bytes = Vec::new();
                    item.encode(&mut bytes);
                    w.blob(&bytes);
                }
            }
        }
    }

    /// Reads the body of a frame of this kind.
    pub fn decode(kind: u8, bytes: &[u8]) -> Decoded<Self> {
        let mut from = Reader::new(bytes);
        let r = &mut from;
        r.u64()?;
        let object = |r: &mut Reader<'_>| Ok(ObjectId(r.array()?));
        let note = match kind {
            89 => Self::Watch(object(r)?),
            90 => Self::Unwatch(object(r)?),
            91 => Self::News(object(r)?, version(r)?),
            92 => {
                let object = object(r)?;
                let rid = Rid { incarnation: r.u32()?, counter: r.u64()? };
                Self::Forwarded(object, rid, version(r)?)
            }
            93 => Self::Fetch(object(r)?, version(r)?),
            94 => Self::Fetched(object(r)?, version(r)?, Arc::from(r.blob(VALUE_MAX)?)),
            95 => Self::Probe(r.u64()?),
            96 => {
                let number = r.u64()?;
                let mut state = State {
                    up_ms: r.u64()?,
                    objects: r.u64()?,
                    bytes: r.u64()?,
                    log_bytes: r.u64()?,
                    taken: r.u64()?,
                    refused: r.u64()?,
                    watchers: r.u64()?,
                    lost: r.bool()?,
                    repaired: r.bool()?,
                    suspicions: Arc::default(),
                };
                let count = r.count16(ENTRIES_MAX)?;
                state.suspicions = (0..count).map(|_| Suspicion::decode(r)).collect::<Decoded<_>>()?;
                Self::State(number, state)
            }
            97 => Self::Suspect(Suspicion::decode(r)?),
            98 => Self::AskEvidence(r.u16()?),
            99 => {
                let (from, total) = (r.u16()?, r.u16()?);
                let count = r.count16(PART_MAX)?;
                let item = |_| Accusation::decode(r.blob(BYTES_MAX)?);
                Self::Evidence(from, total, (0..count).map(item).collect::<Decoded<_>>()?)
            }
            other => return Err(DecodeError::UnknownKind(other)),
        };
        from.end()?;
        Ok(note)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_quorum::accusation::Offence;
    use quorate_quorum::crypto::Statement;

    #[test]
    fn notes_are_encoded_in_one_way() {
        let object = ObjectId([1; 32]);
        let version = Version { val: 5, client: ClientId::new(2, 0), digest: Digest([9; 32]) };
        let suspicion = Suspicion {
            server: quorate_wire::ReplicaId(3),
            wrong: crate::suspicion::Wrong::Older,
            witness: 1 << 16,
            count: 8,
        };
        let accusation = Accusation {
            accused: quorate_wire::ReplicaId(2).into(),
            object,
            offence: Offence::Wrote((Statement::Written(version), [7; 64])),
        };
        let state = State {
            up_ms: 1,
            objects: 2,
            bytes: 3,
            log_bytes: 4,
            taken: 5,
            refused: 6,
            watchers: 7,
            lost: true,
            repaired: false,
            suspicions: [suspicion, suspicion].into(),
        };
        let notes = [
            Note::Watch(object),
            Note::Unwatch(object),
            Note::News(object, version),
            Note::Forwarded(object, Rid { incarnation: 1, counter: 2 }, version),
            Note::Fetch(object, version),
            Note::Fetched(object, version, Arc::from(&b"value"[..])),
            Note::Probe(77),
            Note::State(77, state),
            Note::Suspect(suspicion),
            Note::AskEvidence(3),
            Note::Evidence(3, 4, [accusation].into()),
        ];
        for note in notes {
            let mut bytes = Vec::new();
            note.encode(3, &mut bytes);
            assert_eq!(Note::decode(note.kind(), &bytes), Ok(note.clone()));
            for len in 0..bytes.len() {
                assert!(Note::decode(note.kind(), &bytes[..len]).is_err(), "{note:?} {len}");
            }
            assert!(Note::decode(note.kind(), &[&bytes[..], &[0]].concat()).is_err());
            for kind in (0..*NOTES.start()).chain(*NOTES.end() + 1..=255) {
                assert_eq!(Note::decode(kind, &bytes), Err(DecodeError::UnknownKind(kind)));
            }
        }
    }
}
