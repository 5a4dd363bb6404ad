//! What an operator can do about a cluster, in order of importance: what each finding means, and the command that helps.

use std::net::SocketAddr;

use super::model::{FRESH_S, Health, Picture, Verdict, Word};
use super::probe::ProbeOutcome;
use super::{Class, json, units};

/// One piece of advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What is the matter, and what it means.
    pub what: String,
    /// The command that helps, if there is one.
    pub command: Option<String>,
}

impl Advice {
    fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), command: None }
    }

    /// Returns it as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({"what": self.what, "command": self.command})
    }

    fn run(self, command: impl Into<String>) -> Self {
        Self { command: Some(command.into()), ..self }
    }
}

/// Returns what can be done, the most important first. Nothing: the cluster is healthy. `addresses` are those of the
/// replicas.
pub fn advice(picture: &Picture, addresses: &[SocketAddr]) -> Vec<Advice> {
    let mut all: Vec<Advice> = whole(picture, addresses).into_iter().collect();
    let halted_by = |word| picture.needed() > 0 && word == Word::Silent;
    let mut replicas: Vec<&Health> =
        picture.replicas.iter().filter(|health| health.word != Word::Ok && !halted_by(health.word)).collect();
    replicas.sort_by_key(|health| std::cmp::Reverse(gravity(health.word)));
    all.extend(replicas.into_iter().map(|health| of_replica(health, picture, addresses)));
    // If writes time out too, the cause is above.
    let times_out = |outcome| outcome == Some(ProbeOutcome::Silence);
    let writes = !times_out(picture.outcomes.ordered);
    if writes && times_out(picture.outcomes.read_only) {
        all.push(Advice::new("reads time out: check the load and the network of the replicas"));
    }
    if writes && times_out(picture.outcomes.large) {
        let what = "large operations time out: let TCP through to the ports of all replicas, as well as UDP";
        all.push(Advice::new(what));
    }
    if picture.table_is_full() {
        let (used, room) = picture.lanes;
        all.push(
            Advice::new(format!("the client table is full: {used} of {room} lanes; new ones are refused"))
                .run("quorate explain Q063"),
        );
    }
    if picture.refuses_observer() {
        let what = "the client that observes gets no further lane: `client_lanes_max` may be the bound";
        all.push(Advice::new(what).run("quorate explain Q063"));
    }
    let is_over = |last: u64| picture.now_s.saturating_sub(last) > FRESH_S;
    if all.is_empty() && picture.evidence.iter().any(|item| is_over(item.last)) {
        all.push(Advice::new("the evidence is history: it no longer counts, and nothing has to be done"));
    }
    all
}

/// Returns what concerns the cluster as a whole.
fn whole(picture: &Picture, addresses: &[SocketAddr]) -> Option<Advice> {
    let f = picture.cluster.f();
    let silent: Vec<&Health> = picture.replicas.iter().filter(|health| health.word == Word::Silent).collect();
    match (picture.verdict, picture.needed()) {
        (Verdict::Unsafe, _) => {
            let what = format!(
                "more than f = {f} replicas contradict the others: answers may be wrong. Stop the gateways"
            );
            Some(Advice::new(what).run("quorate explain Q031"))
        }
        (Verdict::Halted, 0) => {
            let what = "a quorum answers, but no operation was executed in time: the network, the disks or the load may be \
                        the cause. Read the logs of the replicas";
            Some(Advice::new(what))
        }
        (Verdict::Halted, needed) if silent.is_empty() => Some(Advice::new(format!(
            "nothing is executed until {needed} more take part: wait for those below"
        ))),
        (Verdict::Halted, needed) => {
            let names: Vec<String> = silent.iter().map(|health| health.id.to_string()).collect();
            let are = match names.len() {
                1 => "one replica does not answer".to_owned(),
                count => format!("{count} replicas do not answer"),
            };
            let start = match (names.len(), needed) {
                (count, 1) if count > 1 => format!("Start {}: one of them is enough", names.join(" or ")),
                (count, needed) if needed < count => {
                    format!("Start {}: {needed} of them are enough", names.join(" or "))
                }
                _ => format!("Start {}", names.join(" and ")),
            };
            let first = silent.first().map_or(0, |health| health.id.0);
            let places = at(&silent, addresses);
            let what =
                format!("{are}: nothing is executed, and nothing acknowledged is lost. {start}{places}");
            Some(Advice::new(what).run(format!("quorate replica --dir replica-{first}")))
        }
        (Verdict::Healthy | Verdict::Degraded, _) => None,
    }
}

/// Returns where silent replicas should be.
fn at(silent: &[&Health], addresses: &[SocketAddr]) -> String {
    let place =
        |health: &&Health| addresses.get(health.id.index()).map(|at| format!("{} at {at}", health.id));
    let places: Vec<String> = silent.iter().filter_map(place).collect();
    if places.is_empty() { String::new() } else { format!(" ({}, UDP and TCP)", places.join(", ")) }
}

/// Returns how grave a state is: evidence before differences before absence before waiting.
fn gravity(word: Word) -> u8 {
    match word {
        Word::Equivocates => 9,
        Word::WrongReplies => 8,
        Word::Diverged => 7,
        Word::SettingsDiffer => 6,
        Word::DiskFull => 5,
        Word::ClockOff => 4,
        Word::Silent => 3,
        Word::Slow => 2,
        Word::Joins => 1,
        Word::BadMac | Word::Ok => 0,
    }
}

fn of_replica(health: &Health, picture: &Picture, addresses: &[SocketAddr]) -> Advice {
    let id = health.id;
    let explain = |class: Class| format!("quorate explain {}", class.code());
    match health.word {
        Word::Equivocates => Advice::new(format!(
            "{id} has contradicted itself: two processes with its key, a stale disk, or a compromised machine"
        ))
        .run(explain(Class::Equivocates)),
        Word::WrongReplies => Advice::new(format!(
            "{id} answers clients wrongly; they use the answers of the others. Its state or program is damaged, or its \
             machine is compromised"
        ))
        .run(explain(Class::WrongReplies)),
        Word::Diverged => {
            Advice::new(format!("{id} has another state than the others. It fetches the right one by itself: wait"))
                .run(explain(Class::Diverged))
        }
        Word::SettingsDiffer => Advice::new(format!(
            "{} ({id}): make [settings] in its cluster.toml equal to that of the others, and restart it",
            health.says_short()
        ))
        .run(format!("quorate doctor --dir replica-{}", id.0)),
        Word::DiskFull => Advice::new(format!("make room on the disk of replica-{}: it continues by itself", id.0)),
        Word::ClockOff => {
            let skew = health.says.as_ref().zip(picture.clock()).map_or(String::new(), |(says, clock)| {
                let off = says.clock_ms.abs_diff(clock) / 1000;
                let way = if says.clock_ms > clock { "ahead" } else { "behind" };
                format!(" ({} {way})", units::duration(off))
            });
            Advice::new(format!("set the clock of replica-{} right{skew}: it votes for nothing", id.0))
                .run("chronyc makestep")
        }
        Word::Silent => {
            let address = addresses.get(id.index());
            let address = address.map_or_else(String::new, |address| format!(", and UDP and TCP {address}"));
            Advice::new(format!("replica-{} is silent: check its process{address}", id.0))
                .run(format!("quorate replica --dir replica-{}", id.0))
        }
        Word::Slow => Advice::new(format!(
            "{id} is behind what the others keep, and fetches the state. If it stays behind, check its disk, load and network"
        )),
        Word::Joins => Advice::new(waits_for(health)),
        Word::BadMac | Word::Ok => Advice::new(format!("bytes from the address of {id} fail authentication"))
            .run(explain(Class::BadMac)),
    }
}

/// Returns what a replica that rejoins waits for.
fn waits_for(health: &Health) -> String {
    let id = health.id;
    let says = health.says.as_ref();
    match says.filter(|says| says.transferring).and_then(json::eta_s) {
        Some(left) => format!("{id} fetches the state, about {} left: wait", units::duration(left)),
        None if says.is_some_and(|says| says.transferring) => format!("{id} fetches the state: wait"),
        None => format!("{id} has the state, and votes after about L more batches (`window`): wait"),
    }
}

#[cfg(test)]
#[path = "advice_tests.rs"]
mod tests;
