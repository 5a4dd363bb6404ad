//! Counts of events in a run: at correct replicas, unless stated otherwise.

use std::collections::BTreeMap;

use quorate_pbft::client::step::ClientReject;
use quorate_pbft::step::{Milestone, Reject};
use quorate_service::parallel::Counters as Runs;
use quorate_service::transfer::Refusal;
use quorate_wire::Kind;
use quorate_wire::message::SuspectReason;
use serde_json::{Value, json};

/// Counts of one run, or the sums of several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Inputs given to replicas, liars included.
    pub steps: u64,
    /// Batches executed finally, the first time anywhere.
    pub batches: u64,
    /// Requests that took effect.
    pub commands: u64,
    /// Results that clients accepted.
    pub accepted: u64,
    /// Views entered, view 0 not among them.
    pub view_changes: u64,
    /// State transfers completed.
    pub state_transfers: u64,
    /// Tentative batches dropped.
    pub rollbacks: u64,
    /// Processes started again from their disk.
    pub restarts: u64,
    /// Replicas that lost their memory and vote again.
    pub rejoins: u64,
    /// Read-only requests that a client had ordered in the end.
    pub read_fallbacks: u64,
    /// Replies that a client has found contradicted by `f + 1` others.
    pub wrong_replies: u64,
    /// Reads served outside of the order.
    pub reads_served: u64,
    /// Null batches proposed.
    pub null_batches: u64,
    /// States found wrong by their own replica.
    pub divergences: u64,
    /// Clients that lost their standing at a replica.
    pub probations: u64,
    hand_overs: u64,
    runs: Runs,
    /// Statements that exclude one another, noticed.
    pub equivocations: u64,
    /// Lies told by faulty replicas.
    pub lies: u64,
    /// Messages of a state transfer that were rejected.
    pub refused_answers: u64,
    /// Records written to logs.
    pub records: u64,
    /// Images of checkpoints written.
    pub images: u64,
    /// Clients' signatures verified outside of the step.
    pub signatures: u64,
    /// Frames lost because a paused process did not take them.
    pub overflowed: u64,
    /// Frames handed to the network, by all nodes.
    pub frames: u64,
    /// Faults brought about, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// What the disks have done, by kind.
    pub disk: BTreeMap<&'static str, u64>,
    /// Messages sent, by kind.
    pub kinds: BTreeMap<&'static str, u64>,
    /// Messages rejected by the protocol, by reason.
    pub rejects: BTreeMap<&'static str, u64>,
    /// Messages rejected by clients and at their authenticators, by reason.
    pub client_rejects: BTreeMap<&'static str, u64>,
    /// Frames rejected by the authenticator, by reason.
    pub turned_away: BTreeMap<&'static str, u64>,
}

impl Counters {
    /// A message has left.
    pub fn sent(&mut self, kind: Kind) {
        *self.kinds.entry(kind.name()).or_default() += 1;
    }

    /// A frame was rejected at an authenticator.
    pub fn turned_away(&mut self, why: &'static str) {
        *self.turned_away.entry(why).or_default() += 1;
    }

    /// A message of a state transfer was rejected.
    pub fn refused(&mut self, _why: Refusal) {
        self.refused_answers += 1;
    }

    /// A client turned a message away.
    pub fn client_reject(&mut self, why: ClientReject) {
        *self.client_rejects.entry(why.name()).or_default() += 1;
    }

    /// A client's authenticator has refused a frame.
    pub fn client_turned_away(&mut self, why: &'static str) {
        *self.client_rejects.entry(why).or_default() += 1;
    }

    /// Returns how many views their primaries handed over.
    pub fn hand_overs(&self) -> u64 {
        self.hand_overs
    }

    /// Workers have run requests.
    pub fn ran(&mut self, runs: &Runs) {
        self.runs = self.runs.plus(*runs);
    }

    /// Returns what workers did.
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    /// A fault was brought about.
    pub fn fault(&mut self, what: &'static str) {
        *self.faults.entry(what).or_default() += 1;
    }

    /// A disk has done something.
    pub fn disk(&mut self, what: &'static str) {
        *self.disk.entry(what).or_default() += 1;
    }

    /// A milestone was reported.
    pub fn milestone(&mut self, milestone: &Milestone) {
        match milestone {
            Milestone::ViewEntered { .. } => self.view_changes += 1,
            Milestone::TransferFinished { .. } => self.state_transfers += 1,
            Milestone::RolledBack { .. } => self.rollbacks += 1,
            Milestone::Restarted { .. } => self.restarts += 1,
            Milestone::Rejoined { .. } => self.rejoins += 1,
            Milestone::ReadServed { .. } => self.reads_served += 1,
            Milestone::NullProposed { .. } => self.null_batches += 1,
            Milestone::Diverged { .. } => self.divergences += 1,
            Milestone::OnProbation { .. } => self.probations += 1,
            Milestone::Suspected { reason: SuspectReason::SelfHandoff, .. } => self.hand_overs += 1,
            Milestone::Equivocation { .. } => self.equivocations += 1,
            Milestone::Rejected(reason) => *self.rejects.entry(reason.name()).or_default() += 1,
            Milestone::PrePrepared { .. }
            | Milestone::Prepared { .. }
            | Milestone::Committed { .. }
            | Milestone::Executed { .. }
            | Milestone::CheckpointTaken { .. }
            | Milestone::Stable { .. }
            | Milestone::Suspected { .. }
            | Milestone::ViewChangeStarted { .. }
            | Milestone::NewViewMade { .. }
            | Milestone::TransferStarted { .. }
            | Milestone::RejoinStarted { .. }
            | Milestone::Unrepairable { .. }
            | Milestone::ReadQueued { .. }
            | Milestone::ReadRefused { .. }
            | Milestone::SettingsDiffer { .. }
            | Milestone::BatchFetched { .. } => {}
        }
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        for ((_, sum), (_, more)) in self.numbers_mut().into_iter().zip(other.numbers()) {
            *sum += more;
        }
        self.ran(&other.runs);
        let maps = [
            (&mut self.faults, &other.faults),
            (&mut self.disk, &other.disk),
            (&mut self.kinds, &other.kinds),
            (&mut self.rejects, &other.rejects),
            (&mut self.client_rejects, &other.client_rejects),
            (&mut self.turned_away, &other.turned_away),
        ];
        for (sum, more) in maps {
            for (key, count) in more {
                *sum.entry(*key).or_default() += count;
            }
        }
    }

    /// Returns the kinds of messages that no replica has sent. Those of the node are not among them: what a
    /// replica's process tells people has no place in a simulated world, which has no such process.
    pub fn missing_kinds(&self) -> Vec<&'static str> {
        let kinds = Kind::ALL.into_iter().filter(|kind| !Kind::OF_THE_NODE.contains(kind));
        let names = kinds.map(Kind::name);
        names.filter(|name| !self.kinds.contains_key(name)).collect()
    }

    /// Returns the reasons for which nothing was rejected.
    pub fn missing_rejects(&self) -> Vec<&'static str> {
        Reject::ALL
            .iter()
            .map(|reason| reason.name())
            .filter(|name| !self.rejects.contains_key(name))
            .collect()
    }

    fn numbers(&self) -> Vec<(&'static str, u64)> {
        // One list of names for both directions.
        self.clone().numbers_mut().into_iter().map(|(name, number)| (name, *number)).collect()
    }

    fn numbers_mut(&mut self) -> Vec<(&'static str, &mut u64)> {
        vec![
            ("steps", &mut self.steps),
            ("batches", &mut self.batches),
            ("commands", &mut self.commands),
            ("accepted", &mut self.accepted),
            ("view_changes", &mut self.view_changes),
            ("state_transfers", &mut self.state_transfers),
            ("rollbacks", &mut self.rollbacks),
            ("restarts", &mut self.restarts),
            ("rejoins", &mut self.rejoins),
            ("read_fallbacks", &mut self.read_fallbacks),
            ("wrong_replies", &mut self.wrong_replies),
            ("reads_served", &mut self.reads_served),
            ("null_batches", &mut self.null_batches),
            ("divergences", &mut self.divergences),
            ("probations", &mut self.probations),
            ("hand-overs", &mut self.hand_overs),
            ("equivocations", &mut self.equivocations),
            ("lies", &mut self.lies),
            ("refused_answers", &mut self.refused_answers),
            ("records", &mut self.records),
            ("images", &mut self.images),
            ("signatures", &mut self.signatures),
            ("overflowed", &mut self.overflowed),
            ("frames", &mut self.frames),
        ]
    }

    /// Returns the counts as one JSON object.
    pub fn to_json(&self) -> Value {
        let mut object = serde_json::Map::new();
        for (name, number) in self.numbers() {
            object.insert(name.to_owned(), json!(number));
        }
        let Runs { runs, again, on_pages, early, starts, at_once, most, parked, .. } = self.runs;
        if starts > 0 {
            let workers = json!({
                "runs": runs,
                "at_once_mean": tenths(at_once, starts),
                "at_once_peak": most,
                "ran_again": again,
                "on_pages_only": on_pages,
                "early_replies": early,
                "parked": parked,
            });
            object.insert("workers".to_owned(), workers);
        }
        object.insert("faults".to_owned(), json!(self.faults));
        object.insert("disks".to_owned(), json!(self.disk));
        object.insert("messages".to_owned(), json!(self.kinds));
        object.insert("rejects".to_owned(), json!(self.rejects));
        object.insert("client_rejects".to_owned(), json!(self.client_rejects));
        object.insert("turned_away".to_owned(), json!(self.turned_away));
        Value::Object(object)
    }
}

/// Returns a quotient with one digit behind the point.
fn tenths(sum: u64, count: u64) -> String {
    let tenths = (10 * sum).checked_div(count).unwrap_or(0);
    format!("{}.{}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_take_in_every_count() {
        let mut one = Counters::default();
        for (i, (_, number)) in one.numbers_mut().into_iter().enumerate() {
            *number = u64::try_from(i).unwrap() + 1;
        }
        one.sent(Kind::Commit);
        one.milestone(&Milestone::Rejected(Reject::OtherView));
        let mut sum = one.clone();
        sum.add(&one);
        assert!(sum.numbers().iter().zip(one.numbers()).all(|(a, b)| a.1 == 2 * b.1));
        assert_eq!(sum.kinds["COMMIT"], 2);
        assert_eq!(sum.rejects["other-view"], 2);
        assert_eq!(sum.missing_rejects().len() + 1, Reject::ALL.len());
    }
}
