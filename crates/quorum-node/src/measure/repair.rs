//! How long the repair of a server takes that lost its disk (§15): a register of four servers on loopback, each a thread
//! with its own disk, is filled; one server is stopped, its disk is removed, and it starts again.
//!
//! The repair counts only if the register shows it: after it another server is stopped, so that no quorum is left
//! without the repaired one, and keys are read.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quorate_node::error::NodeErrorKind;
use quorate_node::init::Host;
use quorate_node::{Clock, Idle, NodeError};
use quorate_quorum::step::{Call, Outcome};
use quorate_quorum::{ObjectId, Protocol, ServerId, Value};

use crate::client::ClientOptions;
use crate::core::Core;
use crate::init::server_dir;
use crate::link::Carrier;
use crate::note::State;
use crate::{Client, Config, NewRegister, Server};

/// Operations of the client at once.
const WINDOW: usize = 64;
/// Keys that are read at the end.
const READS_MAX: u32 = 1000;
/// How often the server is asked whether it is repaired.
const LOOK: Duration = Duration::from_millis(20);
/// No operation takes longer, and no repair goes on for so long without a key that comes.
const HUNG: Duration = Duration::from_secs(60);
/// The server that loses its disk.
const WIPED: usize = 3;
/// The server that is stopped before keys are read.
const STOPPED: usize = 0;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct RepairPlan {
    /// The register.
    pub protocol: Protocol,
    /// Keys, each written once.
    pub keys: u32,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// The address of the servers, all of whose ports are free.
    pub ip: IpAddr,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct RepairFigures {
    /// From the start of the server without its disk until it answers.
    pub took: Duration,
    /// Of that, until it took part in the register: the opening of its sockets and files.
    pub opened: Duration,
    /// How long the client took to write all keys.
    pub filled: Duration,
    /// What the server said of itself once it was repaired.
    pub state: State,
    /// Keys that were read with its help.
    pub read: u32,
}

/// A server that runs in a thread.
struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), NodeError>>,
}

impl Running {
    fn start(dir: &Path, id: usize) -> Result<Self, NodeError> {
        let server = Server::open(&server_dir(dir, ServerId::at(id)), None, Carrier::Udp)?;
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        Ok(Self { stop, thread: std::thread::spawn(move || server.run(&flag)) })
    }

    fn end(self) -> Result<(), NodeError> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .unwrap_or_else(|_| Err(NodeError::new(NodeErrorKind::Rule, "a server has panicked")))
    }
}

/// Measures a repair in a directory of its own, which is removed at the end.
///
/// # Errors
///
/// The directory or the ports are not available, an operation did not end, or the server was not repaired.
pub fn repair(plan: RepairPlan, dir: &Path) -> Result<RepairFigures, NodeError> {
    let register = NewRegister {
        f: 1,
        hosts: vec![Host { ip: plan.ip, port: None }],
        clients: 2,
        config: Config::new(plan.protocol),
        lines: vec!["poll = \"0ms\"".to_owned()],
        server_lines: vec!["durability = \"sync\"".to_owned()],
    };
    register.make(dir)?;
    let mut servers = BTreeMap::new();
    let measured = run(plan, dir, &mut servers);
    let ended = servers.into_values().map(Running::end).fold(Ok(()), Result::and);
    let _ = std::fs::remove_dir_all(dir);
    measured.and_then(|figures| ended.map(|()| figures))
}

fn run(
    plan: RepairPlan,
    dir: &Path,
    servers: &mut BTreeMap<usize, Running>,
) -> Result<RepairFigures, NodeError> {
    for id in 0..4 {
        servers.insert(id, Running::start(dir, id)?);
    }
    let mut user = User { core: Core::open(&dir.join("client-0"), Carrier::Udp)?, clock: Clock::new() };
    let watcher = Client::open(&dir.join("client-1"), ClientOptions::default())?;
    let begin = Instant::now();
    user.all(0..plan.keys, &mut |key| Call::Write(value(plan, key)), &mut |_, _| Ok(()))?;
    let filled = begin.elapsed();
    if let Some(server) = servers.remove(&WIPED) {
        server.end()?;
    }
    let place: PathBuf = server_dir(dir, ServerId::at(WIPED)).join("state");
    std::fs::remove_dir_all(&place)
        .map_err(|error| NodeError::new(NodeErrorKind::Unwritable, error.to_string()).in_file(&place))?;
    let begin = Instant::now();
    servers.insert(WIPED, Running::start(dir, WIPED)?);
    let opened = begin.elapsed();
    let state = await_repaired(&watcher)?;
    let took = begin.elapsed();
    if state.objects < u64::from(plan.keys) {
        let what = format!("the server counts as repaired with {} of {} keys", state.objects, plan.keys);
        return Err(NodeError::new(NodeErrorKind::Rule, what));
    }
    if let Some(server) = servers.remove(&STOPPED) {
        server.end()?;
    }
    let step = (plan.keys / READS_MAX).max(1);
    let mut read = 0;
    user.all(
        (0..plan.keys).step_by(usize::try_from(step).unwrap_or(1)),
        &mut |_| Call::Read,
        &mut |key, outcome| {
            read += 1;
            if outcome.value == value(plan, key) {
                return Ok(());
            }
            Err(NodeError::new(
                NodeErrorKind::Rule,
                format!("key {key} has another value than the one that was written"),
            ))
        },
    )?;
    Ok(RepairFigures { took, opened, filled, state, read })
}

/// Waits until the server says that it is repaired.
fn await_repaired(watcher: &Client) -> Result<State, NodeError> {
    let (mut last, mut objects) = (Instant::now(), 0);
    loop {
        let states = watcher
            .states(LOOK)
            .map_err(|error| NodeError::new(NodeErrorKind::Network, error.to_string()))?;
        let own = states.into_iter().find(|(server, _)| server.index() == WIPED);
        if let Some((_, state)) = own {
            if !state.lost {
                return Ok(state);
            }
            if state.objects > objects {
                (last, objects) = (Instant::now(), state.objects);
            }
        }
        if last.elapsed() > HUNG {
            return Err(NodeError::new(
                NodeErrorKind::Network,
                format!("the repair stopped at {objects} keys"),
            ));
        }
    }
}

fn value(plan: RepairPlan, key: u32) -> Value {
    let mut bytes = vec![7; plan.value_bytes];
    bytes.iter_mut().zip(key.to_le_bytes()).for_each(|(place, byte)| *place = byte);
    bytes.into()
}

/// The client that writes and reads.
struct User {
    core: Core,
    clock: Clock,
}

impl User {
    /// Runs an operation on each of these keys, many at once, until all servers have what they are owed.
    fn all(
        &mut self,
        mut keys: impl Iterator<Item = u32>,
        call: &mut impl FnMut(u32) -> Call,
        ended: &mut impl FnMut(u32, &Outcome) -> Result<(), NodeError>,
    ) -> Result<(), NodeError> {
        let mut running: BTreeMap<ObjectId, u32> = BTreeMap::new();
        let (mut idle, mut last) = (Idle::new(self.core.waiting()), Instant::now());
        loop {
            let now_ns = self.clock.mono_ns();
            while running.len() < WINDOW
                && self.core.backlog() < WINDOW
                && let Some(key) = keys.next()
            {
                let object = self.core.config().object(&key.to_le_bytes());
                running.insert(object, key);
                self.core.invoke(now_ns, object, call(key));
            }
            if running.is_empty() && self.core.backlog() == 0 {
                return Ok(());
            }
            let broken = |error: std::io::Error| NodeError::new(NodeErrorKind::Network, error.to_string());
            let mut worked = self.core.turn(now_ns).map_err(broken)?;
            while let Some((object, result)) = self.core.take_done() {
                (worked, last) = (true, Instant::now());
                let Some(key) = running.remove(&object) else { continue };
                match result {
                    Ok(outcome) => ended(key, &outcome)?,
                    Err(failure) => {
                        return Err(NodeError::new(NodeErrorKind::Rule, format!("refused: {failure:?}")));
                    }
                }
            }
            if last.elapsed() > HUNG {
                return Err(NodeError::new(NodeErrorKind::Network, "an operation did not end"));
            }
            if worked {
                idle.reset();
            } else {
                self.core.rest(&mut idle, (now_ns, self.core.due()), None, || false).map_err(broken)?;
            }
        }
    }
}
