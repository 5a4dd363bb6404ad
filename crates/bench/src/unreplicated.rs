//! NO-REP: the null service without replication, over plain UDP, as the papers' baseline. It does not retransmit, but counts
//! lost requests. NO-REP+MAC authenticates every message.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use quorate_node::Waiting;
use quorate_service::null;
use quorate_wire::digest::Domains;
use quorate_wire::keys::{Covered, SessionKey, Tag, equal};
use quorate_wire::message::RequestFlags;
use quorate_wire::{ClusterId, Principal, ReplicaId};

use crate::load::{Load, Progress, Sample, Until};
use crate::processes;

/// Maximum length of a datagram.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;
/// Size of the socket's receive buffer, in bytes.
const BUFFER_BYTES: usize = 4 << 20;
/// Bytes before the operation in a request, and before the result in an answer: the lane and its number.
const HEAD_BYTES: usize = 16;
/// An operation without an answer by then is lost, and its lane begins the next one.
const LOST: Duration = Duration::from_millis(50);

/// Authenticates datagrams, if enabled: with a digest of the content and its MAC, like the protocol.
pub(crate) struct Seal(Option<(Domains, SessionKey)>);

impl Seal {
    pub(crate) fn new(is_on: bool) -> Self {
        let cluster = ClusterId([3; 32]);
        let key = || SessionKey::derive(cluster, &[5; 32], (0, 0), (1, 0));
        Self(is_on.then(|| (Domains::new(cluster), key())))
    }

    fn tag((domains, key): &(Domains, SessionKey), datagram: &[u8]) -> Tag {
        let digest = domains.request(0, 0, datagram);
        let flags = RequestFlags { read_only: false, signed: false };
        key.tag(&Covered::request(0, Principal::Replica(ReplicaId(0)), &digest, None, flags, None))
    }

    /// Appends the tag of a datagram to it.
    pub(crate) fn close(&self, datagram: &mut Vec<u8>) {
        if let Some(keys) = &self.0 {
            let tag = Self::tag(keys, datagram);
            datagram.extend_from_slice(&tag);
        }
    }

    /// Returns the content before the tag; none if it is not authentic.
    pub(crate) fn open<'d>(&self, datagram: &'d [u8]) -> Option<&'d [u8]> {
        let Some(keys) = &self.0 else { return Some(datagram) };
        let (says, tag) = datagram.split_last_chunk::<{ size_of::<Tag>() }>()?;
        equal(&Self::tag(keys, says), tag).then_some(says)
    }
}

/// Opens a socket with a buffer for a burst of all clients, like the replicas' sockets.
fn open() -> Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_nonblocking(true)?;
    // The kernel may grant less, which costs datagrams under load and nothing else.
    let _ = setsockopt(&socket, sockopt::RcvBuf, &BUFFER_BYTES);
    Ok(socket)
}

/// Receives one datagram if there is one.
fn receive<'b>(socket: &UdpSocket, buffer: &'b mut [u8]) -> Result<Option<(&'b [u8], SocketAddr)>> {
    match socket.recv_from(buffer) {
        Ok((len, from)) => Ok(Some((buffer.get(..len).unwrap_or(&[]), from))),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Yields for a while, then sleeps until a datagram arrives.
fn rest(socket: &UdpSocket, since: Instant, waiting: Waiting, sleep_ms: u8) -> Result<()> {
    match waiting {
        Waiting::Poll(patience) if since.elapsed() < Duration::from_nanos(patience) => {
            std::thread::yield_now();
        }
        Waiting::Poll(_) | Waiting::Block => {
            let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::from(sleep_ms))?;
        }
    }
    Ok(())
}

/// Prints its address, then executes requests until killed.
pub(crate) fn serve(waiting: Waiting, seal: &Seal) -> Result<()> {
    let socket = open()?;
    let lines = processes::ready()?;
    processes::say(&socket.local_addr()?.to_string())?;
    drop(lines);
    let (mut buffer, mut answer) = (vec![0; DATAGRAM_BYTES_MAX], Vec::new());
    let mut since = Instant::now();
    loop {
        let Some((datagram, from)) = receive(&socket, &mut buffer)? else {
            rest(&socket, since, waiting, u8::MAX)?;
            continue;
        };
        let request = seal.open(datagram).context("received a request that is not authentic")?;
        let (head, operation) = request.split_at_checked(HEAD_BYTES).context("a short request")?;
        answer.clear();
        answer.extend_from_slice(head);
        answer.resize(HEAD_BYTES + null::result_bytes(operation).context("a wrong request")?, 0);
        seal.close(&mut answer);
        // What the kernel does not take is lost.
        let _ = socket.send_to(&answer, from);
        since = Instant::now();
    }
}

/// Keeps the lanes busy with the service at `server` until the load ends.
pub(crate) fn work(server: SocketAddr, load: &Load, waiting: Waiting, seal: &Seal) -> Result<Sample> {
    let socket = open()?;
    socket.connect(server)?;
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let (operation, mut request) = (load.operation(), Vec::new());
    // A lane's number, and since when it waits for the answer.
    let mut lanes = vec![(0_u64, Instant::now()); usize::from(load.lanes)];
    let mut send = |lane: usize, number: u64| {
        request.clear();
        let head = [u64::try_from(lane).unwrap_or(u64::MAX), number].map(u64::to_le_bytes);
        request.extend_from_slice(head.as_flattened());
        request.extend_from_slice(&operation);
        seal.close(&mut request);
        let _ = socket.send(&request); // what the kernel does not take is lost
    };
    let mut progress = Progress::start(load);
    (0..lanes.len()).for_each(|lane| send(lane, 0));
    let (mut since, mut looked, mut lost, mut busy) = (Instant::now(), Instant::now(), 0, lanes.len());
    while busy > 0 && !progress.is_over() {
        if looked.elapsed() > LOST / 2 {
            looked = Instant::now();
            for (lane, (number, at)) in
                lanes.iter_mut().enumerate().filter(|(_, (_, at))| at.elapsed() > LOST)
            {
                lost += 1;
                (*number, *at) = (*number + 1, looked);
                send(lane, *number);
            }
            ensure!(!progress.is_hopeless(), "the service does not answer");
        }
        let Some((datagram, _)) = receive(&socket, &mut buffer)? else {
            rest(&socket, since, waiting, 1)?;
            continue;
        };
        since = Instant::now();
        let answer = seal.open(datagram).context("received an answer that is not authentic")?;
        let (head, result) = answer.split_first_chunk::<HEAD_BYTES>().context("a short answer")?;
        ensure!(result.len() == load.result_len(), "a result of {} bytes", result.len());
        let (lane, number) = head.split_at(8);
        let lane = usize::try_from(u64::from_le_bytes(lane.try_into()?))?;
        let (current, at) = lanes.get_mut(lane).context("no such lane")?;
        if *current != u64::from_le_bytes(number.try_into()?) {
            continue; // of an operation that was given up
        }
        (*current, *at) = (*current + 1, since);
        let number = *current;
        if progress.next(lane)? || matches!(load.until, Until::Ms(_)) {
            send(lane, number);
        } else {
            busy -= 1;
        }
    }
    Ok(progress.sample(lost))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_datagram_is_not_authentic() {
        let mut datagram = b"lane and number".to_vec();
        Seal::new(false).close(&mut datagram);
        assert_eq!(datagram.len(), 15, "without MACs nothing is added");
        let seal = Seal::new(true);
        seal.close(&mut datagram);
        assert_eq!(seal.open(&datagram), Some(&b"lane and number"[..]));
        datagram[2] ^= 1;
        assert_eq!(seal.open(&datagram), None);
    }
}
