//! `quorate quorum evidence`: what can be proved against servers and clients.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use quorate_node::members::{Members, client_name};
use quorate_quorum_node::Client as RegisterClient;
use quorate_quorum_node::Config;
use quorate_quorum_node::client::ClientOptions;
use quorate_quorum_node::evidence::{self, Public};

use super::real::failed;
use super::status::{clients, observer};
use crate::code::Code;
use crate::fail::{CommandResult, Failure};
use crate::out;

/// The status where something is proved, or does not hold.
const FOUND: u8 = 1;
/// The status where nobody has answered.
const SILENT: u8 = 3;
/// How long to wait for the answers of servers.
const LOOK: Duration = Duration::from_secs(2);

/// Collect or check evidence: signatures that prove that a server or client is Byzantine
///
/// Servers and clients keep evidence that they find in the signatures that they verify. A third party can check it with the public
/// keys alone, and nobody can forge it. docs/registers-operating.md lists what counts as evidence.
///
/// Examples:
///
///   quorate quorum evidence export evidence.bin
///   quorate quorum evidence check evidence.bin --members quorate-registers/client-0/cluster.toml
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Evidence {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Collect the evidence of all servers and of the clients in DIR, check it, and write it to a file
    ///
    /// Connects with the key of the client in DIR that has the highest number. No other program may use this key at the
    /// same time.
    ///
    /// Exit status: 0 there is no evidence; 1 there is; 3 no server answers, and the clients in DIR have none.
    ///
    /// Example:
    ///
    ///   quorate quorum evidence export evidence.bin
    #[command(verbatim_doc_comment)]
    Export {
        /// File to write. Not written if there is no evidence
        file: PathBuf,
        /// Directory that holds the clients
        #[arg(long, default_value = "quorate-registers")]
        dir: PathBuf,
    },
    /// Check a file of evidence with the public keys of the cluster
    ///
    /// Needs no server and no secret key. The file can also be the file `evidence` in the directory of a server or client.
    ///
    /// Exit status: 0 every entry of the file is proved; 1 some entry is not.
    ///
    /// Example:
    ///
    ///   quorate quorum evidence check evidence.bin --members quorate-registers/client-0/cluster.toml
    #[command(verbatim_doc_comment)]
    Check {
        /// File to check
        file: PathBuf,
        /// The file `cluster.toml` of the cluster, from a source that you trust
        #[arg(long, value_name = "MEMBERS")]
        members: PathBuf,
    },
}

impl Evidence {
    pub(super) fn run(&self) -> CommandResult {
        match &self.what {
            What::Export { file, dir } => export(file, dir),
            What::Check { file, members } => check(file, members),
        }
    }
}

/// Reads the public keys of a register from its file of members.
pub(super) fn public(members: &Path, epoch: u32) -> Result<(Members, Public), Failure> {
    let read = Members::read(members)?;
    let public = Public::new(&read, epoch);
    public.map(|public| (read, public)).ok_or_else(|| {
        Failure::new(Code::Rule, "not the members of a register")
            .at(members.display().to_string())
            .next("give the file cluster.toml of a node of the register")
    })
}

fn export(file: &Path, dir: &Path) -> CommandResult {
    let own = observer(dir)?;
    let epoch = Config::read(&own)?.epoch;
    let (members, public) = public(&own.join("cluster.toml"), epoch)?;
    let client = RegisterClient::open(&own, ClientOptions::default())?;
    let heard = client.evidence(LOOK).map_err(failed)?;
    let of = (members.cluster_id(), epoch);
    let clients = clients(dir).into_iter().map(|(number, dir)| {
        let kept = evidence::of_directory(&dir, of);
        (client_name(number), kept.list().to_vec())
    });
    let servers = heard.iter().map(|(server, list)| (format!("server {}", server.0), list.clone()));
    let mut all = evidence::Evidence::default();
    for (who, list) in servers.chain(clients) {
        for accusation in &list {
            if !public.holds(accusation) {
                out::line(format!("{who} has something that proves nothing"));
            } else if all.add(accusation.clone()) {
                out::line(format!("PROVED {}", evidence::line(accusation)));
            }
        }
    }
    if all.list().is_empty() && heard.is_empty() {
        out::line("no server answers");
        return Ok(ExitCode::from(SILENT));
    }
    if all.list().is_empty() {
        out::line(format!("no evidence; {} of {} servers answered", heard.len(), client.servers()));
        return Ok(ExitCode::SUCCESS);
    }
    std::fs::write(file, all.bytes(of)).map_err(|error| {
        Failure::new(Code::Unwritable, format!("cannot be written: {error}")).at(file.display().to_string())
    })?;
    out::line(format!("wrote {}", file.display()));
    Ok(ExitCode::from(FOUND))
}

fn check(file: &Path, members: &Path) -> CommandResult {
    let at = || file.display().to_string();
    let bytes = std::fs::read(file)
        .map_err(|error| Failure::new(Code::Unreadable, format!("cannot be read: {error}")).at(at()))?;
    let (of, found) = evidence::Evidence::parse(&bytes).map_err(|error| {
        Failure::new(Code::Unreadable, format!("is no evidence: {error}"))
            .at(at())
            .next("quorate quorum evidence export FILE")
    })?;
    let (members, public) = public(members, of.1)?;
    if members.cluster_id() != of.0 {
        return Err(Failure::new(Code::Rule, "is evidence of another cluster")
            .at(at())
            .next("give the file cluster.toml of that cluster with --members"));
    }
    let mut proved = true;
    for accusation in found.list() {
        let holds = public.holds(accusation);
        proved &= holds;
        let word = if holds { "PROVED" } else { "NOT PROVED" };
        out::line(format!("{word} {}", evidence::line(accusation)));
    }
    Ok(if proved { ExitCode::SUCCESS } else { ExitCode::from(FOUND) })
}
