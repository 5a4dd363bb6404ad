//! Four replicas and two clients with their authenticators.

use quorate_wire::codec::Writer;
use quorate_wire::digest::Domains;
use quorate_wire::frame::Frame;
use quorate_wire::message::{AnyBody, RequestBody, RequestFlags};
use quorate_wire::sign::{Signer, Verifier};
use quorate_wire::{
    Admitted, ClientId, Cluster, ClusterId, Door, DoorError, Kind, Message, Principal, ReplicaId, Timestamp,
    Verified,
};

/// Replicas in a world.
pub(crate) const N: usize = 4;
/// Where the two clients are among the authenticators.
pub(crate) const C0: usize = 4;
/// The second client.
pub(crate) const C1: usize = 5;

/// What differs between worlds.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) cluster_id: ClusterId,
    pub(crate) epoch: u32,
    /// Ed25519, as in production; otherwise keyed hashes, which are fast.
    pub(crate) ed25519: bool,
}

impl Default for Setting {
    fn default() -> Self {
        Self { cluster_id: ClusterId([0xc1; 32]), epoch: 3, ed25519: false }
    }
}

/// Everyone's authenticators, replicas first.
pub(crate) struct World {
    pub(crate) setting: Setting,
    pub(crate) doors: Vec<Door>,
}

/// Who stands at `at` among the authenticators.
pub(crate) fn who(at: usize) -> Principal {
    if at < N {
        ReplicaId::at(at).into()
    } else {
        Principal::Client(ClientId::new(u64::try_from(at - N + 1).unwrap(), 0))
    }
}

/// The first client's lane 3.
pub(crate) fn lane() -> ClientId {
    ClientId::new(1, 3)
}

pub(crate) fn signer(setting: Setting, at: usize) -> Signer {
    let seed = [u8::try_from(at).unwrap() + 0x10; 32];
    if setting.ed25519 { Signer::ed25519(seed) } else { Signer::Toy(seed) }
}

/// The time of day.
pub(crate) const WALL_NS: u64 = 1_700_000_000_000_000_000;

/// An authenticator of `at` that knows nobody's share yet. `start` counts its starts.
pub(crate) fn door(setting: Setting, at: usize, start: u8) -> Door {
    let mut verifier = Verifier::default();
    for other in 0..=C1 {
        verifier.insert(who(other), &signer(setting, other).public());
    }
    let cluster = Cluster::new(u16::try_from(N).unwrap(), 1).unwrap();
    let Setting { cluster_id, epoch, .. } = setting;
    let mut entropy = [u8::try_from(at).unwrap() + 0x20; 32];
    entropy[31] = start;
    let (own, signer, start) = (who(at), signer(setting, at), u64::from(start));
    let mut door = Door::new(own, cluster, cluster_id, epoch, signer, verifier, entropy, start);
    door.tick(0, WALL_NS);
    door
}

impl World {
    /// Everyone, keys exchanged.
    pub(crate) fn new() -> Self {
        Self::of(Setting::default())
    }

    pub(crate) fn of(setting: Setting) -> Self {
        let mut world = Self { setting, doors: (0..=C1).map(|at| door(setting, at, 1)).collect() };
        world.exchange_keys(0);
        world
    }

    /// Delivers NEW-KEYs at once until nobody has one to send.
    pub(crate) fn exchange_keys(&mut self, mono_ns: u64) {
        while self.deliver_keys(mono_ns) > 0 {}
    }

    /// Delivers the NEW-KEYs that are due. Returns how many there were.
    pub(crate) fn deliver_keys(&mut self, mono_ns: u64) -> usize {
        let mut count = 0;
        for from in 0..self.doors.len() {
            self.doors[from].tick(mono_ns, 0);
            while let Some((to, frame)) = self.doors[from].take_outgoing() {
                count += 1;
                let to = (0..=C1).find(|at| who(*at) == to).unwrap();
                let admitted = self.doors[to].admit(mono_ns, Frame::decode(&frame).unwrap());
                assert!(matches!(admitted, Ok(Admitted::Keys)), "{admitted:?}");
            }
        }
        count
    }

    pub(crate) fn domains(&self) -> Domains {
        Domains::new(self.setting.cluster_id)
    }

    /// A frame of `from` with this body. MACs are for `to`.
    pub(crate) fn seal(&mut self, from: usize, to: usize, kind: Kind, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.doors[from].seal(kind, Some(who(to)), body, &mut out);
        out
    }

    /// A request of the first client.
    pub(crate) fn request(&mut self, timestamp: u64, operation: &[u8], sign: bool) -> Vec<u8> {
        let flags = RequestFlags { read_only: false, signed: sign };
        let body = RequestBody { timestamp: Timestamp(timestamp), flags, replier: Some(2), operation };
        let mut out = Vec::new();
        self.doors[C0].seal_request(&body, lane(), sign, &mut out);
        out
    }

    /// What the authenticator of `to` makes of the frame in these bytes.
    pub(crate) fn admit<'a>(
        &mut self,
        to: usize,
        bytes: &'a [u8],
    ) -> Result<Verified<Message<'a>>, DoorError> {
        match self.doors[to].admit(0, Frame::decode(bytes)?)? {
            Admitted::Message(message) => Ok(message),
            Admitted::Keys => panic!("a NEW-KEY"),
        }
    }
}

pub(crate) fn encode(body: &AnyBody<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    body.encode(&mut Writer::new(&mut bytes));
    bytes
}

/// Rewrites a frame's header: the kind.
pub(crate) fn with_kind(frame: &[u8], kind: Kind) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[3] = kind.to_wire();
    frame
}

/// Rewrites a frame's header: the epoch.
pub(crate) fn with_epoch(frame: &[u8], epoch: u32) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[4..8].copy_from_slice(&epoch.to_le_bytes());
    frame
}

/// Rewrites a frame's header: the sender.
pub(crate) fn with_sender(frame: &[u8], sender: Principal) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[8..16].copy_from_slice(&sender.to_wire().to_le_bytes());
    frame
}
