//! Connections of a cell: TCP on loopback or between hosts, one for each pair that talks, a length before each frame (ADR 14).

use std::io::{self, IoSlice, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{MsgFlags, recv};
use nix::sys::time::TimeSpec;

use super::hosts::Hosts;

/// No frame is longer: the largest has a value of 64 bytes and three certificates with RSA.
const FRAME_MAX: usize = 1 << 20;

/// A process' end of its connections, by the number of the other process.
#[derive(Debug)]
pub(super) struct Ends {
    streams: Vec<(usize, TcpStream, Vec<u8>)>,
    /// Which stream is asked first.
    turn: usize,
}

/// Connects processes on these machines, of which the first `servers` are servers: clients do not talk to each other.
pub(super) fn connect(servers: usize, machines: &[usize], hosts: Option<&Hosts>) -> io::Result<Vec<Ends>> {
    let all = machines.len();
    let mut ends: Vec<Ends> = (0..all).map(|_| Ends { streams: Vec::new(), turn: 0 }).collect();
    for (server, machine) in machines.iter().enumerate().take(servers) {
        let listener = match hosts {
            Some(hosts) => hosts.listen(*machine)?,
            None => TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?,
        };
        let at = listener.local_addr()?;
        for (other, machine) in machines.iter().enumerate().skip(server + 1) {
            let near = match hosts {
                Some(hosts) => hosts.connect(*machine, at)?,
                None => TcpStream::connect(at)?,
            };
            let (far, from) = listener.accept()?;
            if near.local_addr()? != from {
                return Err(io::Error::other("a stranger connected"));
            }
            for (own, stream, peer) in [(other, near, server), (server, far, other)] {
                stream.set_nodelay(true)?;
                if let Some(end) = ends.get_mut(own) {
                    end.streams.push((peer, stream, Vec::new()));
                }
            }
        }
    }
    Ok(ends)
}

impl Ends {
    /// Sends a frame. Frames are short and few, so that a socket always has room.
    pub(super) fn send(&mut self, to: usize, frame: &[u8]) -> io::Result<()> {
        let Some((_, stream, _)) = self.streams.iter_mut().find(|(peer, ..)| *peer == to) else {
            return Ok(()); // clients do not talk to each other
        };
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX).to_le_bytes();
        let sent = stream.write_vectored(&[IoSlice::new(&length), IoSlice::new(frame)])?;
        if sent < length.len() + frame.len() {
            let rest: Vec<u8> = length.iter().chain(frame).skip(sent).copied().collect();
            stream.write_all(&rest)?;
        }
        Ok(())
    }

    /// Returns a frame that has come, from every stream in turn.
    pub(super) fn receive(&mut self) -> io::Result<Option<(usize, Vec<u8>)>> {
        let count = self.streams.len();
        for step in 0..count {
            let place = (self.turn + step) % count;
            let Some((peer, stream, buffer)) = self.streams.get_mut(place) else { continue };
            let mut chunk = [0; 4096];
            loop {
                if let Some(frame) = take(buffer)? {
                    self.turn = place + 1;
                    return Ok(Some((*peer, frame)));
                }
                match recv(stream.as_raw_fd(), &mut chunk, MsgFlags::MSG_DONTWAIT) {
                    Ok(0) | Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::ECONNRESET) => break,
                    Ok(len) => buffer.extend_from_slice(chunk.get(..len).unwrap_or(&[])),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(None)
    }

    /// Waits until something has come, or for some time.
    pub(super) fn wait(&self, at_most: Duration) -> io::Result<()> {
        let mut all: Vec<PollFd<'_>> = self
            .streams
            .iter()
            .map(|(_, stream, _)| PollFd::new(stream.as_fd(), PollFlags::POLLIN))
            .collect();
        match ppoll(&mut all, Some(TimeSpec::from_duration(at_most)), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Takes a whole frame out of what has come.
fn take(buffer: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let Some((length, rest)) = buffer.split_first_chunk() else { return Ok(None) };
    let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > FRAME_MAX {
        return Err(io::Error::other("a frame is too long"));
    }
    let Some(frame) = rest.get(..length).map(<[u8]>::to_vec) else { return Ok(None) };
    buffer.drain(..4 + length);
    Ok(Some(frame))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_whole_and_in_order() {
        let mut ends = connect(2, &[0, 1, 2, 3], None).unwrap();
        for count in 0..50_u8 {
            ends[3].send(1, &vec![count; usize::from(count) * 200]).unwrap();
        }
        ends[3].send(2, &[1]).unwrap();
        let mut received = 0;
        while received < 50 {
            match ends[1].receive().unwrap() {
                Some((from, frame)) => {
                    assert_eq!((from, frame), (3, vec![received; usize::from(received) * 200]));
                    received += 1;
                }
                None => ends[1].wait(Duration::from_millis(5)).unwrap(),
            }
        }
        assert!(ends[2].receive().unwrap().is_none(), "two clients");
        let mut long = vec![255; 8];
        assert!(take(&mut long).is_err());
    }
}
