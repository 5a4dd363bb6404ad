//! The attacker of [`attacks`](super): a process without a key, which has seen some of a client's datagrams, or one that
//! has a client's key.

use std::hash::{BuildHasher as _, RandomState};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use quorate_node::caller::CallerOptions;
use quorate_node::{Caller, ClientNode, Clock, OpenClient, Place, Socket, TestKeys, Transport, descriptors};
use quorate_service::kv::Operation;
use quorate_wire::codec::Reader;
use quorate_wire::frame::{ENTRY_BYTES, Frame};
use quorate_wire::message::{RequestBody, RequestFlags};
use quorate_wire::{Cluster, Principal, ReplicaId, Timestamp};

/// The part that takes processor time and does nothing else.
pub(super) const LOOP: &str = "loop";
/// Datagrams to each replica in each millisecond.
const DATAGRAMS: usize = 2;
/// Half-open connections to each replica.
const HALF_OPEN: usize = 300;
/// Connections to each replica that bring empty frames.
const EMPTY: usize = 4;
/// Bytes of a body of the client that attacks with its own key.
const BODY_BYTES: usize = 1 << 20;
/// Its lanes: all that a client has by default.
const LANES: u16 = 256;
/// The lanes of the client whose MACs are right for some replicas only.
const SPOILED_LANES: u16 = 16;
/// The replicas of the cluster: a client's frame has a MAC for each.
const REPLICAS: usize = 4;

/// An attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attack {
    /// Random bytes.
    Junk,
    /// A client's requests, each with a MAC that is wrong for the replica that gets it.
    WrongMacs,
    /// Requests in the name of replicas, with wrong signatures.
    ReplicasName,
    /// A client's frames, signed ones among them, again and again.
    Replay,
    /// Connections that never bring what they have announced, and connections that bring empty frames, while others write
    /// long values.
    Tcp,
    /// A client of the cluster, with all its lanes and long bodies.
    Client,
    /// A client whose MACs are wrong for r0; for r0 and r1.
    Macs(usize),
}

impl Attack {
    pub(super) const ALL: [Self; 8] = [
        Self::Junk,
        Self::WrongMacs,
        Self::ReplicasName,
        Self::Replay,
        Self::Tcp,
        Self::Client,
        Self::Macs(1),
        Self::Macs(2),
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Junk => "junk",
            Self::WrongMacs => "wrong-macs",
            Self::ReplicasName => "replicas-name",
            Self::Replay => "replay",
            Self::Tcp => "tcp",
            Self::Client => "client",
            Self::Macs(1) => "macs-r0",
            Self::Macs(_) => "macs-r0-r1",
        }
    }

    /// Returns whether it is directed at long operations.
    pub(super) fn is_on_large(self) -> bool {
        self == Self::Tcp
    }

    /// Returns what shows that it reaches the replicas, and the least by which that has to rise at each of
    /// [`Self::targets`].
    pub(super) fn sign(self) -> (Sign, u64) {
        match self {
            Self::Junk => (Sign::TurnedAway(&["malformed"]), 50),
            Self::WrongMacs => (Sign::TurnedAway(&["not-authentic"]), 50),
            // A replica looks at few signatures of strangers.
            Self::ReplicasName => (Sign::TurnedAway(&["not-authentic", "too-many-signatures"]), 50),
            Self::Replay => (Sign::TurnedAway(&["old-timestamp"]), 50),
            Self::Tcp => (Sign::Descriptors, 16),
            Self::Client => (Sign::Lanes, 16),
            Self::Macs(_) => (Sign::TurnedAway(&["not-authentic"]), 10),
        }
    }

    /// Returns the number of replicas, from r0 on, that it is directed at.
    pub(super) fn targets(self) -> usize {
        if let Self::Macs(count) = self { count } else { REPLICAS }
    }
}

/// What shows that an attack reaches the replicas.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sign {
    /// Frames and requests that they turn away for one of these reasons.
    TurnedAway(&'static [&'static str]),
    /// Lanes in their client tables.
    Lanes,
    /// Files and sockets that their processes have open.
    Descriptors,
}

/// Attacks until it is killed, or its parent ends.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
    let (name, argument) = match words {
        [name, argument] => (*name, *argument),
        _ => bail!("an attack and its argument"),
    };
    if name == LOOP {
        return spin(argument.parse()?);
    }
    let attack = Attack::ALL.into_iter().find(|attack| attack.name() == name).context("no such attack")?;
    let node = ClientNode::open(Path::new(argument)).map_err(|trouble| anyhow!("{trouble}"))?;
    let replicas = node.settings().replicas.clone();
    match attack {
        Attack::Junk => flood(&replicas, |_, number| junk(number)),
        Attack::WrongMacs => {
            let mut seen = overhear(node.with_lanes(1))?;
            for seen in &mut seen {
                seen.retain(|datagram| !requests(datagram).is_empty());
            }
            flood(&replicas, |to, number| {
                let mut datagram = some(&seen, to, number);
                spoil(&mut datagram, to..to + 1);
                datagram
            })
        }
        Attack::ReplicasName => {
            let forged = forged(replicas.len())?;
            flood(&replicas, |to, _| forged[to].clone())
        }
        Attack::Replay => {
            let seen = overhear(node.with_lanes(1))?;
            flood(&replicas, |to, number| some(&seen, to, number))
        }
        Attack::Tcp => connections(&replicas),
        Attack::Client => bodies(node),
        Attack::Macs(count) => macs(node.with_lanes(SPOILED_LANES), count),
    }
}

fn ready() -> Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "ready")?;
    Ok(out.flush()?)
}

/// Takes this part of a core.
fn spin(share: f64) -> Result<()> {
    ready()?;
    let share = share.clamp(0.0, 1.0);
    let turn = Duration::from_millis(10);
    loop {
        let start = Instant::now();
        while start.elapsed() < turn.mul_f64(share) {
            std::hint::spin_loop();
        }
        std::thread::sleep(turn.saturating_sub(start.elapsed()));
    }
}

/// Sends datagrams to each replica, from an address of its own: what `next` gives for a replica and a number.
fn flood(replicas: &[SocketAddr], mut next: impl FnMut(usize, u64) -> Vec<u8>) -> Result<()> {
    let own = replicas.first().context("no replicas")?.ip();
    let socket = UdpSocket::bind(SocketAddr::new(own, 0))?;
    ready()?;
    let mut number = 0;
    loop {
        let start = Instant::now();
        for _ in 0..DATAGRAMS {
            for (to, address) in replicas.iter().enumerate() {
                number += 1;
                // A replica that is not there is no reason to end.
                let _ = socket.send_to(&next(to, number), address);
            }
        }
        std::thread::sleep(Duration::from_millis(1).saturating_sub(start.elapsed()));
    }
}

fn junk(number: u64) -> Vec<u8> {
    let state = RandomState::new();
    let words = (0..150).map(|at| state.hash_one((number, at)).to_le_bytes());
    words.flatten().collect()
}

/// Returns one of the datagrams that were seen on their way to a replica.
fn some(seen: &[Vec<Vec<u8>>], to: usize, number: u64) -> Vec<u8> {
    let seen = &seen[to];
    let count = u64::try_from(seen.len().max(1)).unwrap_or(1);
    seen.get(usize::try_from(number % count).unwrap_or(0)).cloned().unwrap_or_default()
}

/// A client's datagrams on their way, which are kept or changed.
struct Way<'a> {
    socket: &'a mut Socket,
    /// By replica. At most [`SEEN_MAX`] for each.
    seen: &'a mut [Vec<Vec<u8>>],
    /// How many replicas, from r0 on, get wrong MACs.
    spoiled: usize,
}

/// Datagrams that are kept for each replica: those of the start are the signed ones.
const SEEN_MAX: usize = 64;

impl Transport for Way<'_> {
    fn send(&mut self, to: Place, datagram: &[u8]) {
        if let Some(seen) = self.seen.get_mut(to.index()).filter(|seen| seen.len() < SEEN_MAX) {
            seen.push(datagram.to_vec());
        }
        let mut datagram = datagram.to_vec();
        spoil(&mut datagram, 0..self.spoiled);
        self.socket.send(to, &datagram);
    }

    fn send_long(&mut self, to: Place, frame: Vec<u8>) {
        self.socket.send_long(to, frame);
    }
}

/// Returns where the frames in a datagram end that have a MAC for each replica: a client's requests.
fn requests(datagram: &[u8]) -> Vec<usize> {
    let (mut reader, mut ends) = (Reader::new(datagram), Vec::new());
    while let Ok(frame) = Frame::take(&mut reader) {
        if frame.auth.entries().is_some_and(|(_, entries)| entries.len() == REPLICAS) {
            ends.push(datagram.len() - reader.len());
        }
    }
    ends
}

/// Makes the MACs for these replicas wrong, in each request in a datagram.
fn spoil(datagram: &mut [u8], of: Range<usize>) {
    for end in requests(datagram) {
        for replica in of.clone() {
            datagram[end - (REPLICAS - 1 - replica) * ENTRY_BYTES - 1] ^= 1;
        }
    }
}

/// Does what there is to do for a client.
fn turn(client: &mut OpenClient, clock: &Clock, seen: &mut [Vec<Vec<u8>>], spoiled: usize) -> Result<()> {
    let OpenClient { drive, socket, .. } = client;
    drive.flush(&mut Way { socket, seen, spoiled });
    while let Some((source, datagram)) = socket.receive()? {
        let by = drive.receive_from(clock.now(), source, datagram);
        socket.judge(by);
    }
    let now = clock.now();
    if drive.due() <= now.mono_ns {
        drive.expire(now);
    }
    drive.flush(&mut Way { socket, seen, spoiled });
    Ok(())
}

/// Lets a client do a few operations, and returns for each replica what it has sent: to this replica, and requests to
/// any.
fn overhear(mut client: OpenClient) -> Result<Vec<Vec<Vec<u8>>>> {
    let (clock, mut seen) = (Clock::new(), vec![Vec::new(); REPLICAS]);
    let mut operation = Vec::new();
    Operation::Put { key: b"overheard", value: b"v" }.encode(&mut operation);
    let end = Instant::now() + Duration::from_secs(10);
    for _ in 0..20 {
        client.drive.invoke(clock.now(), 0, &operation, false);
        while client.drive.done().is_empty() {
            turn(&mut client, &clock, &mut seen, 0)?;
            if Instant::now() > end {
                bail!("no answer");
            }
            client.socket.wait(1, None)?;
        }
        client.drive.clear_done();
    }
    // They go to the primary only, but have a MAC for each replica.
    let all: Vec<_> =
        seen.iter().flatten().filter(|datagram| !requests(datagram).is_empty()).cloned().collect();
    for seen in &mut seen {
        seen.retain(|datagram| requests(datagram).is_empty());
        seen.extend_from_slice(&all);
    }
    Ok(seen)
}

/// Requests in the name of another replica, with signatures by no key of the cluster's: for each replica a datagram.
fn forged(replicas: usize) -> Result<Vec<Vec<u8>>> {
    let cluster = Cluster::tolerating(1).context("f = 1")?;
    let keys = TestKeys::new(99, cluster, 1);
    let mut datagrams = Vec::new();
    for to in 0..replicas {
        let of = Principal::Replica(ReplicaId::at((to + 1) % replicas));
        let mut datagram = Vec::new();
        for timestamp in 1..=50 {
            let flags = RequestFlags { read_only: false, signed: true };
            let body = RequestBody { timestamp: Timestamp(timestamp), flags, replier: None, operation: b"?" };
            keys.door(of, timestamp).seal_request(&body, of.as_client(), true, &mut datagram);
        }
        datagrams.push(datagram);
    }
    Ok(datagrams)
}

/// Keeps half-open connections, and sends empty frames on others. What is closed is opened again, some at a time.
fn connections(replicas: &[SocketAddr]) -> Result<()> {
    descriptors::raise();
    let empty = (0..EMPTY).flat_map(|_| replicas.iter().map(|to| (*to, true)));
    let half = (0..HALF_OPEN).flat_map(|_| replicas.iter().map(|to| (*to, false)));
    let mut all: Vec<(SocketAddr, bool, Option<TcpStream>)> =
        empty.chain(half).map(|(to, empty)| (to, empty, None)).collect();
    let first = all.len();
    let mut next = 0;
    let mut some = |count: usize| {
        for _ in 0..count {
            let at = next % all.len();
            next += 1;
            let (to, empty, stream) = &mut all[at];
            let lives = stream.as_mut().is_some_and(
                |stream| matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock),
            );
            if !lives {
                *stream = TcpStream::connect(*to).ok();
                if let Some(stream) = stream {
                    let announced: &[u8] = if *empty { &[] } else { &[0, 0, 0x10, 0, 0] };
                    let _ = stream.write_all(announced);
                    let _ = stream.set_nonblocking(true);
                }
            }
            if let (true, Some(stream)) = (*empty, stream) {
                let _ = stream.write(&[0; 400]);
            }
        }
    };
    some(first);
    ready()?;
    loop {
        some(8);
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Writes long values in all lanes of a client.
fn bodies(node: ClientNode) -> Result<()> {
    let options = CallerOptions { lanes: LANES, deadline: Duration::from_secs(60) };
    let caller = Caller::start(node.with_lanes(LANES), options).map_err(|trouble| anyhow!("{trouble}"))?;
    let mut operation = Vec::new();
    Operation::Put { key: b"attack", value: &vec![1; BODY_BYTES - 100] }.encode(&mut operation);
    let mut open: std::collections::VecDeque<_> =
        (0..LANES).map(|_| caller.submit(operation.clone(), false)).collect();
    ready()?;
    loop {
        if let Some(first) = open.pop_front() {
            let _ = first.wait();
        }
        open.push_back(caller.submit(operation.clone(), false));
    }
}

/// Asks for operations with MACs that are wrong for the first replicas.
fn macs(mut client: OpenClient, count: usize) -> Result<()> {
    let (clock, mut seen) = (Clock::new(), Vec::new());
    let mut operation = Vec::new();
    Operation::Put { key: b"attack", value: b"v" }.encode(&mut operation);
    for lane in 0..SPOILED_LANES {
        client.drive.invoke(clock.now(), lane, &operation, false);
    }
    ready()?;
    loop {
        turn(&mut client, &clock, &mut seen, count)?;
        let done: Vec<u16> = client.drive.done().iter().map(|done| done.lane).collect();
        client.drive.clear_done();
        for lane in done {
            client.drive.invoke(clock.now(), lane, &operation, false);
        }
        client.socket.wait(1, None)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The MACs for the replicas that are named become wrong, in each frame, and nothing else changes.
    #[test]
    fn a_mac_is_spoiled_where_it_is_meant() -> Result<()> {
        let cluster = Cluster::tolerating(1).context("f = 1")?;
        let keys = TestKeys::new(1, cluster, 1);
        let client = Principal::Client(quorate_wire::ClientId::new(1, 0));
        let flags = RequestFlags { read_only: false, signed: false };
        let body = RequestBody { timestamp: Timestamp(1), flags, replier: None, operation: b"?" };
        let (mut whole, mut ends) = (Vec::new(), Vec::new());
        for signed in [false, true, false] {
            keys.door(client, 1).seal_request(&body, client.as_client(), signed, &mut whole);
            ends.push(whole.len());
        }
        for (of, tags) in [(0..2, vec![3, 2]), (3..4, vec![0])] {
            let mut spoiled = whole.clone();
            spoil(&mut spoiled, of);
            let changed: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != spoiled[*at]).collect();
            let meant = ends.iter().flat_map(|end| tags.iter().map(move |tag| end - tag * ENTRY_BYTES - 1));
            assert_eq!(changed, meant.collect::<Vec<_>>());
        }
        Ok(())
    }
}
