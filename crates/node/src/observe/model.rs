//! The observer's verdict: a function of the replicas' statements, the clients' evidence and the observer's clock.
//! No I/O happens here. A replica's statement about another replica is not trusted: an accusation needs f + 1
//! replicas that agree, or a client that the observer trusts.

use std::collections::{BTreeMap, BTreeSet};

use quorate_wire::message::Statement;
use quorate_wire::{Cluster, ReplicaId, SeqNum, ViewNum};

use super::agreement::{Agreement, Cell};
use super::probe::{ProbeOutcome, ProbeOutcomes};
use crate::home::settings::shared_names;
use crate::run::client::ledger::{Class, Item};

/// Evidence older than this, in seconds, is history: it no longer affects the verdict.
pub const FRESH_S: u64 = 60;

/// A clock that is off by more than this votes for nothing, in milliseconds (`clock_skew` as it is by default, ND-2),
/// and what statements take to come.
const CLOCK_MS: u64 = 2_500;

/// What a reader knows at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The size of the cluster.
    pub cluster: Cluster,
    /// The statements that arrived within the observer's time-out, in the order of the replicas' ids.
    pub statements: Vec<Option<Statement>>,
    /// The digests of the shared settings that the replicas have stated, in the same order.
    pub settings: Vec<Option<u64>>,
    /// The evidence of the clients.
    pub evidence: Vec<Item>,
    /// What became of the observer's own operations.
    pub outcomes: ProbeOutcomes,
    /// The observer's clock, in seconds since 1970.
    pub now_s: u64,
}

/// The verdict on a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Every replica is healthy.
    Healthy,
    /// It serves requests, and tolerates fewer further faults.
    Degraded,
    /// It does not serve requests; nothing is lost.
    Halted,
    /// More than f replicas contradict the others: answers may be wrong.
    Unsafe,
}

impl Verdict {
    /// Returns the name, as it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Healthy => "HEALTHY",
            Self::Degraded => "DEGRADED",
            Self::Halted => "HALTED",
            Self::Unsafe => "UNSAFE",
        }
    }
}

/// The state of a replica, as shown to users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Nothing is wrong with it.
    Ok,
    /// It fetches state from the others: it fell behind, or lost its state.
    Joins,
    /// It did not answer in time.
    Silent,
    /// Its disk is full, so it makes no statement that counts.
    DiskFull,
    /// It answers, and is behind the oldest batch that the others still have.
    Slow,
    /// Its clock is too far from the others' for it to vote.
    ClockOff,
    /// Settings that all replicas must have alike differ from those of most others: it may contradict them without
    /// being faulty.
    SettingsDiffer,
    /// Bytes from its address fail authentication.
    BadMac,
    /// Its state differs from that of f + 1 others.
    Diverged,
    /// f + 1 others contradicted its replies.
    WrongReplies,
    /// It contradicted itself.
    Equivocates,
}

impl Word {
    /// Returns the name of the state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Joins => "rejoining",
            Self::Silent => "silent",
            Self::DiskFull => "disk full",
            Self::Slow => "slow",
            Self::ClockOff => "clock-off",
            Self::SettingsDiffer => "settings differ",
            Self::BadMac => Class::BadMac.name(),
            Self::Diverged => Class::Diverged.name(),
            Self::WrongReplies => Class::WrongReplies.name(),
            Self::Equivocates => Class::Equivocates.name(),
        }
    }

    /// Returns whether its statements are unreliable: there is evidence of misbehaviour, or its settings differ. Who lies
    /// gains nothing by stating other settings.
    pub fn is_proven(self) -> bool {
        matches!(self, Self::SettingsDiffer | Self::Diverged | Self::WrongReplies | Self::Equivocates)
    }

    /// Returns whether it does not take part at present.
    pub fn is_away(self) -> bool {
        matches!(self, Self::Joins | Self::Silent | Self::DiskFull | Self::Slow | Self::ClockOff)
    }
}

/// One replica, as the observer sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// Its id.
    pub id: ReplicaId,
    /// Its state.
    pub word: Word,
    /// Its statement about itself.
    pub says: Option<Statement>,
    /// The settings whose values differ from those of most others, if it says enough to name them.
    pub differs: Vec<&'static str>,
    /// How many batches it is behind those that f + 1 others have executed.
    pub behind: u64,
    /// Whether its digest agrees at the newest checkpoint that f + 1 agree on.
    pub agrees: Cell,
    /// The evidence against it, newest first, including history.
    pub evidence: Vec<Item>,
}

/// A cluster, as the observer sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// The verdict.
    pub verdict: Verdict,
    /// How many more crashed replicas it tolerates before it halts.
    pub may_stop: usize,
    /// How many more Byzantine replicas it tolerates before answers can be wrong.
    pub may_lie: usize,
    /// Its size.
    pub cluster: Cluster,
    /// The newest view that f + 1 replicas are in, or beyond. None: fewer than f + 1 replicas answered.
    pub view: Option<ViewNum>,
    /// The last batch that f + 1 replicas have executed.
    pub executed: SeqNum,
    /// Client lanes whose last reply is kept, and how many can be, as f + 1 replicas say: at the bound clients with
    /// a new lane are refused.
    pub lanes: (u64, u64),
    /// What became of the observer's own operations.
    pub outcomes: ProbeOutcomes,
    /// The replicas, in the order of their ids.
    pub replicas: Vec<Health>,
    /// Which replicas agree at which checkpoint.
    pub agreement: Agreement,
    /// All evidence, newest first, including history.
    pub evidence: Vec<Item>,
    /// The observer's clock, in seconds since 1970.
    pub now_s: u64,
}

impl Picture {
    /// Returns the primary of the view.
    pub fn primary(&self) -> Option<ReplicaId> {
        self.view.map(|view| self.cluster.primary(view))
    }

    /// Returns the view and its primary, in words.
    pub fn view_text(&self) -> String {
        self.view.map_or_else(
            || "view unknown".to_owned(),
            |view| format!("view {}, primary {}", view.0, self.cluster.primary(view)),
        )
    }

    /// Returns the time of day of the replica in the middle, in milliseconds since 1970, if a quorum has stated theirs.
    pub fn clock(&self) -> Option<u64> {
        clock(self.cluster, self.replicas.iter().filter_map(|replica| replica.says.as_ref()))
    }

    /// Returns how many replicas answered.
    pub fn answered(&self) -> usize {
        self.replicas.iter().filter(|replica| replica.says.is_some()).count()
    }

    /// Returns how many replicas must return before a quorum can serve requests again; 0 if a quorum takes part.
    pub fn needed(&self) -> usize {
        let away = self.replicas.iter().filter(|replica| replica.word.is_away()).count();
        self.cluster.quorum().saturating_sub(self.cluster.n() - away)
    }

    /// Returns how many more faults the cluster tolerates, or what it needs to serve requests again.
    pub fn margins(&self) -> String {
        let counted = |count: usize, one: &str, many: &str| match count {
            0 => format!("no more {many}"),
            1 => format!("1 more {one}"),
            count => format!("{count} more {many}"),
        };
        match self.needed() {
            0 => format!(
                "tolerates {}, {}",
                counted(self.may_stop, "crash", "crashes"),
                counted(self.may_lie, "Byzantine replica", "Byzantine replicas")
            ),
            needed => format!("needs {} to serve again", counted(needed, "replica", "replicas")),
        }
    }

    /// Returns one sentence for each replica that is not healthy.
    pub fn troubles(&self) -> Vec<String> {
        let troubled = self.replicas.iter().filter(|replica| replica.word != Word::Ok);
        let full = self.table_is_full().then(|| "client table full".to_owned());
        let replicas = troubled.map(|replica| format!("{} {}", replica.id, replica.says_short()));
        replicas.chain(full).chain(self.unserved().into_iter().map(str::to_owned)).collect()
    }

    /// Returns which operations of the observer were not served, apart from what the replicas' states say.
    pub fn unserved(&self) -> Vec<&'static str> {
        let ProbeOutcomes { ordered, read_only, large } = self.outcomes;
        let outcomes = [
            (ordered, "writes time out"),
            (read_only, "reads time out"),
            (large, "large operations time out"),
        ];
        let silent = outcomes.into_iter().filter(|(outcome, _)| *outcome == Some(ProbeOutcome::Silence));
        let refused = self.refuses_observer().then_some("new lanes are refused");
        silent.map(|(_, text)| text).chain(refused).collect()
    }

    /// Says whether the observer's own lanes are refused, although the client table has room.
    pub fn refuses_observer(&self) -> bool {
        let ProbeOutcomes { ordered, read_only, large } = self.outcomes;
        !self.table_is_full() && [ordered, read_only, large].contains(&Some(ProbeOutcome::NoPlace))
    }

    /// Says whether clients with a new lane are refused.
    pub fn table_is_full(&self) -> bool {
        self.lanes.1 > 0 && self.lanes.0 >= self.lanes.1
    }
}

impl Health {
    /// Returns the state, with the progress of a replica that fetches state.
    pub fn says_short(&self) -> String {
        match (&self.says, self.word) {
            (_, Word::SettingsDiffer) if !self.differs.is_empty() => {
                format!("settings differ: {}", self.differs.join(", "))
            }
            (Some(says), Word::Joins) if says.transfer.1 > 0 => {
                format!("rejoining {} %", says.transfer.0.saturating_mul(100) / says.transfer.1)
            }
            (_, word) => word.name().to_owned(),
        }
    }
}

/// Computes the verdict.
pub fn judge(reading: Reading) -> Picture {
    let Reading { cluster, statements, settings, mut evidence, outcomes, now_s } = reading;
    let agreement = Agreement::of(cluster, &statements);
    let weak = |number: fn(&Statement) -> u64| weak_max(cluster, statements.iter().flatten().map(number));
    let enough = statements.iter().flatten().count() >= cluster.weak();
    let view = enough.then(|| ViewNum(weak(|s| s.view.0)));
    let executed = SeqNum(weak(|s| s.executed.0));
    let stable = SeqNum(weak(|s| s.stable.0.0));
    let lanes = (weak(|s| u64::from(s.lanes.0)), weak(|s| u64::from(s.lanes.1)));
    let is_full = lanes.1 > 0 && lanes.0 >= lanes.1;
    let clock = clock(cluster, statements.iter().flatten());
    evidence.retain(|item| cluster.contains(item.replica));
    evidence.extend(seen_here(cluster, &agreement, &statements, now_s));
    evidence.sort_by(|a, b| (b.last, a.replica, b.class).cmp(&(a.last, b.replica, a.class)));
    let at = agreement.agreed.iter().rposition(Option::is_some);
    let mut settings = differing(cluster, &statements, &settings);
    let replicas = cluster.replicas().zip(statements).map(|(id, says)| {
        let own: Vec<Item> = evidence.iter().filter(|item| item.replica == id).cloned().collect();
        let behind = says.as_ref().map_or(0, |says| executed.0.saturating_sub(says.executed.0));
        let row = agreement.rows.get(id.index());
        let agrees = at.and_then(|at| row?.get(at).copied()).unwrap_or(Cell::Absent);
        let differs = settings.remove(&id);
        let word = match differs {
            Some(_) => Word::SettingsDiffer,
            None => word(id, says.as_ref(), &own, &agreement, (stable, clock), now_s),
        };
        Health { id, word, says, differs: differs.unwrap_or_default(), behind, agrees, evidence: own }
    });
    let replicas: Vec<Health> = replicas.collect();
    let count = |is: fn(Word) -> bool| replicas.iter().filter(|replica| is(replica.word)).count();
    let (proven, away) = (count(Word::is_proven), count(Word::is_away));
    let verdict = if proven > cluster.f() || !agreement.split.is_empty() {
        Verdict::Unsafe
    } else if cluster.n() - away < cluster.quorum() || outcomes.ordered == Some(ProbeOutcome::Silence) {
        Verdict::Halted
    } else if is_full || !outcomes.all_served() || replicas.iter().any(|replica| replica.word != Word::Ok) {
        Verdict::Degraded
    } else {
        Verdict::Healthy
    };
    // Where clients of some kind are not served, nothing is in reserve for them.
    let is_short = verdict == Verdict::Halted || outcomes.are_missing();
    let may_stop = if is_short { 0 } else { cluster.f().saturating_sub(proven + away) };
    let may_lie = if verdict == Verdict::Unsafe { 0 } else { cluster.f().saturating_sub(proven) };
    Picture {
        verdict,
        may_stop,
        may_lie,
        cluster,
        view,
        executed,
        lanes,
        outcomes,
        replicas,
        agreement,
        evidence,
        now_s,
    }
}

/// Returns the largest number that f + 1 reach: one of those is correct, whatever f liars say.
fn weak_max(cluster: Cluster, numbers: impl Iterator<Item = u64>) -> u64 {
    let mut numbers: Vec<u64> = numbers.collect();
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    numbers.get(cluster.weak() - 1).copied().unwrap_or(0)
}

/// What a replica has stated of its settings.
struct Stated<'a> {
    id: ReplicaId,
    /// The digest of all that decide about the state.
    digest: u64,
    says: &'a Statement,
}

impl Stated<'_> {
    /// Returns whether the lists of two replicas can be compared. Another version may have other settings, and an
    /// earlier one states none.
    fn is_comparable(&self, other: &Self) -> bool {
        let states = |one: &Self| !one.says.settings.is_empty();
        self.says.version == other.says.version && states(self) && states(other)
    }

    /// Returns whether two replicas have the same settings, as far as they can be compared.
    fn is_like(&self, other: &Self) -> bool {
        self.digest == other.digest
            && (!self.is_comparable(other) || self.says.settings == other.says.settings)
    }

    /// Returns the settings that differ from another replica's.
    fn differs_from(&self, other: &Self) -> Vec<&'static str> {
        if !self.is_comparable(other) {
            return Vec::new();
        }
        let values = self.says.settings.iter().zip(&other.says.settings);
        shared_names().zip(values).filter(|(_, (own, others))| own != others).map(|(name, _)| name).collect()
    }
}

/// Returns the replicas whose settings are not those of most others that answered, with these settings. Fewer than f + 1
/// that are equal say nothing; of two that are equally frequent, that of the first replica counts.
fn differing(
    cluster: Cluster,
    statements: &[Option<Statement>],
    settings: &[Option<u64>],
) -> BTreeMap<ReplicaId, Vec<&'static str>> {
    let all = cluster.replicas().zip(statements).zip(settings);
    let stated: Vec<Stated<'_>> = all
        .filter_map(|((id, says), digest)| Some(Stated { id, digest: (*digest)?, says: says.as_ref()? }))
        .collect();
    let votes = |one: &Stated<'_>| stated.iter().filter(|other| one.is_like(other)).count();
    let most = stated.iter().rev().max_by_key(|one| votes(one));
    let Some(most) = most.filter(|one| votes(one) >= cluster.weak()) else { return BTreeMap::new() };
    let others = stated.iter().filter(|one| !one.is_like(most));
    others.map(|one| (one.id, one.differs_from(most))).collect()
}

/// Returns the time of day of the replica in the middle, in milliseconds, if a quorum has said theirs: with f that lie,
/// it is between those of two correct ones.
fn clock<'a>(cluster: Cluster, statements: impl Iterator<Item = &'a Statement>) -> Option<u64> {
    let mut clocks: Vec<u64> = statements.map(|s| s.clock_ms).filter(|ms| *ms > 0).collect();
    clocks.sort_unstable();
    let enough = clocks.len() >= cluster.quorum();
    clocks.get(clocks.len() / 2).copied().filter(|_| enough)
}

/// Returns what the reader itself finds in the statements: states that differ, and contradictions that
/// f + 1 replicas tell of.
fn seen_here(
    cluster: Cluster,
    agreement: &Agreement,
    statements: &[Option<Statement>],
    now_s: u64,
) -> Vec<Item> {
    let mut items = Vec::new();
    for id in cluster.replicas() {
        let count = u64::try_from(agreement.differs_at(id).count()).unwrap_or(u64::MAX);
        if count > 0 {
            let at: Vec<String> = agreement.differs_at(id).map(|seq| seq.0.to_string()).collect();
            let by = format!("the digests at {}", at.join(", "));
            items.push(Item { class: Class::Diverged, replica: id, count, first: now_s, last: now_s, by });
        }
        let testify = statements.iter().zip(cluster.replicas()).filter_map(|(statement, witness)| {
            let seen = statement.as_ref()?.contradictions.iter().find(|seen| seen.by == id)?;
            (witness != id).then_some((witness, seen))
        });
        let mut testimony: Vec<_> = testify.collect();
        if testimony.len() >= cluster.weak() {
            // One of f + 1 witnesses is correct: at least this count and age are true.
            testimony.sort_by_key(|(_, seen)| seen.age_ms);
            let age_s = testimony.get(cluster.weak() - 1).map_or(0, |(_, seen)| seen.age_ms / 1000);
            let count = weak_max(cluster, testimony.iter().map(|(_, seen)| seen.count));
            let witnesses: BTreeSet<String> = testimony.iter().map(|(who, _)| who.to_string()).collect();
            let by = witnesses.into_iter().collect::<Vec<_>>().join(" ");
            let last = now_s.saturating_sub(age_s);
            items.push(Item { class: Class::Equivocates, replica: id, count, first: last, last, by });
        }
    }
    items
}

/// Returns the state of a replica. Evidence takes precedence over its own statement.
fn word(
    id: ReplicaId,
    says: Option<&Statement>,
    evidence: &[Item],
    agreement: &Agreement,
    (stable, clock): (SeqNum, Option<u64>),
    now_s: u64,
) -> Word {
    let fresh = |class| {
        let is = |item: &&Item| item.class == class && now_s.saturating_sub(item.last) <= FRESH_S;
        evidence.iter().any(|item| is(&item))
    };
    let Some(says) = says else { return Word::Silent };
    if fresh(Class::Equivocates) {
        Word::Equivocates
    } else if fresh(Class::WrongReplies) {
        Word::WrongReplies
    } else if agreement.differs_now(id) {
        Word::Diverged
    } else if says.disk_full {
        Word::DiskFull
    } else if says.transferring || says.rejoining {
        Word::Joins
    } else if clock.is_some_and(|clock| says.clock_ms > 0 && says.clock_ms.abs_diff(clock) > CLOCK_MS) {
        Word::ClockOff
    } else if says.executed < stable {
        Word::Slow
    } else if fresh(Class::BadMac) {
        Word::BadMac
    } else {
        Word::Ok
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
pub(super) mod tests;
