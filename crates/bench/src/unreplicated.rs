//! NO-REP: the null service without replication, over plain UDP, as the papers' baseline. Nothing is sent
//! again: what is lost is counted.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{setsockopt, sockopt};
use quorate_node::Waiting;
use quorate_service::null;

use crate::micro_throughput::{Load, Progress, WAITING};
use crate::processes;

/// The longest datagram.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;
/// Bytes that the kernel may keep for us until we come.
const BUFFER_BYTES: usize = 4 << 20;
/// Bytes before the operation in a request, and before the result in an answer: the lane and its number.
const HEAD_BYTES: usize = 16;
/// An operation that is not answered by then is lost, and its lane begins the next one.
const LOST: Duration = Duration::from_millis(50);

/// Opens a socket with room for a burst of all clients, as the replicas' have.
fn open() -> Result<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_nonblocking(true)?;
    // The kernel may grant less, which costs datagrams under load and nothing else.
    let _ = setsockopt(&socket, sockopt::RcvBuf, &BUFFER_BYTES);
    Ok(socket)
}

/// Receives one datagram if one is there.
fn receive<'b>(socket: &UdpSocket, buffer: &'b mut [u8]) -> Result<Option<(&'b [u8], SocketAddr)>> {
    match socket.recv_from(buffer) {
        Ok((len, from)) => Ok(Some((buffer.get(..len).unwrap_or(&[]), from))),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionRefused) => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Gives way for a while, and then sleeps until something comes.
fn rest(socket: &UdpSocket, since: Instant, waiting: Waiting) -> Result<()> {
    match waiting {
        Waiting::Poll(patience) if since.elapsed() < Duration::from_nanos(patience) => {
            std::thread::yield_now();
        }
        Waiting::Poll(_) | Waiting::Block => {
            let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::from(1_u8))?;
        }
    }
    Ok(())
}

/// Executes what comes, until killed: says its address first.
pub(crate) fn serve(waiting: Waiting) -> Result<()> {
    let socket = open()?;
    let lines = processes::ready()?;
    processes::say(&socket.local_addr()?.to_string())?;
    drop(lines);
    let (mut buffer, mut answer) = (vec![0; DATAGRAM_BYTES_MAX], Vec::new());
    let mut since = Instant::now();
    loop {
        let Some((datagram, from)) = receive(&socket, &mut buffer)? else {
            rest(&socket, since, waiting)?;
            continue;
        };
        let (head, operation) = datagram.split_at_checked(HEAD_BYTES).context("a short request")?;
        answer.clear();
        answer.extend_from_slice(head);
        answer.resize(HEAD_BYTES + null::result_bytes(operation).context("a wrong request")?, 0);
        // What the kernel does not take is lost.
        let _ = socket.send_to(&answer, from);
        since = Instant::now();
    }
}

/// Keeps the lanes busy with the service at `server` for the time of the load.
pub(crate) fn work(server: SocketAddr, load: &Load) -> Result<()> {
    let socket = open()?;
    socket.connect(server)?;
    let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
    let mut request = vec![0; HEAD_BYTES];
    request.extend_from_slice(&load.operation);
    // A lane's number, and since when it waits for the answer.
    let mut lanes = vec![(0_u64, Instant::now()); usize::from(load.lanes)];
    let mut send = |lane: usize, number: u64| {
        let head = [u64::try_from(lane).unwrap_or(u64::MAX), number].map(u64::to_le_bytes);
        if let Some(room) = request.get_mut(..HEAD_BYTES) {
            room.copy_from_slice(head.as_flattened());
        }
        let _ = socket.send(&request); // what the kernel does not take is lost
    };
    let mut progress = Progress::start(load.lanes);
    (0..lanes.len()).for_each(|lane| send(lane, 0));
    let (start, mut since, mut looked, mut lost) = (Instant::now(), Instant::now(), Instant::now(), 0);
    while start.elapsed() < load.time {
        if looked.elapsed() > LOST / 2 {
            looked = Instant::now();
            for (lane, (number, at)) in
                lanes.iter_mut().enumerate().filter(|(_, (_, at))| at.elapsed() > LOST)
            {
                lost += 1;
                (*number, *at) = (*number + 1, looked);
                send(lane, *number);
            }
        }
        let Some((datagram, _)) = receive(&socket, &mut buffer)? else {
            rest(&socket, since, WAITING)?;
            continue;
        };
        since = Instant::now();
        let (head, result) = datagram.split_first_chunk::<HEAD_BYTES>().context("a short answer")?;
        ensure!(result.len() == load.result, "a result of {} bytes", result.len());
        let (lane, number) = head.split_at(8);
        let lane = usize::try_from(u64::from_le_bytes(lane.try_into()?))?;
        let (current, at) = lanes.get_mut(lane).context("no such lane")?;
        if *current != u64::from_le_bytes(number.try_into()?) {
            continue; // of an operation that was given up
        }
        (*current, *at) = (*current + 1, since);
        let number = *current;
        progress.next(lane, load.time)?;
        send(lane, number);
    }
    progress.say(load.time, lost)
}
