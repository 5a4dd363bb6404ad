//! `quorate add-client` and `quorate remove-client`: ordered operations on the client registry.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use quorate_node::caller::CallerOptions;
use quorate_node::error::NodeErrorKind;
use quorate_node::init::{Host, client_dir};
use quorate_node::members::{client_name, client_number};
use quorate_node::{CallError, Caller, ClientNode, enlist};
use quorate_service::registry::{RegistryResult, Rights};

use crate::code::Code;
use crate::fail::{CommandResult, Failure};
use crate::{out, values};

/// Add a client to a running cluster
///
/// Creates a key pair and a directory for the client under DIR. Then registers the public key with an ordered
/// operation. So all replicas accept the client from the same position in the order of operations.
///
/// Only an administrator can do this: a client that may also add and remove clients, move replicas and change
/// settings. Without --as, the command connects as one of the administrators that cluster.toml names: the one
/// with the lowest number whose directory is under DIR and not in use. It never chooses the client NAME.
///
/// If the outcome of the command is unknown, repeat it.
///
/// The command can also change the rights or the address of an existing client, whose directory must be under
/// DIR:
///
///   rights    repeat the command with --read-only, with --admin, or with neither. With neither, the client may
///             read and write
///   address   change `listen` in the client's node.toml. Then repeat the command without --host: it reads the
///             address from node.toml. The repeated command also sets the rights, so give --read-only or --admin
///             again if the client has this right
///
/// Example:
///
///   quorate add-client --dir cluster client-2 --read-only
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct AddClient {
    /// Name of the new client: client-2, client-3, ...
    name: String,
    #[command(flatten)]
    by: By,
    /// Allow only operations that change nothing
    #[arg(long, conflicts_with = "admin")]
    read_only: bool,
    /// Also allow adding and removing clients, moving replicas and changing settings
    #[arg(long)]
    admin: bool,
    /// Address of the new client, IP, IP:PORT or a name (default: the IP address of the administrator, and a port that
    /// follows from the number of the new client)
    #[arg(long, value_name = "ADDR")]
    host: Option<Host>,
}

/// Remove a client from a running cluster
///
/// Removes the client with an ordered operation. After the removal, the client gets an error or no answer. The client's
/// directory stays, but its key is no longer valid. Repeat the command if its outcome is unknown.
///
/// Only an administrator can do this. `quorate add-client --help` describes how the command chooses one.
///
/// Example:
///
///   quorate remove-client --dir cluster client-2
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct RemoveClient {
    /// Name of the client to remove
    name: String,
    #[command(flatten)]
    by: By,
}

/// The administrator, and how to reach the cluster.
#[derive(Args, Debug)]
pub(crate) struct By {
    /// Directory that holds the clients' directories
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// The administrator to connect as, such as client-1
    #[arg(long = "as", value_name = "CLIENT")]
    administrator: Option<String>,
    /// Time to wait for the answer, such as 500ms or 10s
    #[arg(long, default_value = "10s", value_parser = values::duration, value_name = "TIME")]
    pub(crate) deadline: Duration,
}

#[allow(clippy::wildcard_enum_match_arm, reason = "all others are refusals")]
impl AddClient {
    pub(crate) fn run(&self) -> CommandResult {
        let number = number(&self.name)?;
        let administrator = self.by.open(Some(number))?;
        let listen = self.host.map(|host| {
            let beside = administrator.settings().listen.port();
            SocketAddr::new(host.ip, host.port.unwrap_or(beside))
        });
        let rights = match (self.read_only, self.admin) {
            (true, _) => Rights::Read,
            (_, true) => Rights::Admin,
            _ => Rights::Write,
        };
        let recruit = enlist::recruit(&self.by.dir, number, listen, &administrator)?;
        let (caller, by) = self.by.call(administrator)?;
        let answer = enlist::add(&caller, &recruit, rights).map_err(|error| self.by.failed(&error))?;
        let (name, dir) = (&self.name, recruit.dir.display());
        let may = match rights {
            Rights::Read => "may read",
            Rights::Write => "may read and write",
            Rights::Admin => "may read, write, and add and remove clients",
        };
        match answer {
            RegistryResult::Done => out::line(format!("{name} {may}: all replicas accept it from now on")),
            RegistryResult::AlreadySo => out::line(format!("{name} {may} already: nothing was changed")),
            _ => return Err(refusal(answer, name, &by)),
        }
        out::line(format!("its directory: {dir} (listens on {})", recruit.listen));
        Ok(ExitCode::SUCCESS)
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "all others are refusals")]
impl RemoveClient {
    pub(crate) fn run(&self) -> CommandResult {
        let number = number(&self.name)?;
        let (caller, by) = self.by.call(self.by.open(Some(number))?)?;
        let answer = enlist::remove(&caller, number).map_err(|error| self.by.failed(&error))?;
        let name = &self.name;
        match answer {
            RegistryResult::Done => {
                out::line(format!("{name} is removed: its requests are refused from now on"));
            }
            RegistryResult::AlreadySo => out::line(format!("{name} was already removed")),
            _ => return Err(refusal(answer, name, &by)),
        }
        let dir = client_dir(&self.by.dir, number);
        if dir.exists() {
            out::line(format!("its directory can be deleted: {}", dir.display()));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl By {
    /// Opens the directory of the given administrator, or of the first one that is not in use, and is not the client that
    /// the command is about.
    pub(crate) fn open(&self, about: Option<u64>) -> Result<ClientNode, Failure> {
        if let Some(name) = &self.administrator {
            return Ok(ClientNode::open(&client_dir(&self.dir, number(name)?))?);
        }
        let mut in_use = None;
        for number in administrators(&self.dir).into_iter().filter(|number| Some(*number) != about) {
            match ClientNode::open(&client_dir(&self.dir, number)) {
                Err(trouble) if trouble.kind == NodeErrorKind::InUse => in_use = Some(trouble),
                opened => return Ok(opened?),
            }
        }
        Err(match in_use {
            Some(trouble) => Failure::from(trouble).next("stop it, or name another administrator with --as"),
            None => Failure::new(Code::Unreadable, "no administrator's directory found")
                .at(self.dir.display().to_string())
                .next("set --dir to the directory that holds the clients' directories, or name an administrator with --as"),
        })
    }

    pub(crate) fn call(&self, administrator: ClientNode) -> Result<(Caller, String), Failure> {
        let options = CallerOptions { lanes: 1, deadline: self.deadline };
        let name = client_name(administrator.number());
        Ok((Caller::start(administrator.with_lanes(options.lanes), options)?, name))
    }

    pub(crate) fn failed(&self, error: &CallError) -> Failure {
        Failure::new(Code::Unreachable, error.to_string())
            .at(self.dir.display().to_string())
            .next("repeat the command: it takes effect at most once")
    }
}

/// The administrators that the first client's copy of cluster.toml names, if there is one.
fn administrators(dir: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| client_number(entry.file_name().to_str()?));
    let named =
        |number| quorate_node::members::Members::read(&client_dir(dir, number).join("cluster.toml")).ok();
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable();
    let members = numbers.iter().find_map(|number| named(*number));
    let named = members.map(|members| members.administrators).unwrap_or_default();
    named.into_iter().filter(|number| numbers.contains(number)).collect()
}

fn number(name: &str) -> Result<u64, Failure> {
    client_number(name).ok_or_else(|| {
        Failure::new(Code::Value, format!("`{name}` is not a client name: use client-N")).at("NAME")
    })
}

/// Describes why the replicas refused the operation of `by` on `name`.
fn refusal(answer: RegistryResult, name: &str, by: &str) -> Failure {
    match answer {
        RegistryResult::NoClient if by == name => {
            Failure::new(Code::NoClient, format!("{name} is not a member of this cluster"))
        }
        RegistryResult::NoClient => Failure::new(
            Code::NoClient,
            format!("{name} is not a member of this cluster, or {by} was removed"),
        ),
        RegistryResult::OtherKey => {
            Failure::new(Code::Occupied, format!("{name} already exists with another key"))
                .next("use the next number, or remove the existing client first")
        }
        RegistryResult::LastAdministrator => {
            Failure::new(Code::Rule, format!("{name} is the last administrator"))
                .next("add another administrator first: quorate add-client NAME --dir DIR --admin")
        }
        RegistryResult::Full => full("use the name of a removed client"),
        RegistryResult::NoRight
        | RegistryResult::NoLane
        | RegistryResult::Done
        | RegistryResult::AlreadySo
        | RegistryResult::Malformed => no_change(answer, by, "add or remove clients"),
    }
}

/// The registry has no entry for another client, replica or setting.
pub(crate) fn full(next: &'static str) -> Failure {
    Failure::new(Code::Rule, "the client registry is full: it has 4032 entries, and none becomes free")
        .next(next)
}

/// Says why the replicas refused an operation of `by` that any change can meet.
pub(crate) fn no_change(answer: RegistryResult, by: &str, what: &str) -> Failure {
    match answer {
        RegistryResult::NoRight => Failure::new(Code::NoRight, format!("{by} may not {what}"))
            .next("name an administrator with --as"),
        RegistryResult::NoLane => {
            Failure::new(Code::TableFull, format!("the replicas keep no further last reply for {by}"))
                .next("wait a minute: a lane that is idle for a minute makes room")
        }
        RegistryResult::Done
        | RegistryResult::AlreadySo
        | RegistryResult::NoClient
        | RegistryResult::OtherKey
        | RegistryResult::LastAdministrator
        | RegistryResult::Full
        | RegistryResult::Malformed => {
            Failure::new(Code::OtherFormat, "the replicas do not support this operation")
                .next("upgrade all replicas to this version first")
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_says_what_to_do_or_is_plain() {
        for answer in [
            RegistryResult::NoRight,
            RegistryResult::OtherKey,
            RegistryResult::LastAdministrator,
            RegistryResult::Full,
            RegistryResult::Malformed,
            RegistryResult::NoLane,
        ] {
            assert!(refusal(answer, "client-7", "client-1").next.is_some(), "{answer:?}");
        }
        let twice = refusal(RegistryResult::OtherKey, "client-7", "client-1").to_string();
        assert!(twice.starts_with("error Q021: client-7 already exists with another key"), "{twice}");
        assert_eq!(number("clint-1").unwrap_err().code, Code::Value);
    }
}
