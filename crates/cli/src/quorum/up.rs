//! `quorate quorum up` and `fault`: a register on this machine, with a process for each server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use nix::sys::signal::Signal;
use quorate_node::init::Host;
use quorate_node::signals;
use quorate_quorum_node::client::ClientOptions;
use quorate_quorum_node::init::F_MAX;
use quorate_quorum_node::{Client, Config};

use super::name::{Name, VariantName, protocol};
use super::real::{lie_of, new_register};
use super::status::Seen;
use crate::code::Code;
use crate::fail::{CommandResult, Failure};
use crate::local::{Local, check_new, unwritable};
use crate::node::Durability;
use crate::out;

/// How long servers may take until they answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The client that `up` looks with.
const WATCH: &str = "client-2";
/// What a server's subcommand is.
const SERVER: &str = "quorum server";

/// Start a cluster of servers for registers on this machine
///
/// Starts 3f + 1 servers, each as a process. Prints a line each time that the state of a server changes. Ctrl-C stops
/// the servers. The next `quorate quorum up` continues with the same data.
///
/// One machine with all servers is good for trials only. For several machines, use `quorate quorum init`.
///
/// Example:
///
///   quorate quorum up
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Up {
    /// Data directory, created if needed
    #[arg(long, default_value = "quorate-registers")]
    dir: PathBuf,
    /// Protocol of the registers (default minimal-f). Only for a new cluster
    #[arg(long, value_enum)]
    protocol: Option<Name>,
    /// Variant of bft-bc (default optimized). Only for a new cluster
    #[arg(long, value_enum, requires = "protocol")]
    variant: Option<VariantName>,
    /// Number of Byzantine servers to tolerate (default 1). Only for a new cluster
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=i64::from(F_MAX)))]
    f: Option<u16>,
    /// Address of server 0, IP or IP:PORT (default 127.0.0.1:7400). Only for a new cluster
    #[arg(long, value_name = "ADDR")]
    host: Option<Host>,
}

/// Returns the names of a register's servers, in order.
fn servers(local: &Local) -> Vec<String> {
    let names = (0..).map(|id: u16| format!("server-{id}"));
    names.take_while(|name| local.node(name).is_dir()).collect()
}

impl Up {
    pub(super) fn run(&self) -> CommandResult {
        let stop = signals::stop_flag()?;
        out::stop_without_reader(&stop);
        let is_new = !self.dir.join("server-0").is_dir();
        if is_new {
            let protocol = protocol(self.protocol.unwrap_or(Name::MinimalF), self.variant)?;
            let mut register = new_register(protocol, self.f.unwrap_or(1), Durability::Sync);
            register.hosts = self.host.into_iter().collect();
            check_new(&register.addresses()?, "quorate quorum up")?;
            register.make(&self.dir)?;
        } else if self.protocol.is_some() || self.f.is_some() || self.host.is_some() {
            let what = "the register already exists, and this setting cannot be changed";
            return Err(Failure::new(Code::Rule, what)
                .at(self.dir.display().to_string())
                .next("omit --protocol, --f and --host, or choose another directory with --dir"));
        }
        let local = Local::at(&self.dir);
        let run = local.dir().join("run");
        fs::create_dir_all(&run).map_err(|error| unwritable(&run, &error))?;
        let lock = local.hold()?;
        let mut children = Vec::new();
        let ended = self.serve(&local, is_new, &stop, &mut children);
        // Those that `fault` restarted are not our children.
        for name in &servers(&local) {
            local.stop(name);
        }
        for child in &mut children {
            let _ = child.wait();
        }
        drop(lock);
        ended?;
        out::line(format!(
            "stopped. all data is in {}; `quorate quorum up` continues with it",
            self.dir.display()
        ));
        Ok(ExitCode::SUCCESS)
    }

    fn serve(
        &self,
        local: &Local,
        is_new: bool,
        stop: &AtomicBool,
        children: &mut Vec<Child>,
    ) -> Result<(), Failure> {
        let names = servers(local);
        for name in &names {
            local.stop(name); // of an `up` that was killed
            local.set_fault(name, None)?;
            children.push(local.start(name, SERVER, &[])?);
        }
        let config = Config::read(&local.node("server-0"))?;
        let client = Client::open(&local.node(WATCH), ClientOptions::default())?;
        let begin = Instant::now();
        while !Seen::look(&client)?.all_work() {
            let mut all = children.iter_mut().zip(&names);
            let gone = all.find_map(|(child, name)| matches!(child.try_wait(), Ok(Some(_))).then_some(name));
            if let Some(name) = gone {
                return Err(Failure::new(Code::Network, format!("{name} did not start"))
                    .at(local.node(name).join("server.log").display().to_string())
                    .next(local.last_lines(name, "server.log", 4)));
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                return Err(Failure::new(Code::Unreachable, "the servers do not answer")
                    .at(format!("{}/server-*/server.log", self.dir.display()))
                    .next("read the servers' logs there"));
            }
        }
        let (made, dir) = (if is_new { "created" } else { "opened" }, self.dir.display());
        let (n, name) = (names.len(), config.protocol.name());
        out::line(format!("{made} {dir}: {n} servers of {name}, tolerates {} Byzantine", (n - 1) / 3));
        out::line("");
        out::line(format!(
            "in another terminal:  quorate quorum client write greeting hello{}",
            self.flag("/client-0")
        ));
        out::line(format!("                      quorate quorum fault kill 0{}", self.flag("")));
        out::line(format!(
            "                      quorate quorum client read greeting{}",
            self.flag("/client-0")
        ));
        out::line("");
        let mut last = String::new();
        while !stop.load(Ordering::Relaxed) {
            let seen = Seen::look(&client)?.headline();
            if seen != last {
                out::line(&seen);
                last = seen;
            }
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(500) && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Returns the flag with the directory, where it is not the default one.
    fn flag(&self, behind: &str) -> String {
        if self.dir == Path::new("quorate-registers") {
            return String::new();
        }
        format!(" --dir {}{behind}", self.dir.display())
    }
}

/// Inject a fault into a server, or heal it
///
/// Works only on servers that `quorate quorum up` runs. Registers continue to work with up to f faulty servers. `fault`
/// refuses to break more servers, unless you add --yes-break-it.
///
///   kill   end the process immediately, like a crash (SIGKILL)
///   wipe   kill the server, delete its stored values, and restart the server: it fetches the values from the others
///   lie    restart the server as a liar; --how selects the kind of lie (default fake-value)
///   heal   restart the server as a correct one. If it was a liar, its stored values are deleted first
///
/// `quorate quorum server --lie list` lists the kinds of lies.
///
/// Example:
///
///   quorate quorum fault kill 0
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Fault {
    /// The fault to inject
    #[arg(value_enum)]
    what: What,
    /// The server: its number
    server: u16,
    /// Data directory of the servers
    #[arg(long, default_value = "quorate-registers")]
    dir: PathBuf,
    /// The kind of lie
    #[arg(long, value_name = "NAME")]
    how: Option<String>,
    /// Inject the fault even if too few correct servers remain
    #[arg(long = "yes-break-it")]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    Kill,
    Wipe,
    Lie,
    Heal,
}

impl Fault {
    pub(super) fn run(&self) -> CommandResult {
        let local = Local::made(&self.dir)?;
        if !local.runs() {
            return Err(Failure::new(Code::Unreachable, "the register is not running")
                .at(self.dir.display().to_string())
                .next("quorate quorum up"));
        }
        let names = servers(&local);
        let name = names.get(usize::from(self.server)).ok_or_else(|| {
            Failure::new(
                Code::Value,
                format!("`{}`: expected a server, 0 to {}", self.server, names.len().saturating_sub(1)),
            )
            .at("SERVER")
        })?;
        let broken: Vec<&String> = names
            .iter()
            .filter(|other| {
                *other != name && (local.process(other).is_none() || local.fault(other).is_some())
            })
            .collect();
        if self.what != What::Heal && broken.len() >= (names.len() - 1) / 3 && !self.force {
            let list: Vec<&str> = broken.iter().map(|name| name.as_str()).collect();
            let are = if list.len() == 1 { "is" } else { "are" };
            let what = format!(
                "{} {are} already faulty: one more fault can stop or corrupt the register",
                list.join(", ")
            );
            let id = broken.first().map_or("", |name| name.trim_start_matches("server-"));
            return Err(Failure::new(Code::TooMany, what)
                .at(self.dir.display().to_string())
                .next(format!("quorate quorum fault heal {id}      or give --yes-break-it")));
        }
        let state = local.node(name).join("state");
        let wipe = || fs::remove_dir_all(&state).map_err(|error| unwritable(&state, &error));
        let kill = || {
            local.signal(name, Signal::SIGKILL);
            local.wait_until_gone(name, Duration::from_secs(5));
        };
        match self.what {
            What::Kill => {
                kill();
                local.set_fault(name, Some("killed"))?;
                out::line(format!("{name} was killed. Undo: quorate quorum fault heal {}", self.server));
            }
            What::Wipe => {
                kill();
                wipe()?;
                local.set_fault(name, None)?;
                local.start_apart(name, SERVER, &[])?;
                out::line(format!(
                    "{name} lost its disk and was restarted: it fetches the values from the others"
                ));
            }
            What::Lie => {
                let how = self.how.as_deref().unwrap_or("fake-value");
                lie_of(how)?;
                local.stop(name);
                local.set_fault(name, Some("lies"))?;
                local.start_apart(name, SERVER, &["--lie".to_owned(), how.to_owned()])?;
                out::line(format!(
                    "{name} lies from now on: {how}. Undo: quorate quorum fault heal {}",
                    self.server
                ));
            }
            What::Heal => {
                let lied = local.fault(name).as_deref() == Some("lies");
                local.stop(name);
                if lied {
                    // What it acknowledged it may not hold.
                    wipe()?;
                }
                local.set_fault(name, None)?;
                local.start_apart(name, SERVER, &[])?;
                out::line(format!(
                    "{name} was restarted{}",
                    if lied { " without its disk: it fetches the values from the others" } else { "" }
                ));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
