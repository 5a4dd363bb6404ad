//! Bad weather between real processes: every directed link of a cluster goes through a proxy that loses,
//! doubles, delays and so reorders datagrams, and cuts links.
//!
//! Each node has its own table of the others' addresses, so a proxy is an entry there: the one of `r1` at `r0` is
//! the link from `r0` to `r1`. The side channel (TCP at the same port) goes through it as well.

use std::collections::{BTreeMap, BinaryHeap};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use quorate_sim::rng::{Concern, Rng};

/// Maximum number of bytes that wait in all proxies; beyond it datagrams are lost.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Names the two ends of a link as the nodes' tables do: `r0`, `client-1`.
pub(crate) type Ends = (String, String);

/// What the weather does to each datagram, in millionths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) lose: u32,
    pub(crate) double: u32,
    /// Those that wait for up to `late_ms`, and are overtaken in that time.
    pub(crate) late: u32,
    pub(crate) late_ms: u32,
}

/// What has become of the datagrams.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) passed: AtomicU64,
    pub(crate) dropped: AtomicU64,
    pub(crate) doubled: AtomicU64,
    /// Delivered behind one that came later on the same link.
    pub(crate) reordered: AtomicU64,
    /// Dropped because their link was cut.
    pub(crate) cut: AtomicU64,
    /// Connections of the side channel that were broken, and bytes that it carried.
    pub(crate) broken: AtomicU64,
    pub(crate) carried: AtomicU64,
}

#[derive(Debug)]
struct Link {
    ends: Ends,
    from: UdpSocket,
    streams: TcpListener,
    to: SocketAddr,
    is_cut: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    lose: AtomicU32,
    double: AtomicU32,
    late: AtomicU32,
    late_ms: AtomicU32,
    counts: Counts,
}

/// The proxies of a cluster.
#[derive(Debug)]
pub(crate) struct Proxies {
    shared: Arc<Shared>,
    links: BTreeMap<Ends, (SocketAddr, Arc<AtomicBool>)>,
    thread: Option<JoinHandle<()>>,
}

impl Proxies {
    /// Opens a proxy on `ip` for each link, which leads to the address given, and lets everything pass.
    pub(crate) fn open(ip: IpAddr, links: Vec<(Ends, SocketAddr)>, seed: u64) -> Self {
        let links: Vec<Link> = links
            .into_iter()
            .map(|(ends, to)| {
                let (from, streams) = listen(ip);
                Link { ends, from, streams, to, is_cut: Arc::default() }
            })
            .collect();
        let own =
            |link: &Link| (link.ends.clone(), (link.from.local_addr().unwrap(), Arc::clone(&link.is_cut)));
        let (table, shared) = (links.iter().map(own).collect(), Arc::new(Shared::default()));
        let proxies = Arc::clone(&shared);
        let thread = std::thread::spawn(move || run(&links, &proxies, Rng::new(seed, Concern::Network)));
        Self { shared, links: table, thread: Some(thread) }
    }

    /// Returns the address that stands for `to` in the table of `from`.
    pub(crate) fn address(&self, from: &str, to: &str) -> Option<SocketAddr> {
        self.links.get(&(from.to_owned(), to.to_owned())).map(|(address, _)| *address)
    }

    pub(crate) fn set(&self, weather: Weather) {
        self.shared.lose.store(weather.lose, Relaxed);
        self.shared.double.store(weather.double, Relaxed);
        self.shared.late.store(weather.late, Relaxed);
        self.shared.late_ms.store(weather.late_ms, Relaxed);
    }

    /// Cuts the links of which `which` says so, and mends all others.
    pub(crate) fn cut(&self, which: impl Fn(&str, &str) -> bool) {
        for ((from, to), (_, is_cut)) in &self.links {
            is_cut.store(which(from, to), Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.shared.counts
    }
}

impl Drop for Proxies {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Takes a port for datagrams and connections alike.
fn listen(ip: IpAddr) -> (UdpSocket, TcpListener) {
    for _ in 0..100 {
        let from = UdpSocket::bind((ip, 0)).unwrap();
        if let Ok(streams) = TcpListener::bind(from.local_addr().unwrap()) {
            from.set_nonblocking(true).unwrap();
            streams.set_nonblocking(true).unwrap();
            return (from, streams);
        }
    }
    panic!("no port on {ip}");
}

/// A datagram that waits. The one due first is the greatest.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    due: std::cmp::Reverse<(Instant, u64)>,
    link: usize,
    /// Its number on its link.
    number: u64,
    bytes: Vec<u8>,
}

fn run(links: &[Link], shared: &Arc<Shared>, mut rng: Rng) {
    // The sender proves its identity inside the frame, so one socket serves for all.
    let out = UdpSocket::bind((links[0].from.local_addr().unwrap().ip(), 0)).unwrap();
    out.set_nonblocking(true).unwrap();
    let (mut waiting, mut waiting_bytes, mut order) = (BinaryHeap::<Waiting>::new(), 0_usize, 0_u64);
    let mut arrived = vec![0_u64; links.len()];
    let mut delivered = vec![0_u64; links.len()];
    let mut buffer = vec![0; 64 << 10];
    let counts = &shared.counts;
    while !shared.stop.load(Relaxed) {
        let mut send = |link: usize, number: u64, bytes: &[u8]| {
            if links[link].is_cut.load(Relaxed) {
                counts.cut.fetch_add(1, Relaxed);
                return;
            }
            counts.reordered.fetch_add(u64::from(number < delivered[link]), Relaxed);
            delivered[link] = delivered[link].max(number);
            // Nobody may listen there at the moment, or have room: lost, as on any network.
            let _ = out.send_to(bytes, links[link].to);
            counts.passed.fetch_add(1, Relaxed);
        };
        let now = Instant::now();
        while waiting.peek().is_some_and(|first| first.due.0.0 <= now) {
            let Some(due) = waiting.pop() else { unreachable!("it was there") };
            waiting_bytes -= due.bytes.len();
            send(due.link, due.number, &due.bytes);
        }
        let mut idle = true;
        for (index, link) in links.iter().enumerate() {
            for _ in 0..32 {
                let Ok(len) = link.from.recv(&mut buffer) else { break };
                idle = false;
                arrived[index] += 1;
                if rng.chance(shared.lose.load(Relaxed)) {
                    counts.dropped.fetch_add(1, Relaxed);
                    continue;
                }
                let twice = rng.chance(shared.double.load(Relaxed));
                counts.doubled.fetch_add(u64::from(twice), Relaxed);
                for _ in 0..=u8::from(twice) {
                    if !rng.chance(shared.late.load(Relaxed)) || waiting_bytes > WAITING_BYTES_MAX {
                        send(index, arrived[index], &buffer[..len]);
                        continue;
                    }
                    let delay = rng.below(u64::from(shared.late_ms.load(Relaxed)) * 1000);
                    order += 1;
                    waiting_bytes += len;
                    waiting.push(Waiting {
                        due: std::cmp::Reverse((now + Duration::from_micros(delay), order)),
                        link: index,
                        number: arrived[index],
                        bytes: buffer[..len].to_vec(),
                    });
                }
            }
            if let Ok((stream, _)) = link.streams.accept() {
                let (to, is_cut, shared) = (link.to, Arc::clone(&link.is_cut), Arc::clone(shared));
                let own = Rng::new(rng.bits(), Concern::Network);
                std::thread::spawn(move || carry(stream, to, &is_cut, &shared, own));
            }
        }
        if idle {
            let due = waiting.peek().map_or(20, |first| {
                let left = first.due.0.0.saturating_duration_since(Instant::now());
                u16::try_from(left.as_millis()).unwrap_or(20).min(20)
            });
            let datagrams = links.iter().map(|link| PollFd::new(link.from.as_fd(), PollFlags::POLLIN));
            let streams = links.iter().map(|link| PollFd::new(link.streams.as_fd(), PollFlags::POLLIN));
            let mut fds: Vec<PollFd<'_>> = datagrams.chain(streams).collect();
            let _ = poll(&mut fds, PollTimeout::from(due));
        }
    }
}

/// Carries one connection of the side channel, which goes in one direction, until its link is cut, chance breaks
/// it or one of its ends does.
fn carry(mut from: TcpStream, to: SocketAddr, is_cut: &AtomicBool, shared: &Shared, mut rng: Rng) {
    let Ok(mut onward) = TcpStream::connect_timeout(&to, Duration::from_secs(1)) else { return };
    let _ = from.set_nonblocking(false);
    let _ = from.set_read_timeout(Some(Duration::from_millis(50)));
    let _ = onward.set_write_timeout(Some(Duration::from_secs(1)));
    let mut buffer = vec![0; 16 << 10];
    while !shared.stop.load(Relaxed) {
        let len = match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(len) => len,
            Err(error) if is_timeout(&error) && !is_cut.load(Relaxed) => {
                // The next write notices an end that is gone.
                let _ = onward.set_nonblocking(true);
                let gone = onward.read(&mut [0]).is_ok();
                let _ = onward.set_nonblocking(false);
                if gone {
                    return;
                }
                continue;
            }
            Err(_) => return,
        };
        if is_cut.load(Relaxed) || rng.chance(shared.lose.load(Relaxed) / 10) {
            shared.counts.broken.fetch_add(1, Relaxed);
            return; // in the middle of a frame, like as not
        }
        if rng.chance(shared.late.load(Relaxed)) {
            std::thread::sleep(Duration::from_micros(
                rng.below(u64::from(shared.late_ms.load(Relaxed)) * 1000),
            ));
        }
        if onward.write_all(&buffer[..len]).is_err() {
            return;
        }
        shared.counts.carried.fetch_add(u64::try_from(len).unwrap_or(0), Relaxed);
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}
