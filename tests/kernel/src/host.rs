//! The host's side: a network namespace with a tap device, and in it a cluster and its relay.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use xtask::read;

/// The host's address at the tap device, and the guest's.
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
pub(crate) const GUEST: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 2);
/// The relay's port.
pub(crate) const PORT: u16 = 20490;
const PATIENCE: Duration = Duration::from_secs(90);
/// The replicas of the cluster.
pub(crate) const REPLICAS: usize = 4;

/// A cluster in a namespace of its own, until this is dropped.
#[derive(Debug)]
pub(crate) struct Host {
    namespace: String,
    program: PathBuf,
    /// Where `quorate up` has the cluster, and beside it what that says.
    cluster: PathBuf,
    up: Option<Child>,
}

impl Host {
    /// Starts a new cluster of `program` in the directory `dir`, which is emptied. `durability` is what is on disk
    /// before it is promised.
    pub(crate) fn start(dir: &Path, program: &Path, durability: &str) -> Result<Self> {
        let mut host = Self::without_cluster(dir, program)?;
        host.open(&["--durability", durability])?;
        Ok(host)
    }

    /// Makes the namespace alone, and empties the directory `dir`.
    pub(crate) fn without_cluster(dir: &Path, program: &Path) -> Result<Self> {
        let _ = fs::remove_dir_all(dir);
        fs::create_dir_all(dir)?;
        // Several may run at a time, and one process may have several one after the other.
        let namespace = format!("quorate-{}", std::process::id());
        ip(&["netns", "add", &namespace]).context("a network namespace: run it as root")?;
        let program = program.to_path_buf();
        let host = Self { namespace: namespace.clone(), program, cluster: dir.join("c"), up: None };
        let inside = |args: &[&str]| ip(&[&["-n", &namespace], args].concat());
        inside(&["link", "set", "lo", "up"])?;
        inside(&["tuntap", "add", "dev", "tap0", "mode", "tap"])?;
        inside(&["addr", "add", &format!("{SERVER}/24"), "dev", "tap0"])?;
        inside(&["link", "set", "tap0", "up"])?;
        // Nobody uses it, but without one NFS-Ganesha does not take the IPv4 address that it is told, but all.
        inside(&["addr", "add", "fd00:99::1/128", "dev", "lo"])?;
        Ok(host)
    }

    /// Gives the host another address that the guest reaches.
    pub(crate) fn add_address(&self, address: Ipv4Addr) -> Result<()> {
        ip(&["-n", &self.namespace, "addr", "add", &format!("{address}/24"), "dev", "tap0"]).map(drop)
    }

    /// Says whether somebody listens there.
    pub(crate) fn listens(&self, address: Ipv4Addr, port: u16) -> Result<bool> {
        let said = read(self.command("ss").args(["-Hltn", &format!("sport = {port}")]))?;
        // An IPv6 socket has it in brackets.
        let is_it =
            |word: &str| word.contains(&format!("{address}:")) || word.contains(&format!(":{address}]:"));
        Ok(said.split_whitespace().any(is_it))
    }

    /// Starts the cluster, and waits until its relay listens.
    pub(crate) fn open(&mut self, flags: &[&str]) -> Result<()> {
        let said = self.cluster.with_extension("log");
        let log = File::options().create(true).append(true).open(&said)?;
        let mut command = self.command(&self.program);
        command.args(["up", "--nfs", &format!("{SERVER}:{PORT}"), "--dir"]).arg(&self.cluster).args(flags);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.up = Some(command.spawn().with_context(|| format!("{}", self.program.display()))?);
        let begin = Instant::now();
        while !self.listens(SERVER, PORT)? {
            let ended = self.up.as_mut().is_some_and(|up| matches!(up.try_wait(), Ok(Some(_))));
            if ended || begin.elapsed() > PATIENCE {
                bail!("the gateway does not listen: see {}", said.display());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Stops the cluster in order.
    pub(crate) fn close(&mut self) -> Result<()> {
        if let Some(mut up) = self.up.take() {
            let down = self.quorate("down", &[]);
            if down.is_err() {
                let _ = up.kill();
            }
            up.wait()?;
            down?;
        }
        Ok(())
    }

    /// Runs a subcommand on the cluster, and returns what it says.
    pub(crate) fn quorate(&self, what: &str, args: &[&str]) -> Result<String> {
        read(self.command(&self.program).arg(what).args(args).arg("--dir").arg(&self.cluster))
    }

    /// Says how each replica is, in its own words.
    pub(crate) fn replicas(&self) -> Result<Vec<Value>> {
        let mut command = self.command(&self.program);
        command.args(["status", "--json", "--dir"]).arg(&self.cluster);
        // Its status is 1 for what is not healthy.
        let said = command.output()?.stdout;
        let lines = String::from_utf8_lossy(&said)
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<Vec<Value>, _>>()?;
        Ok(lines.into_iter().filter(|line| line.get("replica").is_some()).collect())
    }

    /// Checks the file system of a replica; the cluster does not run.
    pub(crate) fn fsck(&self, replica: usize) -> Result<Value> {
        let mut command = Command::new(&self.program);
        let dir = self.cluster.join(format!("replica-{replica}"));
        let said = command.args(["fs", "--dir"]).arg(dir).args(["fsck", "--json"]).output()?;
        let (out, error) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
        serde_json::from_str(out.trim()).with_context(|| format!("fsck of replica {replica}: {out}{error}"))
    }

    /// Returns a command that runs in the namespace.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(program);
        command
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.close();
        let _ = ip(&["netns", "del", &self.namespace]);
    }
}

fn ip(args: &[&str]) -> Result<String> {
    read(Command::new("ip").args(args))
}
