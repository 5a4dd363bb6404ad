//! What a correct replica may send, whatever happened to it in between (I5, I7, I8, I19, RC-5).

use std::collections::BTreeMap;

use quorate_pbft::Reject;
use quorate_pbft::decision::well_formed;
use quorate_wire::life::Life;
use quorate_wire::message::{Commit, NewView, Piggyback, PrePrepareHead, Prepare, ViewChange};
use quorate_wire::{Cluster, Digest, Kind, ReplicaId, SeqNum, ViewNum};

use super::facts::Facts;
use super::verdict::{Verdict, Violation};

/// A statement of which a replica may make only one version: who, view and number.
type Key = (ReplicaId, u64, u64);

/// Remembers every vote that has left, across restarts.
#[derive(Debug)]
pub struct Votes {
    cluster: Cluster,
    /// The distance of checkpoints K, and the window L.
    sizes: (u64, u64),
    /// PRE-PREPARE and PREPARE.
    prepares: BTreeMap<Key, Digest>,
    commits: BTreeMap<Key, Digest>,
    /// The highest number that each replica has voted for, and the one that it has forgotten.
    highest: Vec<(SeqNum, SeqNum)>,
    /// Bodies, by who, life and view: in a new life a replica may send another VIEW-CHANGE for a view that it had
    /// left before (DV-37).
    view_changes: BTreeMap<(ReplicaId, Life, u64), Vec<u8>>,
    /// Bodies, by who and view.
    new_views: BTreeMap<(ReplicaId, u64), Vec<u8>>,
}

impl Votes {
    /// Returns a watcher that has heard nothing, for checkpoints and logs of these sizes.
    pub fn new(cluster: Cluster, sizes: (u64, u64)) -> Self {
        Self {
            cluster,
            sizes,
            prepares: BTreeMap::new(),
            commits: BTreeMap::new(),
            highest: vec![(SeqNum(0), SeqNum(0)); cluster.n()],
            view_changes: BTreeMap::new(),
            new_views: BTreeMap::new(),
        }
    }

    /// Returns K and L, and the size of a quorum.
    pub fn sizes(&self) -> ((u64, u64), usize) {
        (self.sizes, self.cluster.quorum())
    }

    /// A replica has lost its memory, or finds out that it has.
    pub fn forgot(&mut self, id: ReplicaId) {
        let (voted, forgotten) = &mut self.highest[id.index()];
        *forgotten = *voted;
    }

    /// I8, and the second half of I5: a vote is of the current view, in normal operation, inside of the
    /// window; a COMMIT comes after the batch has prepared. RC-5: a replica that rejoins says nothing of this.
    pub fn says(&self, facts: &Facts, kind: Kind, body: &[u8]) -> Verdict {
        let (_, window) = self.sizes;
        while_member(facts, kind)?;
        for_each_vote(kind, body, |vote| {
            let Vote { view, seq, digest, commit } = vote;
            let in_view = view == facts.view && facts.normal;
            let in_window = seq.0 > facts.stable.0 && seq.0 <= facts.stable.0 + window;
            if !in_view || !in_window {
                let text = format!(
                    "{} sends {} v={} n={} in v={}{}, window ({}, {}]",
                    facts.id,
                    kind.name(),
                    view.0,
                    seq.0,
                    facts.view.0,
                    if facts.normal { "" } else { " (changing)" },
                    facts.stable.0,
                    facts.stable.0 + window
                );
                return Err(Violation::new("votes (I8)", text, &[facts.id]));
            }
            if commit && facts.prepared.get(&seq.0).is_none_or(|(_, prepared)| *prepared != digest) {
                let text = format!("{} commits n={} d={digest}, which it has not prepared", facts.id, seq.0);
                return Err(Violation::new("votes (I5)", text, &[facts.id]));
            }
            Ok(())
        })
    }

    /// I5 and I7: one digest for each view and number, one VIEW-CHANGE for each life and view, one NEW-VIEW for
    /// each view, also across restarts; and each VIEW-CHANGE keeps to VC-5. Asked when the message leaves.
    pub fn sends(&mut self, facts: &Facts, kind: Kind, body: &[u8]) -> Verdict {
        let id = facts.id;
        while_member(facts, kind)?;
        match kind {
            Kind::PrePrepare | Kind::Prepare | Kind::Commit => for_each_vote(kind, body, |vote| {
                let Vote { view, seq, digest, commit } = vote;
                let (voted, forgotten) = &mut self.highest[id.index()];
                if seq <= *forgotten && !facts.misled {
                    let text = format!("{id} votes for n={}, and may have before it lost its memory", seq.0);
                    return Err(Violation::new("votes (RC-5)", text, &[id]));
                }
                *voted = seq.max(*voted);
                let said = if commit { &mut self.commits } else { &mut self.prepares };
                let first = *said.entry((id, view.0, seq.0)).or_insert(digest);
                if first == digest {
                    return Ok(());
                }
                let text = format!(
                    "{id} sends {} v={} n={} for {digest}, and had sent {first}",
                    kind.name(),
                    view.0,
                    seq.0
                );
                Err(Violation::new("votes (I5)", text, &[id]))
            }),
            Kind::ViewChange => {
                let (cluster, (interval, window)) = (self.cluster, self.sizes);
                let message = ViewChange::decode(body).map_err(|_| Reject::BadViewChange);
                let valid = message.and_then(|m| well_formed(cluster, interval, window, &m).map(|()| m));
                let m = valid.map_err(|reason| {
                    let text = format!("{id} sends a VIEW-CHANGE that nobody accepts: {}", reason.name());
                    Violation::new("views (VC-5)", text, &[id])
                })?;
                if facts.misled {
                    return Ok(()); // an old disk: it is one of the f, and cannot know
                }
                // RC-5: what it signed before it lost its memory it may pass on for others, who have named it.
                let is_new = !self.view_changes.contains_key(&(id, m.life, m.view.0));
                if is_new && !facts.remembers && !facts.was_faulty {
                    let text = format!("{id} sends a VIEW-CHANGE for v={} while it rejoins", m.view.0);
                    return Err(Violation::new("votes (RC-5)", text, &[id]));
                }
                once(&mut self.view_changes, (id, m.life, m.view.0), body)
                    .map_err(|()| second(id, m.view.0, kind))?;
                claims_newest(facts, &m)
            }
            Kind::NewView => {
                let view = NewView::decode(body).map_or(0, |m| m.view.0);
                once(&mut self.new_views, (id, view), body).map_err(|()| second(id, view, kind))
            }
            _ => Ok(()),
        }
    }
}

/// RC-5: until it has rejoined, a replica that has no memory says nothing that others would count.
fn while_member(facts: &Facts, kind: Kind) -> Verdict {
    let counts = matches!(
        kind,
        Kind::PrePrepare
            | Kind::Prepare
            | Kind::Commit
            | Kind::Checkpoint
            | Kind::Suspect
            | Kind::ReplyStable
    );
    if facts.remembers || !counts {
        return Ok(());
    }
    let text = format!("{} sends {} while it rejoins", facts.id, kind.name());
    Err(Violation::new("votes (RC-5)", text, &[facts.id]))
}

/// VC-1: P has, for each number, the newest view before this one in which a batch prepared.
fn claims_newest(facts: &Facts, m: &ViewChange) -> Verdict {
    let low = m.stable.max(facts.stable);
    for (seq, (view, digest)) in facts.prepared.range(low.0 + 1..).filter(|(_, (view, _))| *view < m.view) {
        if !m.prepared.iter().any(|p| p.seq.0 == *seq && p.view >= *view) {
            let text = format!(
                "{} prepared n={seq} d={digest} in v={}, and its VIEW-CHANGE for v={} does not say so",
                facts.id, view.0, m.view.0
            );
            return Err(Violation::new("views (VC-1)", text, &[facts.id]));
        }
    }
    Ok(())
}

/// Notes a body; an error if there was a different one.
fn once<K: Ord>(said: &mut BTreeMap<K, Vec<u8>>, key: K, body: &[u8]) -> Result<(), ()> {
    let first = said.entry(key).or_insert_with(|| body.to_vec());
    if *first == body { Ok(()) } else { Err(()) }
}

fn second(id: ReplicaId, view: u64, kind: Kind) -> Violation {
    let text = format!("{id} sends a second, different {} for v={view}", kind.name());
    Violation::new("views (I7)", text, &[id])
}

/// I19: a read is served in normal operation, of nothing tentative, and not before what the view took
/// over has been executed (RO-4).
pub fn may_read(facts: &Facts) -> Verdict {
    let why = if !facts.normal {
        "in a view change".to_owned()
    } else if facts.transferring || facts.diverged {
        "while it fetches state".to_owned()
    } else if !facts.remembers && !facts.misled {
        // One with an old disk cannot know; it is one of the f.
        "before it has rejoined".to_owned()
    } else if facts.executed < facts.read_floor {
        format!("with n={} executed, below n={}", facts.executed.0, facts.read_floor.0)
    } else if let Some((seq, _)) = &facts.tentative {
        format!("with n={} tentative", seq.0)
    } else {
        return Ok(());
    };
    Err(Violation::new("reads (I19)", format!("{} serves a read {why}", facts.id), &[facts.id]))
}

/// A vote, in its own message or piggybacked on another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vote {
    pub(super) view: ViewNum,
    pub(super) seq: SeqNum,
    pub(super) digest: Digest,
    pub(super) commit: bool,
}

/// Calls `each` with view, number and digest of every COMMIT in a message, also of those that are piggybacked.
pub(super) fn for_each_commit(
    kind: Kind,
    body: &[u8],
    mut each: impl FnMut((ViewNum, SeqNum, Digest)) -> Verdict,
) -> Verdict {
    if !matches!(kind, Kind::PrePrepare | Kind::Prepare | Kind::Commit) {
        return Ok(());
    }
    for_each_vote(
        kind,
        body,
        |Vote { view, seq, digest, commit }| {
            if commit { each((view, seq, digest)) } else { Ok(()) }
        },
    )
}

/// Calls `check` with every vote in a message, also with those that are piggybacked.
pub(super) fn for_each_vote(kind: Kind, body: &[u8], mut check: impl FnMut(Vote) -> Verdict) -> Verdict {
    let riding = |view, piggyback: &Piggyback<'_>, check: &mut dyn FnMut(Vote) -> Verdict| {
        piggyback.iter().try_for_each(|(seq, digest)| check(Vote { view, seq, digest, commit: true }))
    };
    match kind {
        Kind::PrePrepare => {
            let Ok(m) = PrePrepareHead::decode(body) else { return Ok(()) };
            check(Vote { view: m.view, seq: m.seq, digest: m.digest, commit: false })?;
            riding(m.view, &m.piggyback, &mut check)
        }
        Kind::Prepare => {
            let Ok(m) = Prepare::decode(body) else { return Ok(()) };
            check(Vote { view: m.view, seq: m.seq, digest: m.digest, commit: false })?;
            riding(m.view, &m.piggyback, &mut check)
        }
        Kind::Commit => {
            let Ok(m) = Commit::decode(body) else { return Ok(()) };
            check(Vote { view: m.view, seq: m.seq, digest: m.digest, commit: true })
        }
        _ => Ok(()),
    }
}
