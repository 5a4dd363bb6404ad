//! The baseline of every latency: a datagram there and back, polling and blocking.
//!
//! Blocking between two cores tells what a wake-up costs, polling what the network costs. A latency says
//! little without both.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::processes;

/// How both ends wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Polling,
    Blocking,
}

impl Way {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Polling => "polling",
            Self::Blocking => "blocking",
        }
    }

    pub(crate) fn parse(word: &str) -> Result<Self> {
        match word {
            "polling" => Ok(Self::Polling),
            "blocking" => Ok(Self::Blocking),
            _ => bail!("{word:?} is no way to wait"),
        }
    }
}

/// Bytes of an echo: about a REQUEST of 0/0.
const BYTES: usize = 117;
/// A datagram that has not come back by then is lost.
const LOST: Duration = Duration::from_millis(200);

/// Sends back what comes, until killed: says its address first.
pub(crate) fn serve(way: Way) -> Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_nonblocking(way == Way::Polling)?;
    let lines = processes::ready()?;
    processes::say(&socket.local_addr()?.to_string())?;
    drop(lines);
    let mut buffer = [0; 2048];
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((len, from)) => _ = socket.send_to(buffer.get(..len).unwrap_or(&[]), from)?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Measures so many echoes of a server, in nanoseconds.
pub(crate) fn measure(server: SocketAddr, way: Way, count: usize) -> Result<Vec<u64>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(server)?;
    match way {
        Way::Polling => socket.set_nonblocking(true)?,
        Way::Blocking => socket.set_read_timeout(Some(LOST))?,
    }
    let mut samples = Vec::with_capacity(count);
    let mut buffer = [0; 2048];
    for _ in 0..count {
        let start = Instant::now();
        socket.send(&[7; BYTES])?;
        loop {
            match socket.recv(&mut buffer) {
                Ok(_) => break,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if start.elapsed() > LOST {
                        bail!("an echo was lost");
                    }
                }
                Err(error) => return Err(error).context("the echo server is gone"),
            }
        }
        samples.push(u64::try_from(start.elapsed().as_nanos())?);
    }
    Ok(samples)
}
