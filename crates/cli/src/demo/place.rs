//! How the demo reaches its files: through a mount, or, if this machine cannot mount, through a client in this
//! process.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use quorate_node::Caller;
use quorate_node::caller::{CallError, CallerOptions};
use quorate_node::files::{FileEntry, Files, FilesError, Machine};
use quorate_node::settings::ServiceName;

use super::load::Done;
use super::usage::{PATIENCE, quorate, terminate};
use crate::code::Code;
use crate::fs::{own_user, since_1970};
use crate::node::open_client;

/// Maximum number of calls in progress.
const LANES: u16 = 32;

/// The file system that the demo uses. Paths begin at its root.
pub(super) trait Place: std::fmt::Debug + Send + Sync {
    /// Returns the mount point, if there is one.
    fn mounted_on(&self) -> Option<&Path>;

    fn make_directory(&self, path: &str) -> Result<(), String>;

    fn write(&self, path: &str, data: &[u8]) -> Result<(), String>;

    fn read(&self, path: &str) -> Result<Vec<u8>, String>;

    fn names(&self, path: &str) -> Result<BTreeSet<String>, String>;

    /// Creates an empty file that does not exist yet.
    fn add(&self, path: &str) -> io::Result<Done>;
}

/// Mounts the file system of the client's cluster on a directory in `beside`, or opens it without a mount if this
/// machine cannot mount.
pub(super) fn open(client: &Path, beside: &Path) -> Result<Box<dyn Place>, String> {
    match Mounted::start(client, beside)? {
        Some(mounted) => Ok(Box::new(mounted)),
        None => Ok(Box::new(Own::open(client)?)),
    }
}

/// A process of `quorate mount`, until this is dropped.
#[derive(Debug)]
struct Mounted {
    process: Child,
    on: PathBuf,
}

impl Mounted {
    fn start(client: &Path, beside: &Path) -> Result<Option<Self>, String> {
        let (on, log) = (beside.join("mnt"), beside.join("mount.txt"));
        let said = || fs::read_to_string(&log).unwrap_or_default();
        let file = fs::create_dir_all(&on).and_then(|()| File::create(&log));
        let file = file.map_err(|error| format!("{}: {error}", log.display()))?;
        let mut command = quorate().map_err(|failure| failure.what)?;
        let wait = format!("{}s", PATIENCE.as_secs());
        command.args(["mount", "--wait", &wait, "--dir"]).arg(client).arg(&on);
        command.stdout(file.try_clone().map_err(|error| error.to_string())?).stderr(file);
        let process = command.spawn().map_err(|error| format!("quorate mount: {error}"))?;
        let (mut mounted, begin) = (Self { process, on }, Instant::now());
        while !said().contains("mounted on") {
            let ended = matches!(mounted.process.try_wait(), Ok(Some(_)));
            if ended && said().contains(&Code::NoFuse.to_string()) {
                return Ok(None);
            }
            if ended || begin.elapsed() > PATIENCE {
                return Err(format!("quorate mount: {}", said().trim_end().replace('\n', " ")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Some(mounted))
    }

    fn at<T>(&self, path: &str, act: impl FnOnce(&Path) -> io::Result<T>) -> Result<T, String> {
        act(&self.on.join(path)).map_err(|error| format!("{path}: {error}"))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        terminate(&mut self.process, || ());
    }
}

impl Place for Mounted {
    fn mounted_on(&self) -> Option<&Path> {
        Some(&self.on)
    }

    fn make_directory(&self, path: &str) -> Result<(), String> {
        self.at(path, |path| fs::create_dir(path))
    }

    fn write(&self, path: &str, data: &[u8]) -> Result<(), String> {
        self.at(path, |path| fs::write(path, data))
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        self.at(path, |path| fs::read(path))
    }

    fn names(&self, path: &str) -> Result<BTreeSet<String>, String> {
        let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
        self.at(path, |path| fs::read_dir(path)?.map(name).collect())
    }

    fn add(&self, path: &str) -> io::Result<Done> {
        match File::create_new(self.on.join(path)) {
            Ok(_) => Ok(Done::Acknowledged),
            Err(error) if error.raw_os_error() == Some(Errno::ETIMEDOUT as i32) => Ok(Done::Unknown),
            Err(error) => Err(error),
        }
    }
}

/// A client in this process.
#[derive(Debug)]
struct Own(Files);

impl Own {
    fn open(client: &Path) -> Result<Self, String> {
        let node = open_client(client, ServiceName::FS).map_err(|failure| failure.what)?;
        let options = CallerOptions { lanes: LANES, deadline: PATIENCE };
        let machine = Machine::of(&node);
        let caller = Caller::start(node.with_lanes(LANES), options).map_err(|trouble| trouble.what)?;
        let first = std::process::id() ^ since_1970();
        let files = Files::open(caller, machine, &own_user(), "/", first);
        Ok(Self(files.map_err(|error| error.to_string())?))
    }

    /// Returns the handle of a path's parent directory, and the last component.
    fn parent<'p>(&self, path: &'p str) -> Result<(Vec<u8>, &'p str), FilesError> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.0.find(dir, false)?, name))
    }

    fn create(&self, path: &str) -> Result<Vec<u8>, FilesError> {
        let (dir, name) = self.parent(path)?;
        self.0.create(&dir, name, 0o644)
    }
}

/// Adds the path to an error.
fn of(path: &str) -> impl Fn(FilesError) -> String {
    move |error| format!("{path}: {error}")
}

impl Place for Own {
    fn mounted_on(&self) -> Option<&Path> {
        None
    }

    fn make_directory(&self, path: &str) -> Result<(), String> {
        let (dir, name) = self.parent(path).map_err(of(path))?;
        self.0.make_directory(&dir, name, 0o755).map_err(of(path))
    }

    fn write(&self, path: &str, mut data: &[u8]) -> Result<(), String> {
        let file = self.create(path).map_err(of(path))?;
        self.0.write_from(&file, &mut data).map(drop).map_err(of(path))
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let mut data = Vec::new();
        let read = self.0.find(path, false).and_then(|file| self.0.read_to(&file, &mut data));
        read.map(|_| data).map_err(of(path))
    }

    fn names(&self, path: &str) -> Result<BTreeSet<String>, String> {
        let mut names = BTreeSet::new();
        let each = |entry: FileEntry| _ = names.insert(String::from_utf8_lossy(&entry.name).into_owned());
        self.0.find(path, false).and_then(|dir| self.0.list(&dir, each)).map_err(of(path))?;
        Ok(names)
    }

    fn add(&self, path: &str) -> io::Result<Done> {
        match self.create(path) {
            Ok(_) => Ok(Done::Acknowledged),
            Err(FilesError::Call(CallError::Unknown { .. })) => Ok(Done::Unknown),
            Err(FilesError::Call(CallError::Busy)) => Ok(Done::Nothing),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }
}
