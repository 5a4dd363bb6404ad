//! The lives of the replicas, as pages of the state (RC-11): whose old statements count, and how far.
//!
//! ```text
//! entry, 64 bytes   state 1 | - 7 | life 16 | life before it 16 | u 8 | n_R 8 | free at 8  one for each replica, in order
//! ```
//!
//! The table has the last 4 KiB of the state. It stands apart from lanes: a lane may be given to somebody else,
//! and then nobody would know any more which of a replica's statements are of a life that has ended.

use alloc::vec::Vec;

use quorate_wire::ReplicaId;
use quorate_wire::codec::{Reader, Writer};
use quorate_wire::life::{Lives, Recovered, Recovery};

use crate::page::{PageFault, PageStore};
use crate::service::Context;
use crate::state::view::View;
use crate::stop::Stop;

/// Entries of the table: one for each replica that a cluster can have.
const ENTRIES: usize = quorate_wire::cluster::REPLICAS_MAX as usize;
/// Bytes of an entry.
const ENTRY_BYTES: usize = 64;
/// The first byte of an entry that is in use.
const IN_USE: u8 = 1;
/// Where the lives stand in an entry.
const LIVES_AT: usize = 8;
/// Where the agreed time stands at which none of the lives that the replica has begun takes up any of its time.
const FREE_AT: usize = LIVES_AT + Lives::BYTES;
/// How much of the agreed time each life takes up, in nanoseconds: a minute.
const LIFE_NS: u64 = 60 * 1_000_000_000;
/// How many lives a replica can begin at once if it has begun none for long. A process that rejoins can start more than once.
const LIVES_AT_ONCE: u64 = 10;

/// Returns how many pages of a size the table takes.
pub(crate) fn pages(page_bytes: usize) -> u32 {
    u32::try_from((ENTRIES * ENTRY_BYTES).div_ceil(page_bytes)).unwrap_or(u32::MAX)
}

/// Returns the page of a replica's entry and where in the page it is; none for a number that no replica has.
fn place(replica: ReplicaId, page_bytes: usize) -> Option<(u32, usize)> {
    let byte = replica.index() * ENTRY_BYTES;
    let page = u32::try_from(byte / page_bytes).ok()?;
    (replica.index() < ENTRIES).then_some((page, byte % page_bytes))
}

/// Executes what a replica asks for: a recovery request opens a life of its sender, if it names the life that its sender
/// has (RC-6). Returns its result; none if it is no recovery request, or the replica has begun too many lives, and then
/// nothing is done. Each life can cost all replicas their view, so a liar must not begin them at will (L150). Another
/// replica asks again.
pub(crate) fn open(
    view: &mut View<'_>,
    replica: ReplicaId,
    cx: Context,
    operation: &[u8],
) -> Result<Option<Recovered>, Stop> {
    let Context { timestamp, seq, time_ns, .. } = cx;
    let Some((page, at)) = place(replica, view.page_bytes()) else { return Ok(None) };
    let Some(request) = Recovery::decode(operation) else { return Ok(None) };
    let (known, free_at) = decode(view.page(page)?, at).unwrap_or_default();
    let Some(opened) = known.after(timestamp, &request) else { return Ok(Some(known.recovered())) };
    let free_at = free_at.max(time_ns).saturating_add(LIFE_NS);
    if mutant!(M192, free_at > time_ns.saturating_add(LIVES_AT_ONCE * LIFE_NS), false) {
        return Ok(None);
    }
    // So that a replica that starts again does not take the rejoin for a new one (L55).
    let lives = Lives { noted: seq, ..opened };
    let mut bytes = Vec::with_capacity(ENTRY_BYTES);
    bytes.push(IN_USE);
    bytes.resize(LIVES_AT, 0);
    lives.encode(&mut Writer::new(&mut bytes));
    bytes.extend_from_slice(&free_at.to_le_bytes());
    view.write(page, at, &bytes)?;
    Ok(Some(lives.recovered()))
}

/// Returns the lives of every replica that has had more than one, by the committed state; `first` is the first page
/// of the table.
pub(crate) fn read(
    store: &dyn PageStore,
    page_bytes: usize,
    first: u32,
) -> Result<Vec<(ReplicaId, Lives)>, PageFault> {
    let mut all = Vec::new();
    for index in 0..ENTRIES {
        let id = ReplicaId::at(index);
        let Some((page, at)) = place(id, page_bytes) else { break };
        let Some(bytes) = store.get(first.saturating_add(page))? else { continue };
        if let Some((lives, _)) = decode(bytes, at) {
            all.push((id, lives));
        }
    }
    Ok(all)
}

/// Reads an entry, with the time at [`FREE_AT`]; none if it is not in use.
fn decode(page: &[u8], at: usize) -> Option<(Lives, u64)> {
    let bytes: &[u8; ENTRY_BYTES] = page.get(at..)?.first_chunk()?;
    let lives =
        (bytes[0] == IN_USE).then(|| Lives::decode(&mut Reader::new(&bytes[LIVES_AT..])).ok()).flatten()?;
    Some((lives, u64::from_le_bytes(*bytes[FREE_AT..].first_chunk()?)))
}
