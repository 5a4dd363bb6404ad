//! Frames to and from the sockets of a node: the authenticator, the counters of channels, packing.
//!
//! Frames above [`LONG_ABOVE`] travel over TCP, all others over UDP, several to one place in one datagram. With
//! [`Carrier::Tcp`] every frame but NEW-KEY travels over TCP, one connection for each direction of a pair.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;

use nix::fcntl::Flock;
use quorate_node::{Clock, Directory, Idle, Place, Socket, Transport};
use quorate_quorum::Message;
use quorate_quorum::channel::{Incoming, Outgoing};
use quorate_wire::auth::{Admitted, AuthError, Authenticator};
use quorate_wire::codec::Reader;
use quorate_wire::envelope::frame::Frame;
use quorate_wire::{Principal, Source};

use crate::envelope::{RegisterKind, Registers};
use crate::note::{NOTES, Note};

/// The longest frame in a datagram: a value of 8 KiB with what is around it.
pub const LONG_ABOVE: usize = 9 << 10;
/// The longest wait for a datagram, so that a process notices the request to stop.
const WAIT_MS_MAX: u64 = 50;
/// Datagrams are not packed beyond this.
const PACKED_MAX: usize = 32 << 10;

/// How messages travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carrier {
    /// Datagrams, and TCP for what is long.
    #[default]
    Udp,
    /// TCP for every message.
    Tcp,
}

impl Carrier {
    /// Returns the length above which frames travel over TCP.
    pub fn above(self) -> usize {
        match self {
            Self::Udp => LONG_ABOVE,
            Self::Tcp => 0,
        }
    }
}

/// What arrived.
#[derive(Clone, Debug)]
pub(crate) enum Letter {
    Message(Message),
    Note(Note),
}

/// What a link has carried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Frames that went out, with their bytes.
    sent: (u64, u64),
    /// Frames that came in and were authentic and new.
    taken: u64,
    /// Frames that did not count, by the reason.
    refused: BTreeMap<&'static str, u64>,
}

impl Carried {
    /// Returns how many frames went out, and their bytes.
    pub fn sent(&self) -> (u64, u64) {
        self.sent
    }

    /// Returns how many frames came in and were authentic and new.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns how many frames did not count, by the reason.
    pub fn refused(&self) -> &BTreeMap<&'static str, u64> {
        &self.refused
    }

    fn refuse(&mut self, why: &'static str) {
        *self.refused.entry(why).or_default() += 1;
    }
}

/// The windows of one generation of session keys: of short frames, and of long ones. Long ones wait for each other, so any number of
/// short ones may overtake one (Q18).
type Windows = [Incoming; 2];

/// The two ends of the channel with one key holder.
#[derive(Debug, Default)]
struct Channel {
    out: Outgoing,
    /// The windows of the two generations of session keys that may be in use, the newer one first.
    sessions: [(u32, Windows); 2],
}

impl Channel {
    /// Says whether the counter of a frame with this length of body is new under the sender's generation `key_id`, whose MAC was
    /// right.
    fn accept(&mut self, key_id: u32, counter: u64, len: usize) -> bool {
        let [new, old] = &mut self.sessions;
        let [short, long] = if new.0 == key_id {
            &mut new.1
        } else if old.0 == key_id {
            &mut old.1
        } else {
            // A generation is accepted for seconds after the next, so of three the oldest is over.
            *old = std::mem::replace(new, (key_id, Windows::default()));
            &mut new.1
        };
        if len > LONG_ABOVE { long.accept(counter) } else { short.accept(counter) }
    }
}

/// A node's link.
pub struct Link {
    own: Principal,
    auth: Authenticator<Registers>,
    socket: Socket,
    directory: Directory,
    above: usize,
    /// By key holder: of members of the cluster only.
    channels: BTreeMap<u64, Channel>,
    body: Vec<u8>,
    outbox: Vec<Vec<u8>>,
    used: Vec<Place>,
    inbox: VecDeque<(Principal, Letter)>,
    carried: Carried,
    _lock: Option<Flock<File>>,
}

impl core::fmt::Debug for Link {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Link").field("own", &self.own).field("carried", &self.carried).finish_non_exhaustive()
    }
}

impl Link {
    /// Returns the link of `own`, a lane of the authenticator's node. The socket's side channel takes what `carrier` says.
    pub fn new(
        own: Principal,
        (auth, socket, directory, lock): (Authenticator<Registers>, Socket, Directory, Option<Flock<File>>),
        carrier: Carrier,
    ) -> Self {
        let outbox = (0..directory.len()).map(|_| Vec::new()).collect();
        Self {
            own,
            auth,
            socket,
            directory,
            above: carrier.above(),
            channels: BTreeMap::new(),
            body: Vec::new(),
            outbox,
            used: Vec::new(),
            inbox: VecDeque::new(),
            carried: Carried::default(),
            _lock: lock,
        }
    }

    /// Returns what it has carried.
    pub fn carried(&self) -> &Carried {
        &self.carried
    }

    /// Begins a new generation of session keys, and returns its time.
    pub(crate) fn refresh(&mut self, entropy: [u8; 32], wall_ns: u64) {
        self.auth.refresh(entropy, wall_ns);
    }

    /// Returns the time of this node's newest keys.
    pub(crate) fn key_time(&self) -> u64 {
        self.auth.key_time()
    }

    /// Sends every server this node's keys again: one that has started again may lack them.
    pub(crate) fn announce(&mut self) {
        self.auth.announce();
    }

    /// Takes what has come in one datagram or long frame. False: nothing has.
    #[inline]
    pub(crate) fn poll(&mut self, mono_ns: u64) -> io::Result<bool> {
        let Self { auth, socket, channels, inbox, carried, .. } = self;
        let Some((source, datagram)) = socket.receive()? else { return Ok(false) };
        let by = Opener { auth, channels, inbox, carried }.open(mono_ns, source, datagram);
        socket.judge(by);
        Ok(true)
    }

    /// The same, but waits until something comes, or until `due_ns`, or a little less.
    #[inline]
    pub(crate) fn await_one(&mut self, clock: &Clock, (now_ns, due_ns): (u64, u64)) -> io::Result<bool> {
        let Self { auth, socket, channels, inbox, carried, .. } = self;
        let wait_ms = due_ns.saturating_sub(now_ns).div_ceil(1_000_000).min(WAIT_MS_MAX);
        let wait_ms = u16::try_from(wait_ms).unwrap_or(u16::MAX);
        let Some((source, datagram)) = socket.receive_within(wait_ms)? else { return Ok(false) };
        let by = Opener { auth, channels, inbox, carried }.open(clock.mono_ns(), source, datagram);
        socket.judge(by);
        Ok(true)
    }

    /// Returns the next of what has come.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(Principal, Letter)> {
        self.inbox.pop_front()
    }

    /// Sends a message with the next flush.
    #[inline]
    pub(crate) fn send(&mut self, to: Principal, message: &Message) {
        let body = &message.body;
        self.put(to, body.kind(), body.value_bytes(), |counter, body| message.encode(counter, body));
    }

    /// Sends a note with the next flush.
    pub(crate) fn note(&mut self, to: Principal, note: &Note) {
        self.put(to, note.kind(), note.value_bytes(), |counter, body| note.encode(counter, body));
    }

    /// Sends what `encode` writes, in which values have `value_bytes`. If that has to wait for TCP and finds no space, nothing is
    /// encoded and hashed: who does not read what it asked for costs little (Q17).
    #[inline]
    fn put(&mut self, to: Principal, kind: u8, value_bytes: usize, encode: impl FnOnce(u64, &mut Vec<u8>)) {
        let Some(place) = self.directory.find(to) else { return self.carried.refuse("no-address") };
        if value_bytes > self.above && !self.socket.has_room(place, value_bytes) {
            return self.carried.refuse("no-room");
        }
        let counter = self.channels.entry(to.key_holder()).or_default().out.advance();
        self.body.clear();
        encode(counter, &mut self.body);
        self.carried.sent.0 += 1;
        if self.body.len() > self.above {
            let mut frame = Vec::new();
            self.auth.seal_from(RegisterKind(kind), self.own, Some(to), &self.body, &mut frame);
            self.carried.sent.1 += frame.len() as u64;
            return self.socket.send_long(place, frame);
        }
        let Some(packed) = self.outbox.get_mut(place.index()) else { return };
        if packed.len() + self.body.len() > PACKED_MAX {
            self.socket.send(place, packed);
            packed.clear();
        }
        if packed.is_empty() {
            self.used.push(place);
        }
        let before = packed.len();
        self.auth.seal_from(RegisterKind(kind), self.own, Some(to), &self.body, packed);
        self.carried.sent.1 += (packed.len() - before) as u64;
    }

    /// Sends what is packed.
    #[inline]
    pub(crate) fn flush_packed(&mut self) {
        for place in self.used.drain(..) {
            if let Some(packed) = self.outbox.get_mut(place.index())
                && !packed.is_empty()
            {
                self.socket.send(place, packed);
                packed.clear();
            }
        }
    }

    /// Sends what is packed, and the keys that are due.
    #[inline]
    pub(crate) fn flush(&mut self, mono_ns: u64) {
        self.flush_packed();
        self.auth.tick(mono_ns, 0);
        while let Some((to, frame)) = self.auth.take_outgoing() {
            if let Some(place) = self.directory.find(to) {
                self.socket.send(place, &frame);
            }
        }
    }

    /// Rests until something comes or is due.
    pub(crate) fn rest(
        &self,
        idle: &mut Idle,
        (now_ns, due_ns): (u64, u64),
        waker: Option<&quorate_node::wake::Waker>,
        news: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        idle.rest(now_ns, due_ns, &self.socket, waker, news)
    }
}

/// What opens the frames of a datagram.
struct Opener<'a> {
    auth: &'a mut Authenticator<Registers>,
    channels: &'a mut BTreeMap<u64, Channel>,
    inbox: &'a mut VecDeque<(Principal, Letter)>,
    carried: &'a mut Carried,
}

impl Opener<'_> {
    /// Opens them, and returns who made the last authentic one.
    #[inline]
    fn open(self, mono_ns: u64, source: Source, datagram: &[u8]) -> Option<Principal> {
        let Self { auth, channels, inbox, carried } = self;
        let mut reader = Reader::new(datagram);
        let mut by = None;
        while !reader.is_empty() {
            let Ok(frame) = Frame::take(&mut reader) else {
                carried.refuse("malformed");
                break;
            };
            let sender = frame.sender;
            let packet = match auth.admit_from(mono_ns, source, &frame) {
                Ok(Admitted::Message(packet)) => *packet.message(),
                Ok(Admitted::Keys) => {
                    by = Some(sender);
                    continue;
                }
                Err(error) => {
                    carried.refuse(error.name());
                    continue;
                }
            };
            by = Some(sender);
            let channel = channels.entry(sender.key_holder()).or_default();
            if !channel.accept(packet.key_id, packet.counter, packet.body.len()) {
                carried.refuse("replayed");
                continue;
            }
            let letter = if NOTES.contains(&packet.kind) {
                Note::decode(packet.kind, packet.body).map(Letter::Note)
            } else {
                Message::decode(packet.kind, packet.body).map(|(_, message)| Letter::Message(message))
            };
            match letter {
                Ok(letter) => {
                    carried.taken += 1;
                    inbox.push_back((sender, letter));
                }
                Err(error) => carried.refuse(AuthError::from(error).name()),
            }
        }
        by
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use quorate_node::TestKeys;
    use quorate_quorum::message::Op;
    use quorate_quorum::{Body, ObjectId};
    use quorate_wire::{ClientId, Cluster, ReplicaId};
    use std::net::{SocketAddr, UdpSocket};

    /// Takes what comes until there is something of this kind.
    fn receive(link: &mut Link, wanted: impl Fn(&Link) -> bool) {
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !wanted(link) {
            link.poll(1).unwrap();
            link.flush(1);
            assert!(std::time::Instant::now() < end, "{link:?}");
        }
    }

    /// A datagram that is sent again is nothing new, in front of the protocol.
    #[test]
    fn a_replayed_datagram_is_dropped() {
        let keys = TestKeys::new(1, Cluster::tolerating(1).unwrap(), 1);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let proxy = UdpSocket::bind(any).unwrap();
        let servers = [proxy.local_addr().unwrap(); 4];
        let (to_proxy, mut back) = (Directory::new(&servers), Directory::new(&servers));
        let client = Principal::Client(ClientId::new(1, 0));
        let socket = Socket::open(any, &to_proxy).unwrap();
        back.add_client(client, socket.address().unwrap());
        let listening = Socket::open(any, &back).unwrap();
        let at = listening.address().unwrap();
        let me: Principal = ReplicaId(0).into();
        let mut a = Link::new(client, (keys.authenticator(client, 1), socket, to_proxy, None), Carrier::Udp);
        let mut b = Link::new(me, (keys.authenticator(me, 1), listening, back, None), Carrier::Udp);
        let op = Op { incarnation: 1, number: 1, phase: 1 };
        let message = Message { object: ObjectId([1; 32]), body: Body::Qts { op } };
        // The keys of both, through the proxy as well.
        let mut buffer = [0; 4096];
        proxy.set_read_timeout(Some(std::time::Duration::from_millis(20))).unwrap();
        let mut pass = |a: &mut Link, b: &mut Link, times: usize| {
            a.flush(1);
            while let Ok(len) = proxy.recv(&mut buffer) {
                (0..times).for_each(|_| _ = proxy.send_to(&buffer[..len], at).unwrap());
            }
            b.poll(1).unwrap();
            b.flush(1);
        };
        pass(&mut a, &mut b, 1);
        receive(&mut a, |link| link.auth.key_time() > 0);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while b.carried.taken == 0 {
            a.send(me, &message);
            pass(&mut a, &mut b, 3);
            let _ = a.poll(1).unwrap();
            assert!(std::time::Instant::now() < end, "{b:?}");
        }
        receive(&mut b, |link| link.carried.refused.get("replayed").copied().unwrap_or(0) >= 2);
        assert_eq!(b.inbox.len() as u64, b.carried.taken);
    }

    /// A counter is taken once under each generation of keys, and a generation that is over opens nothing again.
    #[test]
    fn a_new_generation_has_a_window_of_its_own() {
        let mut channel = Channel::default();
        let mut accept = |key_id, counter| channel.accept(key_id, counter, 100);
        assert!(accept(7, 1) && accept(7, 2) && !accept(7, 1));
        assert!(accept(8, 1), "new keys, new window");
        assert!(!accept(7, 2) && accept(7, 3), "the one before goes on for a while");
        assert!(!accept(8, 1) && accept(8, 2));
    }

    /// Q18: a long frame is taken however many short ones have overtaken it, and once.
    #[test]
    fn q18_short_frames_overtake_a_long_one() {
        let mut channel = Channel::default();
        assert!((2..5000).all(|counter| channel.accept(7, counter, LONG_ABOVE)));
        assert!(channel.accept(7, 1, LONG_ABOVE + 1) && !channel.accept(7, 1, LONG_ABOVE + 1));
        assert!(!channel.accept(7, 1, LONG_ABOVE), "short ones arrive soon or not at all");
    }

    /// Q17: a client that does not read its long answers does not make the server hash more of them.
    #[test]
    fn q17_a_long_answer_without_room_is_not_made() {
        let keys = TestKeys::new(1, Cluster::tolerating(1).unwrap(), 1);
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let (me, client): (Principal, _) = (ReplicaId(0).into(), Principal::Client(ClientId::new(1, 0)));
        let silent = std::net::TcpListener::bind(any).unwrap();
        let mut directory = Directory::new(&[silent.local_addr().unwrap(); 4]);
        directory.add_client(client, silent.local_addr().unwrap());
        // The port of a datagram socket may be taken for TCP: then another one is tried.
        let open = |_| {
            let mut socket = Socket::open(any, &directory).unwrap();
            socket.open_side_channel_above(&directory, LONG_ABOVE).ok().map(|()| socket)
        };
        let socket = (0..20).find_map(open).unwrap();
        let mut link = Link::new(me, (keys.authenticator(me, 1), socket, directory, None), Carrier::Udp);
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while link.carried.refused.is_empty() {
            let mut is_made = false;
            link.put(client, 71, 1 << 20, |_, body| {
                is_made = true;
                body.resize(1 << 20, 0);
            });
            assert_eq!(is_made, link.carried.refused.is_empty());
            assert!(std::time::Instant::now() < end, "there is always room");
        }
        assert_eq!(link.carried.refused.get("no-room"), Some(&1));
    }
}
