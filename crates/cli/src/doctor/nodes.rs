//! Checks of the nodes: their files, ports and addresses.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use quorate_node::examine::{self, Examined, examine};
use quorate_node::ports::{Port, holder};
use quorate_node::services::ServiceName;
use quorate_wire::Principal;

use super::finding::{Finding, Grade, counted};
use super::machine;
use crate::fail::Failure;

/// A clock that is this far behind a node's own keys was set back, in nanoseconds.
const SET_BACK_NS: u64 = 1_000_000_000;

/// Returns the directories of nodes in a directory, or the directory itself if it is a node's.
pub(super) fn find(dir: &Path) -> Vec<PathBuf> {
    let is_node = |path: &Path| {
        let full = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let name = full.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        path.is_dir() && (name.starts_with("replica-") || name.starts_with("client-"))
    };
    if is_node(dir) {
        return vec![dir.to_path_buf()];
    }
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| is_node(path)).collect();
    found.sort();
    found
}

pub(super) fn look(dirs: &[PathBuf]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut nodes: Vec<(String, Examined)> = Vec::new();
    for dir in dirs {
        let name = dir.canonicalize().unwrap_or_else(|_| dir.clone());
        let name = name.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        match examine(dir) {
            Err(trouble) => {
                let Failure { code, what, place, next } = trouble.into();
                let place = place.as_deref().and_then(|place| place.lines().next());
                let what = format!("{what} ({})      quorate explain {code}", place.unwrap_or("here"));
                let next = next.unwrap_or_else(|| format!("quorate explain {code}"));
                findings.push(Finding::new(Grade::Bad, "files", name, what).next(next));
            }
            Ok(node) => {
                let key = "key, members and settings are valid".to_owned();
                findings.push(Finding::new(Grade::Ok, "files", &name, key));
                findings.extend(exposed(dir, &name));
                if let Principal::Replica(_) = node.own {
                    findings.push(machine::room(dir, &name));
                }
                findings.extend(memory(dir, &name, &node));
                findings.extend(workers(&name, &node));
                findings.extend(ports(&name, &node));
                findings.extend(keys_of_the_future(dir, &name));
                nodes.push((name, node));
            }
        }
    }
    findings.extend(together(&nodes));
    findings
}

/// Whatever others can read or write, in a node's directory: its state, its log, its lock.
fn exposed(dir: &Path, name: &str) -> Option<Finding> {
    let open = |path: &Path| {
        let mode = fs::symlink_metadata(path).ok()?.permissions().mode();
        (mode & 0o077 != 0).then_some(mode & 0o777)
    };
    // Others who cannot enter it get at nothing in it.
    let mode = open(dir)?;
    let parts = ["log", "checkpoint", "lock", "replica.log", "recording"].map(|part| dir.join(part));
    let inside = parts.iter().filter(|path| open(path).is_some()).count();
    let what = format!("others can get into it (mode {mode:04o}), and read {inside} of what it keeps");
    let next = format!("chmod -R go= {}", dir.display());
    Some(Finding::new(Grade::Bad, "rights", name, what).next(next))
}

fn memory(dir: &Path, name: &str, node: &Examined) -> Option<Finding> {
    if node.runs || matches!(node.own, Principal::Client(_)) {
        return None;
    }
    Some(match examine::memory(dir, node) {
        Ok(Ok(())) => Finding::new(Grade::Ok, "memory", name, "its log is complete"),
        Ok(Err(why)) => Finding::new(
            Grade::Warn,
            "memory",
            name,
            format!("{why}: it will rejoin from the other replicas"),
        )
        .next("let at most f replicas rejoin at a time"),
        Err(trouble) => Finding::new(Grade::Bad, "memory", name, trouble.what.clone())
            .next(trouble.next.unwrap_or_else(|| "quorate explain Q020".to_owned())),
    })
}

/// Says what workers need and change.
fn workers(name: &str, node: &Examined) -> Option<Finding> {
    let (workers, service) = (node.settings.config.workers, node.settings.service);
    if workers == 1 || matches!(node.own, Principal::Client(_)) {
        return None;
    }
    let what = format!("{workers} workers, tentative execution off (PX-7). Replicas may differ in this");
    let idle = [ServiceName::KV, ServiceName::FS].contains(&service);
    Some(if idle {
        let what =
            format!("{what}. No operation of {} is long, so the workers have no effect", service.name());
        Finding::new(Grade::Warn, "workers", name, what).next("set workers = 1 and tentative = true")
    } else {
        Finding::new(Grade::Ok, "workers", name, what)
    })
}

/// Checks whether a node's ports are its own, free, or used by another process.
fn ports(name: &str, node: &Examined) -> Vec<Finding> {
    let address = node.settings.listen;
    let mut tried = vec![(Port::Udp, "UDP", UdpSocket::bind(address).map(drop))];
    if matches!(node.own, Principal::Replica(_)) {
        tried.push((Port::Tcp, "TCP", TcpListener::bind(address).map(drop)));
    }
    let taken: Vec<_> =
        tried.into_iter().filter_map(|(port, kind, tried)| Some((port, kind, tried.err()?))).collect();
    let Some((port, kind, error)) = taken.into_iter().next() else {
        let state = if node.runs { "it runs, but does not use" } else { "it does not run; free:" };
        let grade = if node.runs { Grade::Warn } else { Grade::Ok };
        return vec![Finding::new(grade, "ports", name, format!("{state} {address}"))];
    };
    let who = holder(port, address);
    let finding = match (&who, node.runs) {
        (Some(who), true) => Finding::new(Grade::Ok, "ports", name, format!("{address} in use by {who}")),
        (None, true) => Finding::new(Grade::Ok, "ports", name, format!("{address} in use; the node runs")),
        (Some(who), false) => {
            Finding::new(Grade::Bad, "ports", name, format!("{kind} {address} is taken by {who}"))
                .next(format!("stop that process (kill {}), or choose another port in node.toml", who.pid))
        }
        (None, false) if error.kind() == std::io::ErrorKind::AddrNotAvailable => {
            let what = format!("{address} is not an address of this machine");
            Finding::new(Grade::Warn, "ports", name, what)
                .next("fine if this directory is for another machine; otherwise change `listen` in node.toml")
        }
        (None, false) => Finding::new(Grade::Bad, "ports", name, format!("{kind} {address}: {error}"))
            .next("set `listen` in node.toml to an address of this machine and a free port"),
    };
    vec![finding]
}

fn keys_of_the_future(dir: &Path, name: &str) -> Option<Finding> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let now = u64::try_from(now.as_nanos()).ok()?;
    let ahead = examine::key_time(dir)?.saturating_sub(now);
    (ahead > SET_BACK_NS).then(|| {
        let what =
            format!("the clock was set back: this node's keys are {} ms ahead of it", ahead / 1_000_000);
        Finding::new(Grade::Warn, "clock", name, what)
            .next("set the clock, and keep it synchronised (chrony, ntpd)")
    })
}

/// Compares the nodes of one directory with each other.
fn together(nodes: &[(String, Examined)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some((first, one)) = nodes.first() else { return findings };
    for (name, node) in &nodes[1..] {
        if node.members.cluster_id() != one.members.cluster_id() {
            findings.push(
                Finding::new(Grade::Bad, "members", name, format!("belongs to another cluster than {first}"))
                    .next("keep nodes of different clusters in different directories"),
            );
        }
    }
    for (name, node) in nodes {
        let Principal::Replica(id) = node.own else { continue };
        let port = node.settings.listen.port();
        for (other, its) in nodes {
            let known = its.settings.replicas.get(id.index()).map(SocketAddr::port);
            if known.is_some_and(|known| known != port)
                && its.members.cluster_id() == node.members.cluster_id()
            {
                let what = format!(
                    "{name} listens on port {port}, but {other} sends to port {}",
                    known.unwrap_or(0)
                );
                findings.push(Finding::new(Grade::Warn, "places", other, what).next(
                    "correct the table [replicas] in its node.toml, unless `quorate move-replica` has told the cluster \
                     the new address, which then takes precedence, or a NAT in between translates the port",
                ));
            }
        }
    }
    let members = nodes.iter().filter(|(_, node)| node.members.cluster_id() == one.members.cluster_id());
    findings.extend(super::settings::compare(&members.collect::<Vec<_>>()));
    let f = one.members.cluster.f();
    let hosts: BTreeSet<_> = one.settings.replicas.iter().map(SocketAddr::ip).collect();
    let n = one.settings.replicas.len();
    let what = format!("{n} replicas on {}, f = {f}", counted(hosts.len(), "machine"));
    findings.push(if hosts.len() == n {
        Finding::new(Grade::Ok, "places", "cluster", what)
    } else {
        Finding::new(Grade::Warn, "places", "cluster", what)
            .next("fine for trials; in production give each replica its own machine, or one failure takes several down")
    });
    findings
}
