//! Emulated machines as hosts with links: a network namespace for each, joined by a switch (a bridge in a namespace of its
//! own) over pairs of virtual Ethernet devices, whose speed and delay `tc` limits.
//!
//! The namespaces have no name. They last as long as this process has them open, so nothing is left of them, however the
//! process ends.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::sched::{CloneFlags, setns, unshare};

use crate::cable::Cable;

/// The hosts. See the module.
#[derive(Debug)]
pub(super) struct Hosts {
    spaces: Vec<Space>,
    _switch: Space,
}

/// A network namespace.
#[derive(Debug)]
struct Space(File);

impl Space {
    fn new() -> Result<Self> {
        let made = in_a_thread(|| {
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        });
        made.map(Self).context("network namespaces need root: run this as root, or omit --links")
    }

    /// Does something in this namespace. A socket that it opens stays there.
    fn within<T: Send>(&self, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        in_a_thread(|| {
            setns(&self.0, CloneFlags::CLONE_NEWNET)?;
            act()
        })
    }

    /// Runs a command in this namespace: `ip` or `tc`.
    fn run<S: AsRef<str>>(&self, program: &str, arguments: &[S]) -> Result<()> {
        let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        let ran = self.within(|| Command::new(program).args(&arguments).output());
        let ran = ran.with_context(|| format!("`{program}` of iproute2 is needed for --links"))?;
        let line = arguments.join(" ");
        let says = String::from_utf8_lossy(&ran.stderr);
        if line.contains("netem") && says.contains("kind is unknown") {
            bail!("this kernel has no netem (CONFIG_NET_SCH_NETEM), which --delay needs: omit --delay");
        }
        ensure!(ran.status.success(), "{program} {line}: {}", says.trim());
        Ok(())
    }

    fn ip(&self, line: &str) -> Result<()> {
        self.run("ip", &line.split(' ').collect::<Vec<_>>())
    }
}

/// A thread has the namespace that it enters to its end.
fn in_a_thread<T: Send>(act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    std::thread::scope(|scope| scope.spawn(act).join())
        .unwrap_or_else(|_| Err(io::Error::other("a thread has failed")))
}

/// Returns the address of a host.
fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 98, 0, u8::try_from(host + 1).unwrap_or(u8::MAX))
}

impl Hosts {
    /// Makes this number of hosts.
    ///
    /// # Errors
    ///
    /// This process may not make namespaces, `ip` or `tc` is missing, or the kernel lacks what the cable needs.
    pub(super) fn new(count: usize, cable: Cable) -> Result<Self> {
        ensure!(count < 250, "too many hosts");
        let switch = Space::new()?;
        switch.ip("link add name br0 type bridge")?;
        switch.ip("link set br0 up")?;
        let mut spaces = Vec::new();
        for host in 0..count {
            let space = Space::new()?;
            let there = format!("/proc/{}/fd/{}", std::process::id(), space.0.as_raw_fd());
            let port = format!("p{host}");
            switch.ip(&format!("link add name {port} type veth peer name eth0 netns {there}"))?;
            switch.ip(&format!("link set {port} master br0 up"))?;
            switch.run("tc", &cable.discipline(&port, false))?;
            space.ip("link set lo up")?;
            space.ip(&format!("addr add {}/24 dev eth0", address(host)))?;
            space.ip("link set eth0 up")?;
            space.run("tc", &cable.discipline("eth0", true))?;
            spaces.push(space);
        }
        Ok(Self { spaces, _switch: switch })
    }

    fn space(&self, host: usize) -> io::Result<&Space> {
        self.spaces.get(host).ok_or_else(|| io::Error::other(anyhow!("no host {host}")))
    }

    /// Listens at a host.
    pub(super) fn listen(&self, host: usize) -> io::Result<TcpListener> {
        self.space(host)?.within(|| TcpListener::bind((address(host), 0)))
    }

    /// Connects from a host.
    pub(super) fn connect(&self, host: usize, to: std::net::SocketAddr) -> io::Result<TcpStream> {
        self.space(host)?.within(|| TcpStream::connect(to))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::io::{Read, Write};
    use std::time::{Duration, Instant};

    use super::*;

    const CABLE: Cable = Cable { mbit: 100, delay_us: 0 };

    /// Root gets hosts that reach each other at the speed of their links, and that nobody else reaches. Others are told
    /// why there are none.
    #[test]
    fn hosts_are_apart_and_as_fast_as_their_links() {
        let hosts = match Hosts::new(3, CABLE) {
            Ok(hosts) => hosts,
            Err(error) => {
                assert!(!nix::unistd::geteuid().is_root(), "{error:#}");
                assert!(error.to_string().contains("run this as root"), "{error:#}");
                return;
            }
        };
        let listener = hosts.listen(0).unwrap();
        let at = listener.local_addr().unwrap();
        let outside = TcpStream::connect_timeout(&at, Duration::from_millis(200));
        assert!(outside.is_err(), "it is on the machine's own network");
        let mut near = hosts.connect(2, at).unwrap();
        let (mut far, from) = listener.accept().unwrap();
        assert_eq!((at.ip(), from.ip()), (address(0).into(), address(2).into()));
        let begin = Instant::now();
        let bytes = 2_000_000;
        std::thread::scope(|scope| {
            scope.spawn(|| near.write_all(&vec![7; bytes]).unwrap());
            far.read_exact(&mut vec![0; bytes]).unwrap();
        });
        // 160 ms at 100 Mbit/s, less what the token bucket lets through at once.
        assert!(begin.elapsed() > Duration::from_millis(120), "{:?}", begin.elapsed());
    }

    /// A register on hosts of their own is atomic. Without root there are none: see above.
    #[test]
    fn a_cell_runs_on_hosts() {
        use quorate_quorum_sim::cell::Cell;
        use quorate_quorum_sim::history::OperationKind;
        use quorate_quorum_sim::model::Model;

        let mut cell =
            Cell::new(quorate_quorum::Protocol::MinimalC, 1, OperationKind::Write, Model::sim2006(0));
        (cell.load.operations, cell.load.warm_up, cell.load.think) = (3, 1, 2000);
        match crate::bqs::sockets::register(&cell, crate::Signatures::Ed25519, Some(CABLE)) {
            Ok(measured) => assert_eq!((measured.row.verdict, measured.row.latency.len()), (Ok(()), 3)),
            Err(error) => assert!(!nix::unistd::geteuid().is_root(), "{error:#}"),
        }
    }

    /// A delay needs netem, which some kernels lack: then the error says so.
    #[test]
    fn a_delay_counts_once_for_each_message() {
        let hosts = match Hosts::new(2, Cable { delay_us: 20_000, ..CABLE }) {
            Ok(hosts) => hosts,
            Err(error) => {
                let says = error.to_string();
                assert!(says.contains("run this as root") || says.contains("no netem"), "{error:#}");
                return;
            }
        };
        let listener = hosts.listen(0).unwrap();
        let mut near = hosts.connect(1, listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let begin = Instant::now();
        near.write_all(&[1]).unwrap();
        far.read_exact(&mut [0]).unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(20), "{:?}", begin.elapsed());
    }
}
