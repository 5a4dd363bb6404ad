//! What all clients saw together follows from the one order, reads that were not ordered included (I14).
//!
//! [`linearizable`](super::linearizable) looks for an order, key by key. Here the order is known: it is the one in
//! which the replicas have executed, and the double says what every prefix of it answers. So whole histories can be
//! compared, with operations on several keys and with calls of the file system. An answer that was ordered stands at
//! its place; a read that was not stands behind some prefix that gives its answer, not before anything that had been
//! answered when it was asked, and before everything that was asked when it had been answered. Each read is put
//! as early as can be: if that does not do, nothing does.

use std::collections::BTreeMap;
use std::sync::Arc;

use quorate_service::Context;
use quorate_wire::{Batch, ClientId, SeqNum, Timestamp};

use super::verdict::{Verdict, Violation};
use crate::app::Double;

/// A request that took effect, at its place in the order.
#[derive(Clone, Debug)]
pub struct Effect {
    /// Its batch.
    pub batch: Arc<Batch>,
    /// Its place there.
    pub index: usize,
    /// The number of the batch.
    pub seq: SeqNum,
    /// The agreed time.
    pub time_ns: u64,
}

/// A call as its client saw it, with its answer. Times are places in the order of all invocations and returns.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// Who asked.
    pub client: ClientId,
    /// Under which number.
    pub timestamp: Timestamp,
    /// When it was asked.
    pub invoked: u64,
    /// When it was answered.
    pub returned: u64,
    /// What was asked.
    pub operation: &'a [u8],
    /// What was answered.
    pub result: &'a [u8],
    /// It was ordered.
    pub ordered: bool,
}

/// Says whether `calls` follow from `effects`, of which `double` in its initial state gives the answers.
pub fn check(effects: &[Effect], mut double: Box<dyn Double>, calls: &[Seen<'_>]) -> Verdict {
    let places = places(effects);
    let place = |call: &Seen<'_>| places.get(&(call.client, call.timestamp)).copied();
    // Behind how many effects each call stands: an ordered one behind itself; a read at each of these.
    let mut stands: Vec<Vec<usize>> =
        calls.iter().map(|c| place(c).filter(|_| c.ordered).into_iter().collect()).collect();
    let windows = windows(calls, &place, effects.len());
    let mut begins: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (i, window) in windows.iter().enumerate() {
        if !calls[i].ordered && window.0 <= window.1 {
            begins.entry(window.0).or_default().push(i);
        }
    }
    let mut open: Vec<usize> = Vec::new();
    let mut time_ns = 0;
    for behind in 0..=effects.len() {
        if let Some(effect) = behind.checked_sub(1).and_then(|at| effects.get(at)) {
            execute(double.as_mut(), effect);
            time_ns = effect.time_ns;
        }
        open.extend(begins.remove(&behind).unwrap_or_default());
        let seq = behind.checked_sub(1).map_or(SeqNum(0), |at| effects[at].seq);
        open.retain(|&i| {
            let Seen { client, timestamp, operation, result, .. } = calls[i];
            let cx = Context { client, timestamp, seq, index: 0, time_ns, read_only: true };
            if double.read(&cx, operation) == result {
                stands[i].push(behind);
            }
            behind < windows[i].1
        });
    }
    earliest(calls, &stands)
}

/// Puts each call as early as can be, in the order of time.
fn earliest(calls: &[Seen<'_>], stands: &[Vec<usize>]) -> Verdict {
    let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * calls.len());
    for (i, call) in calls.iter().enumerate() {
        events.push((call.invoked, false, i));
        events.push((call.returned, true, i));
    }
    events.sort_unstable();
    // What the calls that were answered so far stand behind, and where each call that is under way was put.
    let mut reached = 0;
    let mut put: BTreeMap<usize, usize> = BTreeMap::new();
    for (_, is_return, i) in events {
        if is_return {
            reached = reached.max(put.remove(&i).unwrap_or(0));
            continue;
        }
        let call = &calls[i];
        if call.ordered {
            // Not in the order: another watcher says so.
            let Some(at) = stands[i].first().copied() else { continue };
            if at <= reached {
                return Err(out_of_order(call, &format!("stands at {at}"), reached));
            }
            put.insert(i, at);
        } else {
            let Some(at) = stands[i].iter().copied().find(|at| *at >= reached) else {
                let why = format!(
                    "was read outside of the order, and no state that it may have seen answers that (of those at {:?})",
                    stands[i]
                );
                return Err(out_of_order(call, &why, reached));
            };
            put.insert(i, at);
        }
    }
    Ok(())
}

fn out_of_order(call: &Seen<'_>, why: &str, reached: usize) -> Violation {
    let text = format!(
        "{} t={} (moments {} to {}) {why}; what had been answered before stands at {reached}",
        call.client, call.timestamp.0, call.invoked, call.returned
    );
    Violation::new("one order (I14)", text, &[])
}

/// Where each request took effect, from 1 on.
fn places(effects: &[Effect]) -> BTreeMap<(ClientId, Timestamp), usize> {
    let key = |effect: &Effect| {
        let request = effect.batch.requests().nth(effect.index)?;
        Some((request.client, request.timestamp))
    };
    effects.iter().zip(1..).filter_map(|(effect, at)| Some((key(effect)?, at))).collect()
}

/// The first and the last prefix that each read may have seen, by the ordered calls alone.
fn windows(
    calls: &[Seen<'_>],
    place: &impl Fn(&Seen<'_>) -> Option<usize>,
    last: usize,
) -> Vec<(usize, usize)> {
    let ordered = || calls.iter().filter(|call| call.ordered).filter_map(|call| Some((call, place(call)?)));
    // The highest place of what was answered up to a moment, and the lowest of what was asked from one on.
    let mut answered: Vec<(u64, usize)> = ordered().map(|(call, at)| (call.returned, at)).collect();
    answered.sort_unstable();
    for i in 1..answered.len() {
        answered[i].1 = answered[i].1.max(answered[i - 1].1);
    }
    let mut asked: Vec<(u64, usize)> = ordered().map(|(call, at)| (call.invoked, at)).collect();
    asked.sort_unstable();
    for i in (1..asked.len()).rev() {
        asked[i - 1].1 = asked[i - 1].1.min(asked[i].1);
    }
    let window = |call: &Seen<'_>| {
        let before = answered.partition_point(|(moment, _)| *moment < call.invoked);
        let low = before.checked_sub(1).map_or(0, |i| answered[i].1);
        let after = asked.partition_point(|(moment, _)| *moment < call.returned);
        (low, asked.get(after).map_or(last, |(_, at)| at - 1))
    };
    calls.iter().map(window).collect()
}

fn execute(double: &mut dyn Double, effect: &Effect) {
    let Some(request) = effect.batch.requests().nth(effect.index) else { return };
    let (client, timestamp) = (request.client, request.timestamp);
    let index = u32::try_from(effect.index).unwrap_or(0);
    let cx = Context { client, timestamp, seq: effect.seq, index, time_ns: effect.time_ns, read_only: false };
    double.execute(&cx, request.operation);
}
