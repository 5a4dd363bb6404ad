//! Renames over a file that is open, while the cluster executes them or stands still.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fuser::Errno;
use nix::fcntl::{Flock, FlockArg};
use quorate_fs::settings::{Export, Squash};
use quorate_fs::{Fs, Settings};
use quorate_node::caller::CallerOptions;
use quorate_node::files::{Machine, User};
use quorate_node::{Caller, OpenClient, Waiting};
use quorate_service::{Context, Service, Stop, View};

use crate::cluster::Cluster;
use crate::server::Server;
use crate::table::Table;
use crate::work::{Make, Work};

/// How long a call waits for its answer.
const DEADLINE: Duration = Duration::from_secs(3);
/// How long a call, or the cluster, may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What all replicas do together.
#[derive(Debug, Default)]
struct Gate {
    /// A change that concerns this name stands still.
    closed: AtomicBool,
    /// How many changes the replicas have executed.
    changes: AtomicUsize,
}

/// The file whose changes stand still while the gate is closed.
const NEW: &[u8] = b"new-content";

/// A file system that stands still at a gate.
#[derive(Clone, Debug)]
struct Gated {
    fs: Fs,
    gate: Arc<Gate>,
}

impl Service for Gated {
    fn is_read_only(&self, operation: &[u8]) -> bool {
        self.fs.is_read_only(operation)
    }

    fn execute(
        &self,
        cx: Context,
        operation: &[u8],
        state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let is_change = !self.fs.is_read_only(operation);
        let concerned = is_change && operation.windows(NEW.len()).any(|part| part == NEW);
        while concerned && self.gate.closed.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let outcome = self.fs.execute(cx, operation, state, out);
        self.gate.changes.fetch_add(usize::from(is_change), Ordering::Relaxed);
        outcome
    }
}

/// A mount without a kernel. The gate is open at the end, so that the replicas can stop.
struct Mounted {
    gate: Arc<Gate>,
    work: Work,
    root: Vec<u8>,
    user: User,
    _cluster: Cluster,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.gate.closed.store(false, Ordering::Relaxed);
    }
}

fn mounted() -> Mounted {
    let export = Export { squash: Squash::Nobody, ..Export::of("/") };
    let fs = Fs::new(Settings { exports: vec![export], ..Settings::default() }).unwrap();
    let gate = Arc::new(Gate::default());
    let cluster = Cluster::start(Gated { fs, gate: Arc::clone(&gate) });
    let (drive, socket) = cluster.client(8);
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let lock = Flock::lock(file, FlockArg::LockSharedNonblock).unwrap();
    let client = OpenClient { drive, socket, waiting: Waiting::Block, lock };
    let caller = Caller::start(client, CallerOptions { lanes: 8, deadline: DEADLINE }).unwrap();
    let replicas = cluster.replicas();
    let server = Server::new(caller, Machine::at(0, replicas[0], &replicas), 1);
    let user = User { uid: 1000, gid: 1000, gids: Vec::new() };
    let (root, attributes) = patiently(|| server.root(&User::default(), "/"));
    let work = Work { server, table: Table::new(root.clone(), attributes.fileid) };
    let open = quorate_fs::nfs3::SetAttr { mode: Some(0o777), ..Default::default() };
    patiently(|| work.set(&User::default(), &root, open.clone()));
    Mounted { gate, work, root, user, _cluster: cluster }
}

/// Repeats a call that the busy machine has not answered in time.
fn patiently<T, E: std::fmt::Debug>(mut call: impl FnMut() -> Result<T, E>) -> T {
    let begin = Instant::now();
    loop {
        match call() {
            Ok(done) => return done,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error:?}"),
        }
    }
}

impl Mounted {
    /// Makes a file with its name as its content, and returns its number.
    fn make(&self, name: &[u8], is_open: bool) -> u64 {
        let what = Make::File { exclusive: false, truncate: false };
        let file = patiently(|| self.work.make(&self.user, &self.root, name, 0o644, &what));
        patiently(|| self.work.write(&self.user, &file.handle, 0, name));
        let number = self.work.table.note(file.attributes.fileid, &file.handle);
        if is_open {
            self.work.table.opened(number);
        }
        number
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        self.work.rename(&self.user, (&self.root, from), (&self.root, to))
    }

    /// Returns the content of the file with this name.
    fn content(&self, name: &[u8]) -> Result<Vec<u8>, Errno> {
        let file = self.work.look(&self.user, &self.root, name)?;
        self.work.read(&self.user, &file.handle, 0, 100)
    }

    /// Returns the names in the root.
    fn names(&self) -> Vec<String> {
        let (entries, _) = patiently(|| self.work.list(&self.user, &self.root, 0));
        let mut names: Vec<String> =
            entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
        names.retain(|name| name != "." && name != "..");
        names.sort();
        names
    }
}

/// A rename over an open file, without an answer, takes effect later: nobody takes the name from the renamed file.
#[test]
fn a_rename_that_takes_effect_late_keeps_the_new_content() {
    let mounted = mounted();
    let (old, _) = (mounted.make(b"old", true), mounted.make(NEW, false));
    mounted.gate.closed.store(true, Ordering::Relaxed);
    let before = mounted.gate.changes.load(Ordering::Relaxed);
    assert_eq!(mounted.rename(NEW, b"old"), Err(Errno::ETIMEDOUT));
    mounted.gate.closed.store(false, Ordering::Relaxed);
    // The file was hidden, renamed over, and was to have its name again: three changes at each of four replicas.
    let begin = Instant::now();
    while mounted.gate.changes.load(Ordering::Relaxed) < before + 12 {
        assert!(begin.elapsed() < PATIENCE, "{} changes", mounted.gate.changes.load(Ordering::Relaxed));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(patiently(|| mounted.content(b"old")), NEW);
    // What was there before can still be read by those who have it open.
    let handle = mounted.work.table.handle(old).unwrap();
    assert_eq!(patiently(|| mounted.work.read(&mounted.user, &handle, 0, 100)), b"old");
    mounted.work.close(old);
    assert_eq!(patiently(|| mounted.content(b"old")), NEW);
}

/// A rename that is refused leaves the open file with its name, also if its user closes it.
#[test]
fn a_rename_that_is_refused_changes_nothing() {
    let mounted = mounted();
    let old = mounted.make(b"old", true);
    patiently(|| match mounted.work.make(&mounted.user, &mounted.root, b"dir", 0o755, &Make::Dir) {
        Err(Errno::EEXIST) | Ok(_) => Ok(()),
        Err(errno) => Err(errno),
    });
    assert_eq!(mounted.rename(b"dir", b"old"), Err(Errno::EEXIST));
    assert_eq!(patiently(|| mounted.content(b"old")), b"old");
    mounted.work.close(old);
    assert_eq!(mounted.names(), ["dir", "old"]);
    assert_eq!(patiently(|| mounted.content(b"old")), b"old");
}
