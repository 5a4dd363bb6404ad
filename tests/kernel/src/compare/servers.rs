//! The servers that are compared: each is an NFS server in the host's namespace, with its own address.
//!
//! They are those of `quorate bench run fs-postmark`, behind a real client instead of one of ours.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::processor;
use crate::host::{Host, PORT, REPLICAS};
use crate::machine::{Export, has};
use xtask::read;

/// NFS-Ganesha's settings and its start, as in the experiments.
const SETTINGS: &str = include_str!("../../../../crates/bench/src/files/ganesha.conf");
const START: &str = include_str!("../../../../crates/bench/src/files/ganesha.sh");
const GANESHA_PORT: u16 = 2049;
const GANESHA_MOUNT: u16 = 20048;
const PLUGINS: &str = "/usr/lib/x86_64-linux-gnu/ganesha";
const SHM: &str = "/dev/shm";
/// How long a process polls before it sleeps. There are fewer cores than processes: a process that polls for long
/// keeps the guest off its core, and where all sleep, each message waits until a core has woken up. So each arm has its
/// fastest value: a single process sleeps soon, and five that wait for one another poll longer.
const POLL_ALONE: &str = "20us";
const POLL_OF_MANY: &str = "200us";
/// The last part of the first server's address.
const FIRST: u8 = 10;
const PATIENCE: Duration = Duration::from_secs(60);

/// A kind of server. Ours name their durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arm {
    /// The file system on four replicas behind a gateway.
    Bfs(Reads, &'static str),
    /// The same service behind the same gateway, without replicas.
    Alone(&'static str),
    /// NFS-Ganesha.
    Ganesha(Store),
}

/// What goes the short way, and when reading changes a file's time of last access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// All that only reads; as the load has it.
    Default,
    /// GETATTR alone; with every read: BFS-strict [OSDI99 §7.3].
    Strict,
    /// LOOKUP as well.
    Lookup,
}

impl Reads {
    pub(crate) fn system(self) -> &'static str {
        match self {
            Self::Default => "bfs",
            Self::Strict => "bfs-strict",
            Self::Lookup => "bfs-ro-lookup",
        }
    }

    /// Returns the settings of a cluster, for `init --set`; `atime` is the load's.
    fn settings(self, atime: &str) -> [String; 2] {
        let (read_only, atime) = match self {
            Self::Default => ("all", atime),
            Self::Strict => ("getattr", "strict"),
            Self::Lookup => ("getattr lookup", "strict"),
        };
        [format!("fs_read_only={read_only}"), format!("fs_atime={atime}")]
    }
}

/// Where NFS-Ganesha keeps its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    Disk,
    Tmpfs,
    Mem,
}

impl Arm {
    /// Returns what it is called: the system, and which of them.
    pub(crate) fn names(self, dir: &Path) -> (&'static str, String) {
        match self {
            Self::Bfs(reads, durability) => (reads.system(), durability.to_owned()),
            Self::Alone(durability) => ("bfs-nr", durability.to_owned()),
            Self::Ganesha(Store::Disk) => ("ganesha", format!("VFS on {}", file_system(dir))),
            Self::Ganesha(Store::Tmpfs) => ("ganesha", "VFS on tmpfs".to_owned()),
            Self::Ganesha(Store::Mem) => ("ganesha", "MEM".to_owned()),
        }
    }

    pub(crate) fn durability(self) -> Option<&'static str> {
        match self {
            Self::Bfs(_, durability) | Self::Alone(durability) => Some(durability),
            Self::Ganesha(_) => None,
        }
    }

    /// Says why it cannot be run here, if so.
    pub(crate) fn missing(self, dir: &Path) -> Option<String> {
        let Self::Ganesha(store) = self else { return None };
        let (module, library) = store.module();
        for (command, package) in [("ganesha.nfsd", "nfs-ganesha"), ("rpcbind", "rpcbind")] {
            if !has(command) {
                return Some(format!("there is no {command}: apt-get install {package}"));
            }
        }
        if !Path::new(PLUGINS).join(library).is_file() {
            let package = format!("nfs-ganesha-{}", module.to_lowercase());
            return Some(format!("there is no {library}: apt-get install {package}"));
        }
        match store {
            Store::Disk if file_system(dir) == "tmpfs" => {
                Some(format!("{} is in memory: name another --dir", dir.display()))
            }
            Store::Tmpfs if file_system(Path::new(SHM)) != "tmpfs" => Some(format!("{SHM} is not in memory")),
            Store::Disk | Store::Tmpfs | Store::Mem => None,
        }
    }
}

impl Store {
    fn module(self) -> (&'static str, &'static str) {
        match self {
            Self::Disk | Self::Tmpfs => ("VFS", "libfsalvfs.so"),
            Self::Mem => ("MEM", "libfsalmem.so"),
        }
    }
}

/// A server that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) arm: Arm,
    pub(crate) system: &'static str,
    pub(crate) variant: String,
    pub(crate) export: Export,
    children: Vec<Child>,
    /// What goes with it beside its directory.
    shm: Option<PathBuf>,
}

/// What all servers have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conditions<'a> {
    pub(crate) host: &'a Host,
    pub(crate) program: &'a Path,
    pub(crate) dir: &'a Path,
    /// Ours alone: when reading changes a file's time of last access.
    pub(crate) atime: &'static str,
    /// Options of the mount.
    pub(crate) options: &'a str,
}

impl Server {
    /// Starts the server of this number, and waits until it listens.
    pub(crate) fn start(on: Conditions<'_>, arm: Arm, number: u8) -> Result<Self> {
        let server = Ipv4Addr::new(10, 99, 0, FIRST + number);
        on.host.add_address(server)?;
        let dir = on.dir.join(format!("server-{number}"));
        fs::create_dir_all(&dir)?;
        let (system, variant) = arm.names(on.dir);
        let export = Export {
            server,
            port: PORT,
            mount_port: PORT,
            path: "/".to_owned(),
            options: on.options.to_owned(),
        };
        let mut started = Self { arm, system, variant, export, children: Vec::new(), shm: None };
        match arm {
            Arm::Bfs(reads, durability) => {
                let cluster = started.init(on, &dir, (reads, POLL_OF_MANY), durability)?;
                for replica in 0..REPLICAS {
                    let home = cluster.join(format!("replica-{replica}"));
                    started.spawn(on, &dir, &["replica", "--dir"], &home, &[])?;
                }
                started.open(on, &dir, &cluster, &[])?;
            }
            Arm::Alone(durability) => {
                let cluster = started.init(on, &dir, (Reads::Default, POLL_ALONE), "memory")?;
                started.open(on, &dir, &cluster, &["--unreplicated", "--durability", durability])?;
            }
            Arm::Ganesha(store) => started.ganesha(on, &dir, store)?,
        }
        started.wait(on, &dir)?;
        Ok(started)
    }

    /// Returns what it is called in a table.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.system, self.variant)
    }

    /// Returns the seconds of processor time that its processes have had.
    pub(crate) fn processor_s(&self) -> f64 {
        processor::seconds(&self.children.iter().map(Child::id).collect::<Vec<_>>())
    }

    /// Makes the directories of a cluster.
    fn init(
        &self,
        on: Conditions<'_>,
        dir: &Path,
        (reads, poll): (Reads, &str),
        durability: &str,
    ) -> Result<PathBuf> {
        let cluster = dir.join("cluster");
        let mut command = Command::new(on.program);
        command.args(["init", "--service", "fs", "--clients", "1", "--durability", durability]);
        let chosen = [format!("poll={poll}"), "fs_exports=/(rw,no_root_squash)".to_owned()];
        for set in chosen.iter().chain(&reads.settings(on.atime)) {
            command.args(["--set", set]);
        }
        read(command.args(["--host", &format!("{}:7000", self.export.server)]).arg("--dir").arg(&cluster))?;
        Ok(cluster)
    }

    fn open(&mut self, on: Conditions<'_>, dir: &Path, cluster: &Path, flags: &[&str]) -> Result<()> {
        let listen = format!("{}:{PORT}", self.export.server);
        self.spawn(on, dir, &["nfs", "--listen", &listen, "--dir"], &cluster.join("client-0"), flags)
    }

    /// Starts a process of our program in the namespace, which dies with this one.
    fn spawn(
        &mut self,
        on: Conditions<'_>,
        dir: &Path,
        words: &[&str],
        home: &Path,
        flags: &[&str],
    ) -> Result<()> {
        let log = File::create(dir.join(format!("{}.log", self.children.len())))?;
        let mut command = on.host.command("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(on.program).args(words).arg(home).args(flags);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.children.push(command.spawn().with_context(|| format!("{}", on.program.display()))?);
        Ok(())
    }

    fn ganesha(&mut self, on: Conditions<'_>, dir: &Path, store: Store) -> Result<()> {
        let (module, _) = store.module();
        let files = match store {
            Store::Disk => dir.join("export"),
            Store::Tmpfs => Path::new(SHM).join(format!("quorate-kernel-{}", std::process::id())),
            Store::Mem => PathBuf::from("/mem"),
        };
        if store != Store::Mem {
            fs::create_dir_all(&files)?;
        }
        self.shm = (store == Store::Tmpfs).then(|| files.clone());
        let settings = SETTINGS
            .replace("@ADDRESS@", &self.export.server.to_string())
            .replace("@PLUGINS@", PLUGINS)
            .replace("@EXPORT@", &files.display().to_string())
            .replace("@MODULE@", module);
        fs::write(dir.join("ganesha.conf"), settings)?;
        let mut command = on.host.command("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"]);
        command.args(["sh", "-c", START, "sh"]).arg(dir);
        let log = File::create(dir.join("0.log"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.children.push(command.spawn().context("NFS-Ganesha does not start")?);
        (self.export.port, self.export.mount_port) = (GANESHA_PORT, GANESHA_MOUNT);
        self.export.path = files.display().to_string();
        Ok(())
    }

    /// Waits until it listens.
    fn wait(&mut self, on: Conditions<'_>, dir: &Path) -> Result<()> {
        let begin = Instant::now();
        let Export { server, port, mount_port, .. } = self.export.clone();
        while !(on.host.listens(server, port)? && on.host.listens(server, mount_port)?) {
            let ended = self.children.iter_mut().any(|child| !matches!(child.try_wait(), Ok(None)));
            if ended || begin.elapsed() > PATIENCE {
                let how = if ended { "a process of it has ended" } else { "it does not listen" };
                bail!("{how}: see the logs in {}", dir.display());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(shm) = &self.shm {
            let _ = fs::remove_dir_all(shm);
        }
    }
}

/// Returns the name of the file system that a directory is on.
fn file_system(dir: &Path) -> String {
    let found = read(Command::new("findmnt").args(["-no", "FSTYPE", "-T"]).arg(dir)).unwrap_or_default();
    found.lines().next().map_or_else(|| "a disk".to_owned(), str::to_owned)
}
