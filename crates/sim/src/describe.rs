//! Messages and milestones as text, for traces (style §11).

use std::fmt::Write;

use quorate_pbft::client::step::ClientMilestone;
use quorate_pbft::step::Milestone;
use quorate_wire::codec::Decoded;
use quorate_wire::digest::{ClusterId, Domains};
use quorate_wire::frame::Frame;
use quorate_wire::life::{Life, Recovered, Recovery};
use quorate_wire::message::{
    BodyFetch, BodyKind, BodyMessage, Checkpoint, Collect, Commit, Committed, Data, Fetch, MetaData, NewKey,
    NewView, Piggyback, PrePrepareHead, Prepare, ProofMessage, QueryStable, Reply, ReplyStable, ReqAck,
    ReqReject, RequestBody, Statement, Status, Suspect, VcFetch, ViewChange, decode_any,
};
use quorate_wire::{ClientId, Digest, Kind, SeqNum, ViewNum};

/// How operations and results of a service are shown.
pub trait Words {
    /// Shows an operation.
    fn operation(&self, operation: &[u8]) -> String;
    /// Shows a result.
    fn result(&self, result: &[u8]) -> String;
}

/// Shows a frame: its kind and its fields. Nothing is authenticated here.
pub fn frame(bytes: &[u8], words: &dyn Words) -> String {
    match Frame::decode(bytes) {
        Ok(frame) => message(frame.kind, frame.body, words),
        Err(why) => format!("(no frame: {why:?})"),
    }
}

/// Shows the body of a message of this kind.
pub fn message(kind: Kind, body: &[u8], words: &dyn Words) -> String {
    match fields(kind, body, words) {
        Ok(fields) => format!("{:<11} {fields}", kind.name()).trim_end().to_owned(),
        Err(why) => format!("{:<11} (malformed: {why:?})", kind.name()),
    }
}

fn vnd(view: ViewNum, seq: SeqNum, digest: Digest) -> String {
    format!("v={} n={} d={digest}", view.0, seq.0)
}

fn riding(piggyback: &Piggyback<'_>) -> String {
    let mut text = String::new();
    for (seq, digest) in piggyback.iter() {
        let _ = write!(text, " +commit(n={} d={digest})", seq.0);
    }
    text
}

/// Shows whose replies another replica is to pass on (RP-6).
fn collected(collect: &Collect<'_>) -> String {
    let replies: Vec<_> =
        collect.iter().map(|(_, reply)| format!("{} t={}", reply.client, reply.timestamp.0)).collect();
    format!("replies: {}", replies.join(", "))
}

#[allow(
    clippy::match_wildcard_for_single_variants,
    clippy::wildcard_enum_match_arm,
    reason = "a new kind can be shown before it has words"
)]
fn fields(kind: Kind, body: &[u8], words: &dyn Words) -> Decoded<String> {
    Ok(match kind {
        Kind::Request => {
            let m = RequestBody::decode(body)?;
            let mark = match (m.flags.read_only, m.flags.signed) {
                (false, false) => "",
                (true, false) => " read-only",
                (false, true) => " signed",
                (true, true) => " read-only signed",
            };
            format!("t={} {:?}{mark}", m.timestamp.0, operation(m.operation, words))
        }
        Kind::Reply => {
            let m = Reply::decode(body)?;
            let tentative = if m.tentative { " tentative" } else { "" };
            let result = m.result.map_or_else(|| format!("d={}", m.digest), |r| result(m.client, r, words));
            format!("t={} v={} {result}{tentative}", m.timestamp.0, m.view.0)
        }
        Kind::PrePrepare => {
            let m = PrePrepareHead::decode(body)?;
            let null = if m.counts == (0, 0) && m.choice.is_empty() { " null" } else { "" };
            format!("{}{null}{}", vnd(m.view, m.seq, m.digest), riding(&m.piggyback))
        }
        Kind::Prepare => {
            let m = Prepare::decode(body)?;
            format!("{}{}", vnd(m.view, m.seq, m.digest), riding(&m.piggyback))
        }
        Kind::Commit => {
            let m = Commit::decode(body)?;
            vnd(m.view, m.seq, m.digest)
        }
        Kind::Checkpoint => {
            let m = Checkpoint::decode(body)?;
            let stable = if m.stable { " stable" } else { "" };
            format!("n={} root={}{stable}", m.seq.0, m.digest)
        }
        Kind::Status => status(&Status::decode(body)?),
        Kind::ViewChange => view_change(&ViewChange::decode(body)?),
        Kind::NewView => new_view(&NewView::decode(body)?),
        Kind::NewKey => {
            let m = NewKey::decode(body)?;
            format!("kid={:08x}{}", m.key_id, if m.want { " want" } else { "" })
        }
        Kind::MetaData | Kind::Data | Kind::Fetch => transfer(kind, body)?,
        Kind::QueryStable => format!("nonce={:04x}", QueryStable::decode(body)?.nonce & 0xffff),
        Kind::ReplyStable => {
            let m = ReplyStable::decode(body)?;
            let (checkpoint, prepared, view) = (m.checkpoint.0, m.prepared.0, m.view.0);
            format!("nonce={:04x} c={checkpoint} p={prepared} v={view}", m.nonce & 0xffff)
        }
        Kind::Suspect => {
            let m = Suspect::decode(body, [0; 64])?;
            format!("v={} {:?}", m.view.0, m.reason)
        }
        Kind::BodyFetch => {
            let m = BodyFetch::decode(body)?;
            let what = match m.kind {
                BodyKind::Request => "requests",
                BodyKind::Batch => "batches",
            };
            m.digests().fold(what.to_owned(), |text, digest| format!("{text} {digest}"))
        }
        Kind::Body => match BodyMessage::split(body)? {
            (BodyKind::Request, bytes) => format!("request {}", frame(bytes, words)),
            (BodyKind::Batch, bytes) => format!("batch of {} bytes", bytes.len()),
        },
        Kind::Committed => {
            let m = Committed::decode(body)?;
            vnd(m.view, m.seq, m.digest)
        }
        Kind::Proof => {
            let m = ProofMessage::decode(body)?;
            format!("n={} d={} u={}", m.seq.0, m.digest, m.view.0)
        }
        Kind::ReqAck => {
            let m = ReqAck::decode(body)?;
            format!("{} t={} d={}", m.client, m.timestamp.0, m.digest)
        }
        Kind::VcFetch => {
            let m = VcFetch::decode(body)?;
            format!("v={} of {}", m.view.0, set(m.set))
        }
        Kind::ReqReject => {
            let m = ReqReject::decode(body)?;
            format!("v={} n={} {} t={} d={}", m.view.0, m.seq.0, m.client, m.timestamp.0, m.digest)
        }
        Kind::Collect => collected(&Collect::decode(body)?),
        Kind::Statement => {
            let m = Statement::decode(body)?;
            format!(
                "nonce={:04x} v={} executed={} h={}",
                m.nonce & 0xffff,
                m.view.0,
                m.executed.0,
                m.stable.0.0
            )
        }
        // A kind without words of its own. Digests that are computed are not shown, so any cluster's will do.
        _ => format!("{:?}", decode_any(kind, body, &Domains::new(ClusterId([0; 32])))?),
    })
}

/// Shows an operation: the service's, or a recovery request (RC-6).
pub(crate) fn operation(operation: &[u8], words: &dyn Words) -> String {
    Recovery::decode(operation).map_or_else(
        || words.operation(operation),
        |m| {
            let (life, before) = (m.bits & 0xffff, m.before.bits & 0xffff);
            format!("recovery bound={} life={life:04x} before={before:04x} u={}", m.bound.0, m.floor.0)
        },
    )
}

/// Shows a result: the service's, or the life that a replica has after its recovery request, and the number that opened it.
pub(crate) fn result(client: ClientId, result: &[u8], words: &dyn Words) -> String {
    match (client.replica(), Recovered::decode(result)) {
        (Some(_), Some(m)) => format!("n={} life={:04x}", m.seq.0, m.life.bits & 0xffff),
        _ => words.result(result),
    }
}

/// Shows what belongs to a state transfer.
fn transfer(kind: Kind, body: &[u8]) -> Decoded<String> {
    if kind == Kind::MetaData {
        let m = MetaData::decode(body)?;
        let children = m.children().count();
        return Ok(format!("c={} level={} index={} {children} children", m.checkpoint.0, m.level, m.index));
    }
    if kind == Kind::Data {
        let m = Data::decode(body)?;
        return Ok(format!("page={} lm={} {} bytes", m.index, m.modified.0, m.page.len()));
    }
    let m = Fetch::decode(body)?;
    Ok(format!("c={} level={} index={}", m.checkpoint.0, m.level, m.index))
}

/// Shows a set of replicas.
fn set(bits: u64) -> String {
    let members: Vec<String> = (0..64).filter(|i| bits >> i & 1 == 1).map(|i| format!("r{i}")).collect();
    format!("{{{}}}", members.join(","))
}

fn status(m: &Status<'_>) -> String {
    let state = match (m.normal, m.has_new_view) {
        (true, _) => "",
        (false, true) => " changing, has new-view",
        (false, false) => " changing",
    };
    let have = if m.normal { String::new() } else { format!(" have={}", set(m.have)) };
    let wants =
        m.wants.iter().fold(String::new(), |text, w| format!("{text} want(n={} d={})", w.seq.0, w.digest));
    format!("v={} h={} executed={}{state}{have}{wants}", m.view.0, m.stable.0, m.executed.0)
}

/// Shows a life, but for the first.
fn life(life: &Life) -> String {
    if *life == Life::default() { String::new() } else { format!(" life={:04x}", life.bits & 0xffff) }
}

fn view_change(m: &ViewChange) -> String {
    let list = |items: Vec<String>| format!("{{{}}}", items.join(" "));
    let c = list(m.checkpoints.iter().map(|(seq, root)| format!("{}:{root}", seq.0)).collect());
    let p = list(m.prepared.iter().map(|p| format!("{}:{}@{}", p.seq.0, p.digest, p.view.0)).collect());
    let claims = |q: &quorate_wire::message::PrePrepared| {
        let claims: Vec<String> =
            q.claims.iter().map(|(digest, view)| format!("{digest}@{}", view.0)).collect();
        format!("{}:{}", q.seq.0, claims.join("+"))
    };
    let q = list(m.pre_prepared.iter().map(claims).collect());
    let leave = m.leave.suspects.iter().fold(0, |bits, (replica, _)| bits | 1_u64 << (replica.0 % 64));
    let life = life(&m.life);
    format!("v={}{life} h={} C={c} P={p} Q={q} leave={}", m.view.0, m.stable.0, set(leave))
}

fn new_view(m: &NewView) -> String {
    let v = m.view_changes.iter().fold(0, |bits, (replica, _)| bits | 1_u64 << (replica.0 % 64));
    let (from, root) = m.checkpoint;
    // A liar's may be as high as a number can be.
    let chosen = |(above, digest): (u64, &Digest)| format!("{}:{digest}", from.0.saturating_add(above));
    let x: Vec<String> = (1..).zip(&m.chosen).map(chosen).collect();
    let life = life(&m.life);
    format!("v={}{life} V={} ckpt={}:{root} X={{{}}}", m.view.0, set(v), from.0, x.join(" "))
}

/// Shows a client's milestone.
pub fn client_milestone(milestone: &ClientMilestone) -> String {
    use ClientMilestone as M;
    match *milestone {
        M::Invoked { timestamp, .. } => format!("asks t={}", timestamp.0),
        M::Refused(why) => format!("refused: {why:?}").to_lowercase(),
        M::LacksKeys { timestamp } => format!("holds t={}: too few have its keys", timestamp.0),
        M::Retransmitted { timestamp, times } => format!("retransmits t={} ({times})", timestamp.0),
        M::AskedRest { timestamp } => format!("asks the others, too: t={}", timestamp.0),
        M::FellBack { from, to } => format!("has t={} ordered as t={}", from.0, to.0),
        M::TimestampTaken { from, to } => format!("t={} was used before: asks as t={}", from.0, to.0),
        M::ResultMissing { timestamp, digest } => format!("lacks the result of t={} d={digest}", timestamp.0),
        M::ViewLearned { view } => format!("learns v={}", view.0),
        M::Signing => "signs from now on".to_owned(),
        M::WrongReply { from, timestamp } => format!("{from} contradicts the others about t={}", timestamp.0),
        M::Rejected { reason, .. } => format!("rejected: {}", reason.name()),
    }
}

/// Returns a milestone as numbers, for the hash over a run.
pub fn milestone_numbers(milestone: &Milestone) -> (u64, u64, Digest) {
    use Milestone as M;
    let none = Digest::ZERO;
    match *milestone {
        M::PrePrepared { seq, digest } => (1, seq.0, digest),
        M::Prepared { seq, digest } => (2, seq.0, digest),
        M::Committed { seq, digest } => (3, seq.0, digest),
        M::Executed { seq, tentative } => (4 + u64::from(tentative), seq.0, none),
        M::RolledBack { seq } => (6, seq.0, none),
        M::CheckpointTaken { seq, root } => (7, seq.0, root),
        M::Stable { seq, root } => (8, seq.0, root),
        M::Suspected { view, .. } => (9, view.0, none),
        M::ViewChangeStarted { view } => (10, view.0, none),
        M::NewViewMade { view } => (11, view.0, none),
        M::ViewEntered { view, last } => (12, view.0 ^ (last.0 << 32), none),
        M::TransferStarted { seq } => (13, seq.0, none),
        M::TransferFinished { seq } => (14, seq.0, none),
        M::Restarted { incarnation } => (15, incarnation, none),
        M::RejoinStarted { incarnation } => (16, incarnation, none),
        M::Rejoined { seq } => (17, seq.0, none),
        M::Diverged { seq } => (18, seq.0, none),
        M::Unrepairable { seq } => (19, seq.0, none),
        M::ReadServed { client } => (20, client.0, none),
        M::ReadQueued { client } => (21, client.0, none),
        M::ReadRefused { client } => (22, client.0, none),
        M::OnProbation { client } => (23, client.0, none),
        M::BatchFetched { digest } => (24, 0, digest),
        M::Equivocation { by } => (25, u64::from(by.0), none),
        M::NullProposed { seq } => (26, seq.0, none),
        M::SettingsDiffer { of } => (27, u64::from(of.0), none),
        M::Rejected(reason) => (64 + reason as u64, 0, none),
    }
}

/// Returns the counter in an incarnation, without the random bits below it (spec §14.3).
fn starts(incarnation: u64) -> u64 {
    incarnation >> 20
}

/// Shows a milestone.
pub fn milestone(milestone: &Milestone) -> String {
    use Milestone as M;
    let tentative = |tentative: bool| if tentative { " tentatively" } else { "" };
    match *milestone {
        M::PrePrepared { seq, .. } => format!("pre-prepared n={}", seq.0),
        M::Prepared { seq, .. } => format!("prepared n={}", seq.0),
        M::Committed { seq, .. } => format!("committed-local n={}", seq.0),
        M::Executed { seq, tentative: t } => format!("executed n={}{}", seq.0, tentative(t)),
        M::RolledBack { seq } => format!("rolled back n={}", seq.0),
        M::CheckpointTaken { seq, root } => format!("checkpoint n={} root={root}", seq.0),
        M::Stable { seq, root } => format!("stable n={} root={root}", seq.0),
        M::Suspected { view, reason } => format!("suspects v={} {reason:?}", view.0),
        M::ViewChangeStarted { view } => format!("leaves for v={}", view.0),
        M::NewViewMade { view } => format!("made new-view v={}", view.0),
        M::ViewEntered { view, last } => format!("entered v={} max_x={}", view.0, last.0),
        M::TransferStarted { seq } => format!("transfer to n={} starts", seq.0),
        M::TransferFinished { seq } => format!("transfer to n={} done", seq.0),
        M::Restarted { incarnation } => format!("restarted as incarnation {}", starts(incarnation)),
        M::RejoinStarted { incarnation } => {
            format!("begins to rejoin as incarnation {}", starts(incarnation))
        }
        M::Rejoined { seq } => format!("rejoined at n={}", seq.0),
        M::Diverged { seq } => format!("diverged at n={}", seq.0),
        M::Unrepairable { seq } => format!("unrepairable at n={}", seq.0),
        M::ReadServed { client } => format!("read served to {client}"),
        M::ReadQueued { client } => format!("read queued for {client}"),
        M::ReadRefused { client } => format!("read refused to {client}"),
        M::OnProbation { client } => format!("{client} is on probation"),
        M::BatchFetched { digest } => format!("fetched batch d={digest}"),
        M::Equivocation { by } => format!("{by} equivocates"),
        M::NullProposed { seq } => format!("proposes null n={}", seq.0),
        M::SettingsDiffer { of } => format!("{of} has other settings"),
        M::Rejected(reason) => format!("rejected: {}", reason.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A liar's message has any numbers.
    #[test]
    fn the_highest_numbers_are_shown() {
        let message = NewView {
            view: ViewNum(u64::MAX),
            life: Life::default(),
            view_changes: Vec::new(),
            checkpoint: (SeqNum(u64::MAX), Digest([1; 32])),
            chosen: vec![Digest([2; 32]); 2],
        };
        let shown = new_view(&message);
        assert!(shown.contains(&format!("X={{{}:0202", u64::MAX)), "{shown}");
    }
}
