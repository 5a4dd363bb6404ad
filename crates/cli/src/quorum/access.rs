//! `quorate quorum access`: who may read and write now.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use quorate_node::members::{client_name, client_number, principal};
use quorate_quorum::access::{AccessList, SignedList, Who};
use quorate_quorum::version::Namespace;
use quorate_quorum_node::client::{AccessLists, ClientOptions};
use quorate_quorum_node::evidence::Public;
use quorate_quorum_node::{Client as RegisterClient, Config};

use super::evidence::public;
use super::real::failed;
use super::status::observer;
use crate::code::Code;
use crate::fail::{CommandResult, Failure};
use crate::out;

/// The status where too few servers answer.
const SILENT: u8 = 3;
/// How long to wait for the answers of servers.
const LOOK: Duration = Duration::from_secs(2);

/// Show or change who may read and write registers, while the servers run
///
/// An access list narrows the rules in register.toml. An administrator signs it, and the servers pass it on to
/// each other. Each list has a number that is higher than that of the list before. A server never goes back to an
/// older list.
///
/// The file cluster.toml names the administrators. By default, these are client-2 and client-3. In a cluster with
/// fewer than four clients, only the last client is an administrator.
///
/// Examples:
///
///   quorate quorum access set "" --writers client-0
///   quorate quorum access show
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Access {
    #[command(subcommand)]
    what: What,
    /// Directory that holds the clients
    #[arg(long, default_value = "quorate-registers", global = true)]
    dir: PathBuf,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Print the newest access list, and the number of each server's list
    ///
    /// Exit status: 0 all servers have this list; 1 otherwise; 3 too few servers answer.
    ///
    /// Example:
    ///
    ///   quorate quorum access show
    #[command(verbatim_doc_comment)]
    Show,
    /// Name the readers and writers of the keys with a prefix
    ///
    /// Needs the directory of an administrator in DIR. Nobody gets a right that the rules in register.toml do not give.
    /// Servers refuse the operations of a client without the right: the client prints the error Q064.
    ///
    /// Exit status: 0 at least 2f + 1 servers have the new list; 3 fewer do, and the others may get it later.
    ///
    /// Example:
    ///
    ///   quorate quorum access set "" --writers client-0,client-1
    #[command(verbatim_doc_comment)]
    Set {
        /// A prefix that a rule in register.toml names, such as config/. No other is accepted. If register.toml has no
        /// rules, give "", which stands for all keys
        prefix: String,
        /// Clients that may read: all, none, or names such as client-0,client-1. Clients that may write may read as well,
        /// so to take the right to read from a client, use --writers, too
        #[arg(long, default_value = "all", value_parser = who)]
        readers: Who,
        /// Clients that may write: all, none, or names such as client-0,client-1
        #[arg(long, default_value = "all", value_parser = who)]
        writers: Who,
    },
}

fn who(text: &str) -> Result<Who, String> {
    let client = |name: &str| {
        client_number(name).map(principal).ok_or_else(|| format!("`{name}` is no client such as client-0"))
    };
    match text {
        "all" => Ok(Who::All),
        "none" => Ok(Who::These(BTreeSet::new())),
        names => names.split(',').map(client).collect::<Result<_, _>>().map(Who::These),
    }
}

fn says(who: &Who) -> String {
    match who {
        Who::All => "all".to_owned(),
        Who::These(none) if none.is_empty() => "none".to_owned(),
        Who::These(principals) => {
            let names = principals.iter().map(|principal| client_name(principal.saturating_sub(1)));
            names.collect::<Vec<_>>().join(",")
        }
    }
}

/// What the command works with.
struct Work {
    config: Config,
    public: Public,
    client: RegisterClient,
}

impl Work {
    /// Opens the client of an administrator, or any one.
    fn open(dir: &Path, as_administrator: bool) -> Result<Self, Failure> {
        let own = observer(dir)?;
        let config = Config::read(&own)?;
        let (members, public) = public(&own.join("cluster.toml"), config.epoch)?;
        let own = if as_administrator {
            let dirs = members.administrators.iter().rev().map(|number| dir.join(client_name(*number)));
            dirs.into_iter().find(|path| path.is_dir()).ok_or_else(|| {
                let names: Vec<String> = members.administrators.iter().map(|one| client_name(*one)).collect();
                Failure::new(Code::Rule, format!("no administrator's directory: {}", names.join(", ")))
                    .at(dir.display().to_string())
                    .next("copy the directory of one of them to this machine")
            })?
        } else {
            own
        };
        let client = RegisterClient::open(&own, ClientOptions::default())?;
        Ok(Self { config, public, client })
    }

    /// Servers that are enough: one of them has each list that was set.
    fn enough(&self) -> usize {
        let n = self.client.servers();
        n - (n - 1) / 3
    }

    /// Returns the newest list of those that an administrator signed.
    fn newest(&self, lists: &AccessLists) -> Option<Arc<SignedList>> {
        let valid = lists.values().flatten().filter(|signed| self.public.is_signed(signed));
        valid.max_by_key(|signed| signed.list.rank()).cloned()
    }

    fn prefixes(&self) -> Vec<&str> {
        let none = self.config.rules.is_empty().then_some("");
        self.config.rules.keys().map(String::as_str).chain(none).collect()
    }
}

impl Access {
    pub(super) fn run(&self) -> CommandResult {
        match &self.what {
            What::Show => show(&Work::open(&self.dir, false)?),
            What::Set { prefix, readers, writers } => {
                let work = Work::open(&self.dir, true)?;
                if !work.prefixes().contains(&prefix.as_str()) {
                    let known =
                        work.prefixes().iter().map(|prefix| format!("{prefix:?}")).collect::<Vec<_>>();
                    let what = format!("{prefix:?} is no prefix in register.toml: {}", known.join(", "));
                    return Err(Failure::new(Code::Rule, what).next("choose one of these prefixes"));
                }
                set(&work, prefix, (readers.clone(), writers.clone()))
            }
        }
    }
}

fn show(work: &Work) -> CommandResult {
    let lists = work.client.access(None, LOOK).map_err(failed)?;
    let newest = work.newest(&lists);
    match &newest {
        None => out::line("no access list: the rules in register.toml apply"),
        Some(signed) => {
            let by = client_name(signed.administrator.principal().saturating_sub(1));
            out::line(format!("access list {}, signed by {by}", signed.list.number));
            for prefix in work.prefixes() {
                if let Some((readers, writers)) = signed.list.by.get(&Namespace::new(prefix.as_bytes())) {
                    out::line(format!("  {prefix:?}  readers {}  writers {}", says(readers), says(writers)));
                }
            }
        }
    }
    for (server, list) in &lists {
        let number = list.as_ref().map_or("none".to_owned(), |signed| signed.list.number.to_string());
        out::line(format!("  server {}  list {number}", server.0));
    }
    let all = lists.values().filter(|list| **list == newest).count() == work.client.servers();
    if lists.len() < work.enough() {
        return Ok(ExitCode::from(SILENT));
    }
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn set(work: &Work, prefix: &str, rights: (Who, Who)) -> CommandResult {
    let lists = work.client.access(None, LOOK).map_err(failed)?;
    if lists.len() < work.enough() {
        out::line(format!(
            "{} of {} servers answer: too few to know the newest list",
            lists.len(),
            work.client.servers()
        ));
        return Ok(ExitCode::from(SILENT));
    }
    let mut list = work.newest(&lists).map_or_else(AccessList::default, |signed| signed.list.clone());
    list.number += 1;
    list.by.insert(Namespace::new(prefix.as_bytes()), rights);
    let number = list.number;
    let have = work.client.access(Some(list), LOOK).map_err(failed)?;
    out::line(format!("access list {number}: {} of {} servers have it", have.len(), work.client.servers()));
    Ok(if have.len() >= work.enough() { ExitCode::SUCCESS } else { ExitCode::from(SILENT) })
}
