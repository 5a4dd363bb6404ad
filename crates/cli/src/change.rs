//! `quorate move-replica` and `quorate set`: changes of a running cluster, in its state (ADR 23).

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Args;
use quorate_node::init::Host;
use quorate_node::observe::look::PATIENCE;
use quorate_node::settings::change::{Change, change_of, nearest_setting, takes};
use quorate_node::{Caller, enlist};
use quorate_service::registry::RegistryResult;
use quorate_wire::ReplicaId;

use crate::clients::{By, full, no_change};
use crate::code::Code;
use crate::fail::{CommandResult, Failure};
use crate::out;

/// Tell a running cluster the new address of a replica
///
/// Writes the address to the state of the cluster with an ordered operation. All replicas and clients then send
/// to the replica at this address. You need not restart the other replicas and the clients. The address takes
/// precedence over the table [replicas] in node.toml.
///
/// Before you start the replica on its new machine, write the same address to `listen` in its own node.toml. Make
/// sure that the old machine is off: two machines with one key count as a Byzantine replica. A wrong address
/// makes the replica unreachable, like a crash. To correct it, repeat the command.
///
/// The command refuses to run if a replica runs another version of quorate than the command itself. If a replica
/// does not answer, the command says which version this replica must have before it starts.
///
/// Only an administrator can do this. `quorate add-client --help` describes how the command chooses one.
///
/// Example:
///
///   quorate move-replica --dir cluster replica-1 --to 10.0.0.5
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct MoveReplica {
    /// Name of the replica: replica-0, replica-1, ...
    name: String,
    #[command(flatten)]
    by: By,
    /// New address: IP, IP:PORT or a name (default port: the one that the replica has now)
    #[arg(long, value_name = "ADDR")]
    to: Host,
}

/// Change a setting of a running cluster
///
/// Writes the value to the state of the cluster with an ordered operation. All replicas use it from the same
/// position in the order of operations. No node needs a restart. Do not change cluster.toml: the new value takes
/// precedence over the value there.
///
/// `quorate explain settings` says which settings can change in this way, and what to do for the others.
///
/// The command refuses to run if a replica runs another version of quorate than the command itself. If a replica
/// does not answer, the command says which version this replica must have before it starts.
///
/// Only an administrator can do this. `quorate add-client --help` describes how the command chooses one.
///
/// Example:
///
///   quorate set --dir cluster client_lanes_max 512
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
#[allow(clippy::doc_markdown, reason = "the help is plain text")]
pub(crate) struct Set {
    /// The setting, such as client_lanes_max
    key: String,
    /// Its new value, as in cluster.toml
    value: String,
    #[command(flatten)]
    by: By,
}

impl MoveReplica {
    pub(crate) fn run(&self) -> CommandResult {
        let replica = replica(&self.name)?;
        let administrator = self.by.open(None)?;
        let cluster = administrator.settings().config.cluster;
        if replica.index() >= cluster.n() {
            let what = format!(
                "no replica is called {}: this cluster has replica-0 to replica-{}",
                self.name,
                cluster.n() - 1
            );
            return Err(Failure::new(Code::Value, what).at("NAME").next("name one of these replicas"));
        }
        let (caller, by) = self.by.call(administrator)?;
        compare_versions(&caller, &self.by)?;
        let addresses = caller.known().addresses();
        let port = addresses.get(replica.index()).map_or(quorate_node::init::PORT, SocketAddr::port);
        let to = SocketAddr::new(self.to.ip, self.to.port.unwrap_or(port));
        if to.port() == 0 || to.ip().is_unspecified() || to.ip().is_multicast() {
            let what = format!("{to}: nothing can be sent to this address");
            return Err(Failure::new(Code::Value, what)
                .at("--to")
                .next("give the address of the new machine"));
        }
        if let Some(other) = addresses.iter().position(|at| *at == to).filter(|at| *at != replica.index()) {
            let what = format!("{to} is the address of replica-{other}");
            return Err(Failure::new(Code::Rule, what).at("--to").next("give another address or port"));
        }
        let answer = enlist::move_replica(&caller, replica, to).map_err(|error| self.by.failed(&error))?;
        let name = &self.name;
        told(answer, &by, &format!("{name} is at {to}"))?;
        out::line(format!("it must listen there: listen = \"{to}\" in its own node.toml"));
        Ok(ExitCode::SUCCESS)
    }
}

impl Set {
    pub(crate) fn run(&self) -> CommandResult {
        let key = self.key.as_str();
        let setting = match change_of(key) {
            Some(Change::Ordered(setting)) => setting,
            Some(Change::Stopped(why)) => {
                return Err(Failure::new(
                    Code::Rule,
                    format!("{key} cannot change while the cluster runs: {why}"),
                )
                .at("KEY")
                .next("stop all nodes, change it in cluster.toml of every node, start them"));
            }
            Some(Change::Fixed(why)) => {
                return Err(Failure::new(
                    Code::Rule,
                    format!("{key} cannot change after the first start: {why}"),
                )
                .at("KEY")
                .next("create a new cluster with this setting, and copy the data"));
            }
            Some(Change::Node) => {
                return Err(Failure::new(
                    Code::Rule,
                    format!("{key} is a setting of each node, not of the cluster"),
                )
                .at("KEY")
                .next("change it in node.toml of a node, and restart this node"));
            }
            None => {
                let near = nearest_setting(key).map_or(String::new(), |near| format!(". Nearest: {near}"));
                return Err(Failure::new(Code::Value, format!("no setting is called `{key}`{near}"))
                    .at("KEY")
                    .next("quorate explain settings"));
            }
        };
        let value = self.value.parse().ok().filter(|value| setting.allows(*value)).ok_or_else(|| {
            Failure::new(Code::Value, format!("`{}`: expected {}", self.value, takes(key))).at("VALUE")
        })?;
        let (caller, by) = self.by.call(self.by.open(None)?)?;
        compare_versions(&caller, &self.by)?;
        let answer = enlist::set(&caller, setting, value).map_err(|error| self.by.failed(&error))?;
        told(answer, &by, &format!("{key} is {value}"))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Asks all replicas for their version. One of another version might execute the operation differently, and its state
/// would differ.
fn compare_versions(caller: &Caller, by: &By) -> Result<(), Failure> {
    if caller.known().table(by.deadline).is_none() {
        let what = "too few replicas say which addresses and settings the state has";
        return Err(Failure::new(Code::Unreachable, what)
            .at(by.dir.display().to_string())
            .next("start the replicas that are down; upgrade those of an earlier version"));
    }
    let own = env!("CARGO_PKG_VERSION");
    for (id, heard) in caller.statements(PATIENCE).iter().enumerate() {
        match heard {
            Some(heard) if heard.statement.version != own => {
                let what = format!(
                    "replica-{id} has version {}, and this command has {own}: it might not know the operation",
                    heard.statement.version
                );
                return Err(
                    Failure::new(Code::OtherFormat, what).next("upgrade all replicas to one version first")
                );
            }
            Some(_) => {}
            None => out::line(format!(
                "replica-{id} does not answer: before it starts, its version must be {own}"
            )),
        }
    }
    Ok(())
}

fn replica(name: &str) -> Result<ReplicaId, Failure> {
    let number = name.strip_prefix("replica-").and_then(|number| number.parse().ok());
    number.map(ReplicaId).filter(|id| format!("replica-{}", id.0) == name).ok_or_else(|| {
        Failure::new(Code::Value, format!("`{name}` is not a replica name: use replica-N")).at("NAME")
    })
}

/// Says that it is so, or why the replicas refused the operation of `by`.
fn told(answer: RegistryResult, by: &str, what: &str) -> Result<(), Failure> {
    match answer {
        RegistryResult::Done => {
            out::line(format!("{what} from now on, for all replicas and clients"));
            Ok(())
        }
        RegistryResult::AlreadySo => {
            out::line(format!("{what} already: nothing was changed"));
            Ok(())
        }
        RegistryResult::NoClient => {
            Err(Failure::new(Code::NoClient, format!("{by} is not a member of this cluster"))
                .next("name an administrator with --as"))
        }
        RegistryResult::Full => Err(full("leave it: what has an entry can still be changed")),
        RegistryResult::NoRight
        | RegistryResult::NoLane
        | RegistryResult::OtherKey
        | RegistryResult::LastAdministrator
        | RegistryResult::Malformed => Err(no_change(answer, by, "change the cluster")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_says_what_to_do() {
        for answer in [
            RegistryResult::NoRight,
            RegistryResult::NoClient,
            RegistryResult::Full,
            RegistryResult::NoLane,
            RegistryResult::Malformed,
        ] {
            assert!(told(answer, "client-1", "x is 1").unwrap_err().next.is_some(), "{answer:?}");
        }
        assert_eq!(replica("replica-3").unwrap(), ReplicaId(3));
        for name in ["replica-03", "r3", "replica-", "replica-70000", "client-1"] {
            assert_eq!(replica(name).unwrap_err().code, Code::Value, "{name}");
        }
    }
}
