//! The baseline of every latency: a UDP round trip, polling and blocking.
//!
//! Blocking between two cores shows the cost of a wake-up, polling the cost of the network. A latency says little without
//! both.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::load::{Load, Progress, Sample, Until};
use crate::processes;
use crate::unreplicated::Seal;

/// How both ends wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Polling,
    /// Polling and yielding: the other end is on the same core.
    Yielding,
    Blocking,
}

impl Way {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Polling => "polling",
            Self::Yielding => "yielding",
            Self::Blocking => "blocking",
        }
    }

    pub(crate) fn parse(word: &str) -> Result<Self> {
        let all = [Self::Polling, Self::Yielding, Self::Blocking];
        all.into_iter().find(|way| way.name() == word).with_context(|| format!("{word:?} is no way to wait"))
    }

    fn rest(self) {
        if self == Self::Yielding {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Bytes of an echo: about a REQUEST of 0/0.
const BYTES: usize = 117;
/// A datagram without an answer by then is lost: on a busy machine a process may not run for a second.
const LOST: Duration = Duration::from_secs(10);

/// Prints its address, then sends back every datagram until killed.
pub(crate) fn serve(way: Way, seal: &Seal) -> Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_nonblocking(way != Way::Blocking)?;
    let lines = processes::ready()?;
    processes::say(&socket.local_addr()?.to_string())?;
    let (mut buffer, mut answer) = ([0; 2048], Vec::new());
    // A polling process would take the core from the measured one, so it waits until it is started.
    for line in lines {
        let line = line?;
        let count: usize = line.parse().with_context(|| format!("{line:?} is no number of echoes"))?;
        processes::say("now")?;
        let (mut left, mut since) = (count, Instant::now());
        while left > 0 && since.elapsed() < 2 * LOST {
            match socket.recv_from(&mut buffer) {
                Ok((len, from)) => {
                    let says = seal.open(buffer.get(..len).unwrap_or(&[])).context("not authentic")?;
                    answer.clear();
                    answer.extend_from_slice(says);
                    seal.close(&mut answer);
                    socket.send_to(&answer, from)?;
                    (left, since) = (left - 1, Instant::now());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => way.rest(),
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Measures the echoes of a server that a load requests.
pub(crate) fn measure(server: SocketAddr, way: Way, load: &Load, seal: &Seal) -> Result<Sample> {
    let Until::Ops(count) = load.until else { bail!("echoes are counted") };
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(server)?;
    match way {
        Way::Polling | Way::Yielding => socket.set_nonblocking(true)?,
        Way::Blocking => socket.set_read_timeout(Some(LOST))?,
    }
    let mut progress = Progress::start(load);
    let (mut buffer, mut datagram) = ([0; 2048], Vec::new());
    for _ in 0..count {
        let start = Instant::now();
        datagram.clear();
        datagram.resize(BYTES, 7);
        seal.close(&mut datagram);
        socket.send(&datagram)?;
        loop {
            match socket.recv(&mut buffer) {
                Ok(len) => {
                    seal.open(buffer.get(..len).unwrap_or(&[])).context("not authentic")?;
                    break;
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if start.elapsed() > LOST {
                        bail!("an echo was lost");
                    }
                    way.rest();
                }
                Err(error) => return Err(error).context("the echo server has exited"),
            }
        }
        progress.next(0)?;
    }
    Ok(progress.sample(0))
}
