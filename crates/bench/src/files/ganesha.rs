//! NFS-Ganesha from Debian: the server that ours is compared with. It runs as a process of the experiment, with its own
//! address and a private portmapper, without which it does not start.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};

use super::client::Place;

/// Where it stores its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    /// In a directory on the disk of the experiment's directories.
    Disk,
    /// In a directory on tmpfs.
    Tmpfs,
    /// In its own memory.
    Mem,
}

/// Its ports, at an address that no other program uses, as in the settings.
const NFS: u16 = 2049;
const MOUNT: u16 = 20048;

/// The required commands, with Debian's packages.
const COMMANDS: [(&str, &str); 4] = [
    ("ganesha.nfsd", "nfs-ganesha"),
    ("rpcbind", "rpcbind"),
    ("unshare", "util-linux"),
    ("setpriv", "util-linux"),
];
/// The directories of modules.
const PLUGINS: [&str; 3] =
    ["/usr/lib/x86_64-linux-gnu/ganesha", "/usr/lib/aarch64-linux-gnu/ganesha", "/usr/lib/ganesha"];

/// Its settings and start script, which the comparisons through a kernel's client use too.
const SETTINGS: &str = include_str!("ganesha.conf");
const START: &str = include_str!("ganesha.sh");

/// A server. Its directories are removed when it is dropped.
#[derive(Debug)]
pub(super) struct Ganesha {
    child: Child,
    dirs: Vec<PathBuf>,
}

impl Store {
    fn module(self) -> (&'static str, &'static str) {
        match self {
            Self::Disk | Self::Tmpfs => ("VFS", "libfsalvfs.so"),
            Self::Mem => ("MEM", "libfsalmem.so"),
        }
    }

    /// Returns what is missing to run it, if anything.
    pub(super) fn missing(self) -> Option<String> {
        if !nix::unistd::geteuid().is_root() {
            return Some("it needs root".to_owned());
        }
        if let Some((command, package)) = COMMANDS.iter().find(|(command, _)| !has(command)) {
            return Some(format!("{command} is missing: apt-get install {package}"));
        }
        let (name, library) = self.module();
        if plugins(library).is_none() {
            let package = format!("nfs-ganesha-{}", name.to_lowercase());
            return Some(format!("{library} is missing: apt-get install {package}"));
        }
        (self == Self::Tmpfs && !super::servers::is_tmpfs(Path::new(SHM)))
            .then(|| format!("{SHM} is not in memory"))
    }
}

/// The parent of directories in memory.
const SHM: &str = "/dev/shm";

impl Ganesha {
    /// Starts a server with its own address. `dir` is for its settings and, on a disk, its files.
    pub(super) fn start(store: Store, ip: IpAddr, dir: &Path) -> Result<(Self, Place)> {
        let (module, library) = store.module();
        let plugins = plugins(library).context("its modules are missing")?;
        let mut dirs = vec![dir.to_path_buf()];
        let export = match store {
            Store::Mem => PathBuf::from("/mem"),
            Store::Disk => dir.join("export"),
            Store::Tmpfs => {
                let name = dir.file_name().context("a directory has a name")?;
                dirs.push(Path::new(SHM).join(name));
                Path::new(SHM).join(name)
            }
        };
        fs::create_dir_all(dir)?;
        if store != Store::Mem {
            fs::create_dir_all(&export)?;
        }
        let export = export.display().to_string();
        let settings = SETTINGS
            .replace("@ADDRESS@", &ip.to_string())
            .replace("@PLUGINS@", plugins)
            .replace("@EXPORT@", &export)
            .replace("@MODULE@", module);
        fs::write(dir.join("ganesha.conf"), settings)?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child"])
            .args(["sh", "-c", START, "sh"])
            .arg(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.join("start.log"))?)
            .spawn()
            .context("NFS-Ganesha does not start")?;
        let place = Place { nfs: SocketAddr::new(ip, NFS), mount: SocketAddr::new(ip, MOUNT), export };
        Ok((Self { child, dirs }, place))
    }

    /// Returns whether it runs.
    pub(super) fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the end of its output.
    pub(super) fn says(&self) -> String {
        let logs =
            self.dirs.first().map(|dir| ["start.log", "rpcbind.log", "ganesha.log"].map(|log| dir.join(log)));
        let texts = logs.into_iter().flatten().filter_map(|log| fs::read_to_string(log).ok());
        let ends = texts.filter_map(|text| Some(text.lines().last()?.to_owned()));
        ends.collect::<Vec<_>>().join("; ")
    }

    /// Returns its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Ganesha {
    fn drop(&mut self) {
        // The server goes with the process that holds it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        for dir in &self.dirs {
            let _ = fs::remove_dir_all(dir);
        }
    }
}

fn plugins(library: &str) -> Option<&'static str> {
    PLUGINS.into_iter().find(|dir| Path::new(dir).join(library).is_file())
}

/// Returns whether a command exists.
pub(super) fn has(command: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]).any(|dir| dir.join(command).is_file())
}
