//! Byzantine replicas that abuse keys: authenticators, NEW-KEY, messages under old keys (K15, K16).

use quorate_pbft::step::Recipient;
use quorate_process::Place;
use quorate_wire::Kind;
use quorate_wire::frame::{ENTRY_BYTES, Frame};
use quorate_wire::message::{NewKey, Seal};

use crate::adversary::{Answered, Liar, Lie};
use crate::rng::Rng;

/// K15, A2: its authenticators are wrong for the last `count` receivers, in every kind of message that has
/// one.
#[derive(Debug)]
pub struct MacSplit {
    /// For how many.
    pub count: usize,
}

impl Liar for MacSplit {
    fn tamper(&mut self, _rng: &mut Rng, _to: Place, frame: &mut Vec<u8>) -> Answered {
        let kind = frame.get(3).copied().map(Kind::from_wire);
        if !matches!(kind, Some(Ok(kind)) if kind.seal() == Seal::Authenticator && kind != Kind::Request) {
            return Answered::Truth;
        }
        let len = frame.len();
        for entry in 0..self.count {
            if let Some(byte) = frame.get_mut(len.saturating_sub(1 + entry * ENTRY_BYTES)) {
                *byte ^= 1;
            }
        }
        Answered::Lie
    }

    fn tampers(&self) -> bool {
        true
    }
}

/// K16: announces keys again that others have announced long ago.
#[derive(Debug, Default)]
pub struct OldKeys {
    announced: Vec<Vec<u8>>,
    next_at: u64,
}

impl Liar for OldKeys {
    fn overhear(&mut self, _rng: &mut Rng, frame: &[u8]) {
        if frame.get(3).copied() == Some(Kind::NewKey.to_wire()) && self.announced.len() < 64 {
            self.announced.push(frame.to_vec());
        }
    }

    fn idle(&mut self, lie: &mut Lie<'_>) {
        if lie.now.mono_ns < self.next_at || self.announced.is_empty() {
            return;
        }
        self.next_at = lie.now.mono_ns + 5_000_000;
        let frame = self.announced[lie.rng.index(self.announced.len())].clone();
        lie.pass_on(Recipient::All, Kind::NewKey, &frame);
    }
}

/// K16: repeats messages that it has received, from any sender, at any time.
#[derive(Debug, Default)]
pub struct ReplayOld {
    heard: Vec<Vec<u8>>,
    next: usize,
    next_at: u64,
}

impl Liar for ReplayOld {
    fn overhear(&mut self, _rng: &mut Rng, frame: &[u8]) {
        let keys = frame.get(3).copied() == Some(Kind::NewKey.to_wire());
        if keys && self.heard.len() < 64 || self.heard.len() < 32 {
            self.heard.push(frame.to_vec());
        }
    }

    fn idle(&mut self, lie: &mut Lie<'_>) {
        if lie.now.mono_ns < self.next_at || self.heard.is_empty() {
            return;
        }
        self.next_at = lie.now.mono_ns + 5_000_000;
        self.next = (self.next + 1) % self.heard.len();
        let frame = self.heard[self.next].clone();
        if let Ok(decoded) = Frame::decode(&frame) {
            lie.pass_on(Recipient::All, decoded.kind, &frame);
        }
    }
}

/// K16: uses new keys without announcing them.
#[derive(Debug, Default)]
pub struct SecretKeys;

impl Liar for SecretKeys {
    fn tamper(&mut self, _rng: &mut Rng, _to: Place, frame: &mut Vec<u8>) -> Answered {
        let keys = frame.get(3).copied() == Some(Kind::NewKey.to_wire());
        if keys { Answered::Silence } else { Answered::Truth }
    }

    fn tampers(&self) -> bool {
        true
    }
}

/// K16: announces new keys all the time, always asking for everyone's in return: shares that belong to no secret key,
/// the neutral element among them, and at the end the largest possible time.
#[derive(Debug, Default)]
pub struct KeyFlood {
    next_at: u64,
    told: u64,
}

impl Liar for KeyFlood {
    fn idle(&mut self, lie: &mut Lie<'_>) {
        if lie.now.mono_ns < self.next_at {
            return;
        }
        self.next_at = lie.now.mono_ns + 1_000_000;
        self.told += 1;
        let share = if self.told.is_multiple_of(8) { [0; 32] } else { lie.rng.bytes() };
        let time = if self.told < 100 { lie.now.wall_ns } else { u64::MAX };
        let [a, b, c, d, ..] = share;
        let new_key =
            NewKey { time, key_id: u32::from_le_bytes([a, b, c, d]), share, settings: 0, want: true };
        lie.say_with(Recipient::All, Kind::NewKey, |w| new_key.encode(w));
    }
}
