//! Servers that a task starts on loopback.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// How long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Servers that run, and end with this.
#[derive(Default)]
pub(crate) struct Servers(Vec<Child>);

impl Servers {
    /// Starts a server, which also ends if this process is killed.
    pub(crate) fn start(&mut self, command: &mut Command) -> Result<()> {
        let words = [command.get_program()].into_iter().chain(command.get_args());
        let mut whole = Command::new("setpriv");
        whole.args(["--pdeathsig", "TERM"]).args(words).stdin(Stdio::null()).stdout(Stdio::null());
        let child = whole.spawn();
        self.0.push(child.with_context(|| format!("cannot start {}", command.get_program().display()))?);
        Ok(())
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // `up` stops its processes when it is asked to.
            let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

/// Returns the command that starts a new cluster of this `quorate`, with a key-value store and a RESP gateway.
/// The `host` is an address of loopback for the ports of replicas and clients, which nobody else is likely to use.
pub(crate) fn up(
    quorate: &OsStr,
    data: &Path,
    host: &str,
    durability: &str,
    gateway: u16,
) -> Result<Command> {
    let _ = fs::remove_dir_all(data);
    let (resp, page) = (format!("127.0.0.1:{gateway}"), format!("127.0.0.1:{}", free_port()?));
    let mut up = Command::new(quorate);
    up.args(["up", "--service", "kv", "--durability", durability, "--host", host, "--dir"]).arg(data);
    up.args(["--resp", &resp, "--status", &page]);
    Ok(up)
}

/// Returns a port of loopback that is free now.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

pub(crate) fn listens(port: u16) -> Result<()> {
    let begin = Instant::now();
    while TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).is_err() {
        if begin.elapsed() > PATIENCE {
            bail!("nothing listens on port {port} after {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
