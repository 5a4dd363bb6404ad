//! The host's side: a network namespace with a tap device, and in it a cluster and its relay.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::shell::read;

/// The host's address at the tap device, and the guest's.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
pub(crate) const GUEST: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
/// The relay's port.
pub(crate) const PORT: u16 = 20490;
/// The exports: the guest's root is root.
const EXPORTS: &str = "fs_exports = \"/(rw,no_root_squash)\"\n";
const PATIENCE: Duration = Duration::from_secs(30);

/// A cluster in a namespace of its own, until this is dropped.
#[derive(Debug)]
pub(crate) struct Host {
    namespace: String,
    processes: Vec<Child>,
}

impl Host {
    /// Starts a new cluster of `program` in the directory `dir`, which is emptied.
    pub(crate) fn start(dir: &Path, program: &Path) -> Result<Self> {
        let _ = fs::remove_dir_all(dir);
        fs::create_dir_all(dir)?;
        let cluster = dir.join("c");
        read(Command::new(program).args(["init", "--service", "fs", "--dir"]).arg(&cluster))?;
        let namespace = format!("quorate-{}", std::process::id());
        ip(&["netns", "add", &namespace]).context("a network namespace: run it as root")?;
        let mut host = Self { namespace: namespace.clone(), processes: Vec::new() };
        let inside = |args: &[&str]| ip(&[&["-n", &namespace], args].concat());
        inside(&["link", "set", "lo", "up"])?;
        inside(&["tuntap", "add", "dev", "tap0", "mode", "tap"])?;
        inside(&["addr", "add", &format!("{SERVER}/24"), "dev", "tap0"])?;
        inside(&["link", "set", "tap0", "up"])?;
        let nodes: Vec<PathBuf> = (0..4).map(|i| cluster.join(format!("replica-{i}"))).collect();
        for node in &nodes {
            settle(node)?;
            host.spawn(program, &[], "replica", node)?;
        }
        let door = cluster.join("client-0");
        settle(&door)?;
        host.spawn(program, &["--listen", &format!("{SERVER}:{PORT}")], "nfs", &door)?;
        let begin = Instant::now();
        while read(host.command("ss").args(["-Hltn", &format!("sport = {PORT}")]))?.trim().is_empty() {
            if begin.elapsed() > PATIENCE {
                bail!("the relay does not listen: see {}", door.join("nfs.log").display());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(host)
    }

    /// Returns a command that runs in the namespace.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(program);
        command
    }

    fn spawn(&mut self, program: &Path, flags: &[&str], what: &str, node: &Path) -> Result<()> {
        let log = File::create(node.join(format!("{what}.log")))?;
        let mut command = self.command(program);
        command.arg(what).arg("--dir").arg(node).args(flags);
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn();
        self.processes.push(child.with_context(|| format!("{what} {}", node.display()))?);
        Ok(())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // `ip netns exec` becomes the program: these are the processes themselves.
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
        let _ = ip(&["netns", "del", &self.namespace]);
    }
}

/// Writes the exports into a node's settings.
fn settle(node: &Path) -> Result<()> {
    let path = node.join("node.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    Ok(fs::write(&path, format!("{EXPORTS}{text}"))?)
}

fn ip(args: &[&str]) -> Result<String> {
    read(Command::new("ip").args(args))
}
