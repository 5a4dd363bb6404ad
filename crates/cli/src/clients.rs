//! `quorate add-client` and `quorate remove-client`: client identities and rights, as operations of the order.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use quorate_node::caller::Options;
use quorate_node::init::{Host, client_dir};
use quorate_node::members::{client_name, client_number};
use quorate_node::trouble::Kind;
use quorate_node::{CallError, Caller, ClientNode, enlist};
use quorate_service::people::{Answer, Rights};

use crate::explain::Code;
use crate::fail::{Failure, Outcome};
use crate::{out, values};

/// Add a client to a cluster that runs
///
/// Makes its key pair and its directory under DIR, and has its public key added by an operation that is ordered like
/// any other: every replica lets it in from the same point on. It takes an administrator: by default one of those that
/// cluster.toml names, whose directory is under DIR and not in use.
///
/// The command can be repeated: if its outcome is unknown, or to give a client other rights or another address.
///
///   quorate add-client --dir cluster client-2 --read-only
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct AddClient {
    /// The client's name: client-2, client-3, ...
    name: String,
    #[command(flatten)]
    by: By,
    /// It may ask only for what changes nothing
    #[arg(long, conflicts_with = "admin")]
    read_only: bool,
    /// It may add and remove clients as well
    #[arg(long)]
    admin: bool,
    /// Where it will listen, IP:PORT: without it, on the administrator's machine
    #[arg(long, value_name = "ADDR")]
    host: Option<Host>,
}

/// Remove a client from a cluster that runs
///
/// By an operation that is ordered like any other: nothing that the client asks for behind it is done. Its directory
/// stays, and is worth nothing any more. It can be repeated if its outcome is unknown.
///
///   quorate remove-client --dir cluster client-2
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct RemoveClient {
    /// The client's name
    name: String,
    #[command(flatten)]
    by: By,
}

/// Who gives the order.
#[derive(Args, Debug)]
struct By {
    /// Where the directories of the clients are
    #[arg(long)]
    dir: PathBuf,
    /// The administrator who gives the order, such as client-1
    #[arg(long = "as", value_name = "NAME")]
    administrator: Option<String>,
    /// How long to wait for the answer
    #[arg(long, default_value = "10s", value_parser = values::duration, value_name = "TIME")]
    deadline: Duration,
}

#[allow(clippy::wildcard_enum_match_arm, reason = "all others are refusals")]
impl AddClient {
    pub(crate) fn run(&self) -> Outcome {
        let number = number(&self.name)?;
        let administrator = self.by.open(number)?;
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
            Answer::Done => out::line(format!("{name} {may}: every replica knows it from here on")),
            Answer::AlreadySo => out::line(format!("{name} {may}: it is so already")),
            _ => return Err(refusal(answer, name, &by)),
        }
        out::line(format!("its directory: {dir} (listens at {})", recruit.listen));
        Ok(ExitCode::SUCCESS)
    }
}

#[allow(clippy::wildcard_enum_match_arm, reason = "all others are refusals")]
impl RemoveClient {
    pub(crate) fn run(&self) -> Outcome {
        let number = number(&self.name)?;
        let (caller, by) = self.by.call(self.by.open(number)?)?;
        let answer = enlist::remove(&caller, number).map_err(|error| self.by.failed(&error))?;
        let name = &self.name;
        match answer {
            Answer::Done => {
                out::line(format!("{name} is out: nothing that it asks for from here on is done"));
            }
            Answer::AlreadySo => out::line(format!("{name} is out already")),
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
    /// Opens the administrator's directory: the one that is named, or the first one that nobody uses.
    fn open(&self, about: u64) -> Result<ClientNode, Failure> {
        if let Some(name) = &self.administrator {
            return Ok(ClientNode::open(&client_dir(&self.dir, number(name)?))?);
        }
        let mut in_use = None;
        for number in administrators(&self.dir).into_iter().filter(|number| *number != about) {
            match ClientNode::open(&client_dir(&self.dir, number)) {
                Err(trouble) if trouble.kind == Kind::InUse => in_use = Some(trouble),
                opened => return Ok(opened?),
            }
        }
        Err(match in_use {
            Some(trouble) => Failure::from(trouble).next("stop it, or name another administrator with --as"),
            None => Failure::new(Code::Unreadable, "no directory of an administrator")
                .at(self.dir.display().to_string())
                .next("give the directory that has the clients' directories, or name one of them with --as"),
        })
    }

    fn call(&self, administrator: ClientNode) -> Result<(Caller, String), Failure> {
        let options = Options { lanes: 1, deadline: self.deadline };
        let name = client_name(administrator.number());
        Ok((Caller::start(administrator.with_lanes(options.lanes), options)?, name))
    }

    fn failed(&self, error: &CallError) -> Failure {
        Failure::new(Code::Unreachable, error.to_string())
            .at(self.dir.display().to_string())
            .next("the same command again: what is done already is not done twice")
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
        Failure::new(Code::Value, format!("`{name}`: client-0, client-1, ... was expected")).at("NAME")
    })
}

/// Says why the replicas did not carry out an order of `by` about `name`.
fn refusal(answer: Answer, name: &str, by: &str) -> Failure {
    match answer {
        Answer::NoRight => Failure::new(Code::NoRight, format!("{by} may not add or remove clients"))
            .next("name an administrator with --as"),
        Answer::NoClient if by == name => Failure::new(Code::NoClient, format!("{name} is not a client")),
        Answer::NoClient => Failure::new(
            Code::NoClient,
            format!("{name} is not a client of this cluster, or {by} is not any more"),
        ),
        Answer::OtherKey => {
            Failure::new(Code::Occupied, format!("there is a {name} already, with another key"))
                .next("take the next number, or remove the other one first")
        }
        Answer::LastAdministrator => {
            Failure::new(Code::Rule, format!("{name} is the last that may add and remove clients"))
                .next("add another one first: quorate add-client ... --admin")
        }
        Answer::Full => Failure::new(Code::Rule, "the table of clients is full: 4096 were added or removed")
            .next("use a name again that was removed"),
        Answer::NoLane => Failure::new(Code::TableFull, format!("the replicas keep no last reply for {by}"))
            .next("wait a minute: a lane that was not used for so long makes room"),
        Answer::Done | Answer::AlreadySo | Answer::Malformed => {
            Failure::new(Code::OtherFormat, "the replicas do not know this order")
                .next("bring all replicas to this version first")
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
            Answer::NoRight,
            Answer::OtherKey,
            Answer::LastAdministrator,
            Answer::Full,
            Answer::Malformed,
            Answer::NoLane,
        ] {
            assert!(refusal(answer, "client-7", "client-1").next.is_some(), "{answer:?}");
        }
        let twice = refusal(Answer::OtherKey, "client-7", "client-1").to_string();
        assert!(twice.starts_with("error Q021: there is a client-7 already, with another key"), "{twice}");
        assert_eq!(number("clint-1").unwrap_err().code, Code::Value);
    }
}
