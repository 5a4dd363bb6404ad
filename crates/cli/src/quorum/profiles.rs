//! The profiles of faulty servers and clients on the command line.

use quorate_bench::bqs::smr::Leader;
use quorate_quorum::Protocol;
use quorate_quorum_sim::client_profile::ClientProfile;
use quorate_quorum_sim::profile::Profile;

use crate::code::Code;
use crate::fail::{Failure, nearest};
use crate::out;

/// Prints every profile in a line.
pub(super) fn list() {
    out::line("servers, --profile:");
    for (profile, about) in Profile::ALL {
        out::line(format!("  {:<18}{about}{}", profile.name(), only(|protocol| profile.fits(protocol))));
    }
    out::line("clients, --client-profile:");
    for (profile, name, about) in ClientProfile::ALL {
        out::line(format!("  {name:<18}{about}{}", only(|protocol| profile.fits(protocol))));
    }
    out::line("the first leader of smr, --profile:");
    for (name, about) in Leader::ALL {
        out::line(format!("  {name:<18}{about}"));
    }
}

/// Returns the profile of the first leader of replication. None: `fake-value`, with which the leader is correct.
pub(super) fn of_leaders(name: &str, f: u16) -> Result<Option<Leader>, Failure> {
    let names: Vec<&str> = Leader::ALL.iter().map(|(name, _)| *name).chain(["fake-value"]).collect();
    match Leader::from_name(name, f) {
        None if name == "fake-value" => Ok(None),
        None => Err(unknown(name, "--profile", &names)),
        leader => Ok(leader),
    }
}

/// Names the protocols, if it is not all.
fn only(fits: impl Fn(Protocol) -> bool) -> String {
    let all = Protocol::ALL;
    let names: Vec<&str> = all.iter().filter(|(it, _)| fits(*it)).map(|(it, _)| it.name()).collect();
    if names.len() == all.len() { String::new() } else { format!(" ({})", names.join(", ")) }
}

/// Returns the profile of servers with this name.
pub(super) fn of_servers(name: &str, protocol: Protocol) -> Result<Profile, Failure> {
    let names: Vec<String> = Profile::ALL.iter().map(|(profile, _)| profile.name()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let found = Profile::from_name(name).ok_or_else(|| unknown(name, "--profile", &names))?;
    if found.fits(protocol) { Ok(found) } else { Err(useless(name, "--profile", protocol)) }
}

/// Returns the profile of clients with this name.
pub(super) fn of_clients(name: &str, protocol: Protocol) -> Result<ClientProfile, Failure> {
    let names: Vec<&str> = ClientProfile::ALL.iter().map(|(_, name, _)| *name).collect();
    let found = ClientProfile::from_name(name).ok_or_else(|| unknown(name, "--client-profile", &names))?;
    if found.fits(protocol) { Ok(found) } else { Err(useless(name, "--client-profile", protocol)) }
}

fn unknown(name: &str, flag: &str, names: &[&str]) -> Failure {
    let near =
        nearest(name, names.iter().copied()).map_or_else(String::new, |near| format!(". Nearest: {near}"));
    Failure::new(Code::Value, format!("no profile `{name}`{near}"))
        .at(flag.to_owned())
        .next(format!("choose one of: {}", names.join(", ")))
}

fn useless(name: &str, flag: &str, protocol: Protocol) -> Failure {
    let what = format!("the profile `{name}` is of other protocols than {}", protocol.name());
    Failure::new(Code::Value, what).at(flag.to_owned()).next("quorate quorum run --profile list")
}
