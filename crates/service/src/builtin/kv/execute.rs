//! What the store does for a [`Further`] command.

use alloc::string::String;
use alloc::vec::Vec;

use quorate_wire::ClusterId;
use quorate_wire::digest::Domains;
use quorate_wire::message::RESULT_BYTES_MAX;

use super::all::{All, MARK_BYTES};
use super::asked::Asked;
use super::collection::copy_elements;
use super::command::{Command, Condition, Items};
use super::decimal::Decimal;
use super::error::{KvError, MANY_BYTES_MAX, SCAN_MAX, VALUE_BYTES_MAX, decimal, many, number};
use super::further::{Extend, Further, Life, Rule, Sort};
use super::operation::{Answer, Failure};
use super::store::{Deadline, Store};

/// The same, if it has to see all.
const SCAN_ALL_MAX: u32 = 100_000;
/// A random key is one of this many.
const RANDOM_MAX: u64 = 1024;

/// Executes a command, and appends the answer.
#[allow(clippy::too_many_lines, reason = "a case for each command")]
pub(super) fn further(
    store: &mut Store<'_, '_>,
    further: &Further<'_>,
    out: &mut Vec<u8>,
) -> Result<(), KvError> {
    match *further {
        Further::Set { key, value, condition, life, get } => {
            let deadline = match until(store, life)? {
                None if life == Life::AsBefore => Deadline::Keep,
                None => Deadline::Never,
                Some(at) => Deadline::At(at),
            };
            if get {
                store.get(key, out)?;
            }
            let there = store.is_there(key)?;
            let holds = condition.is_none_or(|condition| there == (condition == Condition::Present));
            if holds {
                store.put(key, value, deadline)?;
            }
            if !get {
                let answer = if holds { Answer::Done } else { Answer::Nil };
                answer.encode(out);
            }
        }
        Further::GetEx { key, life } => {
            store.get(key, out)?;
            // As in Redis, a wrong time is no error if there is no such key.
            if life != Life::AsBefore && store.find(key)?.is_some() {
                let until = until(store, life)?;
                store.expire_at(key, until)?;
            }
        }
        Further::Expire { key, time_ms, since_1970, rule } => {
            let at = if since_1970 { time_ms } else { later(store, time_ms)? };
            number(usize::from(expire_if_allowed(store, key, at, rule)?), out);
        }
        Further::Deadline { key } => {
            let at = match (store.is_there(key)?, store.deadline(key)?) {
                (false, _) => -2,
                (true, None) => -1,
                (true, Some(at)) => i64::try_from(at).unwrap_or(i64::MAX),
            };
            Answer::Value(decimal(at).as_bytes()).encode(out);
        }
        Further::AddDecimal { key, by } => {
            let by = Decimal::read(by).ok_or(KvError::Failure(Failure::NotADecimal))?;
            let old = store.value(key)?.unwrap_or_else(|| b"0".to_vec());
            let old = Decimal::read(&old).ok_or(KvError::Failure(Failure::NotADecimal))?;
            let sum: String = old.checked_add(by).ok_or(KvError::Failure(Failure::Overflow))?.text();
            store.put(key, sum.as_bytes(), Deadline::Keep)?;
            Answer::Value(sum.as_bytes()).encode(out);
        }
        Further::Range { key, start, end } => {
            let value = store.value(key)?.unwrap_or_default();
            Answer::Value(between(&value, start, end)).encode(out);
        }
        Further::Overwrite { key, offset, value: part } => overwrite(store, key, offset, part, out)?,
        Further::SetAbsent(items) => {
            for key in items.iter().step_by(2) {
                if store.is_there(key)? {
                    number(0, out);
                    return Ok(());
                }
            }
            store.command(&Command::SetMany(items), &mut Vec::new())?;
            number(1, out);
        }
        Further::Copy { from, to, database, replace, remove } => {
            let to = (database.unwrap_or_else(|| store.database()), to);
            copy(store, from, to, (replace, remove), out)?;
        }
        Further::RemoveIf { key, value } => {
            let is = store.value(key)?.as_deref() == Some(value);
            number(usize::from(is && store.remove(key)?), out);
        }
        Further::ExpireIf { key, value, how, time_ms } => {
            let is = store.value(key)?.as_deref() == Some(value);
            let left = if is { store.ttl_ms(key)? } else { None };
            let done = match (is, how, left) {
                (false, ..) | (true, Extend::By | Extend::Again, None) => false,
                (true, Extend::From | Extend::Again, _) => store.expire(key, time_ms)?,
                (true, Extend::By, Some(left)) => {
                    let sum = i64::try_from(left).ok().and_then(|left| left.checked_add(time_ms));
                    store.expire(key, sum.ok_or(KvError::Failure(Failure::BadTtl))?)?
                }
            };
            number(usize::from(done), out);
        }
        Further::Scan { from, count, all, kind, pattern } => {
            scan(store, from, (count, all), (kind, pattern), out)?;
        }
        Further::Random => random(store, out)?,
        Further::Time => {
            let us = i64::try_from(store.now_ns() / 1000).unwrap_or(i64::MAX);
            Answer::Value(decimal(us).as_bytes()).encode(out);
        }
        Further::Mark(items) => {
            let mark = mark(store, &items)?;
            Answer::Value(&mark).encode(out);
        }
        Further::All(all) => transact(store, &all, out)?,
        Further::In { database, operation } => {
            let asked = Asked::decode(operation).map_err(|_| KvError::Failure(Failure::Malformed))?;
            store.within(database, |store| store.answer(&asked, out))?;
        }
        Further::SetBit { key, place, is_set } => set_bit(store, key, (place, is_set), out)?,
        Further::Usage { key } => usage(store, key, out)?,
        Further::ClearOne => {
            store.clear_one()?;
            Answer::Done.encode(out);
        }
    }
    Ok(())
}

/// Returns when a life ends, if it does and is not the previous one.
fn until(store: &Store<'_, '_>, life: Life) -> Result<Option<u64>, KvError> {
    match life {
        Life::Forever | Life::AsBefore => Ok(None),
        Life::For(0) | Life::Until(0) => Err(KvError::Failure(Failure::BadTtl)),
        Life::For(ms) => store.after(ms).map(Some),
        Life::Until(ms) if i64::try_from(ms).is_ok() => Ok(Some(ms)),
        Life::Until(_) => Err(KvError::Failure(Failure::BadTtl)),
    }
}

/// Returns the time these milliseconds from now, or before.
fn later(store: &Store<'_, '_>, ms: i64) -> Result<i64, KvError> {
    let now = i64::try_from(store.now_ms()).unwrap_or(i64::MAX);
    now.checked_add(ms).ok_or(KvError::Failure(Failure::BadTtl))
}

fn expire_if_allowed(store: &mut Store<'_, '_>, key: &[u8], at: i64, rule: Rule) -> Result<bool, KvError> {
    if !store.is_there(key)? || !rule.allows(store.deadline(key)?, at) {
        return Ok(false);
    }
    match u64::try_from(at).ok().filter(|at| *at > store.now_ms()) {
        Some(at) => store.expire_at(key, Some(at))?,
        None => drop(store.remove(key)?),
    }
    Ok(true)
}

fn overwrite(
    store: &mut Store<'_, '_>,
    key: &[u8],
    offset: u32,
    part: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), KvError> {
    let mut value = store.value(key)?.unwrap_or_default();
    if !part.is_empty() {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = start.saturating_add(part.len());
        if end > VALUE_BYTES_MAX {
            return Err(KvError::Failure(Failure::ValueTooLong));
        }
        if value.len() < end {
            value.resize(end, 0);
        }
        value[start..end].copy_from_slice(part);
        store.put(key, &value[..], Deadline::Keep)?;
    }
    number(value.len(), out);
    Ok(())
}

fn usage(store: &Store<'_, '_>, key: &[u8], out: &mut Vec<u8>) -> Result<(), KvError> {
    let mut bytes = key.len();
    if let Some((_, id)) = store.made(key)? {
        store.each_element(&id, &[], |name, value| {
            bytes = bytes.saturating_add(id.len() + name.len() + value.len());
            Ok(true)
        })?;
    } else if let Some(value) = store.find(key)? {
        bytes += value.len();
    } else {
        Answer::Nil.encode(out);
        return Ok(());
    }
    number(bytes, out);
    Ok(())
}

fn set_bit(
    store: &mut Store<'_, '_>,
    key: &[u8],
    (place, is_set): (u32, bool),
    out: &mut Vec<u8>,
) -> Result<(), KvError> {
    let mut value = store.value(key)?.unwrap_or_default();
    let at = usize::try_from(place / 8).unwrap_or(usize::MAX);
    if at >= VALUE_BYTES_MAX {
        return Err(KvError::Failure(Failure::ValueTooLong));
    }
    if value.len() <= at {
        value.resize(at + 1, 0);
    }
    let bit = 0x80 >> (place % 8);
    let was_set = value[at] & bit != 0;
    value[at] = if is_set { value[at] | bit } else { value[at] & !bit };
    store.put(key, &value[..], Deadline::Keep)?;
    number(usize::from(was_set), out);
    Ok(())
}

fn copy(
    store: &mut Store<'_, '_>,
    from: &[u8],
    to: (u8, &[u8]),
    (replace, remove): (bool, bool),
    out: &mut Vec<u8>,
) -> Result<(), KvError> {
    if !store.is_there(from)? {
        Answer::Nil.encode(out);
        return Ok(());
    }
    if (store.database(), from) == to {
        // A key that is renamed to itself stays; as a copy, or where it must not be there, it is there already.
        number(usize::from(replace && remove), out);
        return Ok(());
    }
    if !replace && store.within(to.0, |store| store.is_there(to.1))? {
        number(0, out);
        return Ok(());
    }
    let deadline = store.deadline(from)?.map_or(Deadline::Never, Deadline::At);
    if let Some(made) = store.made(from)? {
        copy_elements(store, made, (from, to, deadline), remove)?;
    } else {
        let value = store.value(from)?.unwrap_or_default();
        store.put_in(to, &value[..], deadline)?;
        if remove {
            store.remove(from)?;
        }
    }
    number(1, out);
    Ok(())
}

fn scan(
    store: &Store<'_, '_>,
    from: &[u8],
    (count, all): (u32, bool),
    (kind, pattern): (Sort, &[u8]),
    out: &mut Vec<u8>,
) -> Result<(), KvError> {
    let limit = if all { SCAN_ALL_MAX } else { count.clamp(1, SCAN_MAX) };
    let bytes_max = if all { RESULT_BYTES_MAX / 2 } else { MANY_BYTES_MAX };
    let (mut found, mut bytes) = (Vec::new(), 0);
    let next = store.walk(from, usize::try_from(limit).unwrap_or(usize::MAX), |key, made| {
        if kind.has(made) && store.matches(pattern, key)? {
            // The next scan begins with what has no room in this answer.
            if bytes + key.len() + 5 > bytes_max && !found.is_empty() {
                return Ok(false);
            }
            bytes += key.len() + 5;
            found.push(key.to_vec());
        }
        Ok(true)
    })?;
    if all && next.is_some() {
        return Err(KvError::Failure(Failure::AnswerTooLong));
    }
    let first = next.as_deref().map_or(Answer::Nil, Answer::Value);
    many(core::iter::once(first).chain(found.iter().map(|key| Answer::Value(key))), out)
}

fn random(store: &mut Store<'_, '_>, out: &mut Vec<u8>) -> Result<(), KvError> {
    let (keys, _) = store.count()?;
    let bound = keys.clamp(1, RANDOM_MAX);
    // All replicas have the same time; its lowest bits are as good as chance for this.
    let at = (store.now_ns().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % bound;
    let (mut chosen, mut seen) = (None, 0);
    let looked = usize::try_from(SCAN_MAX).unwrap_or(usize::MAX);
    store.walk(&[], looked, |key, _| {
        if seen <= at {
            chosen = Some(key.to_vec());
        }
        seen += 1;
        Ok(seen <= at)
    })?;
    chosen.as_deref().map_or(Answer::Nil, Answer::Value).encode(out);
    Ok(())
}

/// Returns a digest of these keys with their values and deadlines.
fn mark(store: &Store<'_, '_>, keys: &Items<'_>) -> Result<[u8; MARK_BYTES], KvError> {
    let domains = Domains::new(ClusterId([0; 32]));
    let (mut text, mut elements) = (Vec::new(), Vec::new());
    let add = |text: &mut Vec<u8>, part: &[u8]| {
        text.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
        text.extend_from_slice(part);
    };
    for key in keys.iter() {
        add(&mut text, key);
        let made = store.made(key)?;
        let value = if made.is_some() { None } else { store.value(key)? };
        text.push(made.map_or(u8::from(value.is_some()), |(kind, _)| 1 + kind as u8));
        if made.is_some() || value.is_some() {
            text.extend_from_slice(&store.deadline(key)?.unwrap_or(u64::MAX).to_le_bytes());
        }
        if let Some((_, id)) = made {
            // Element by element, so that a large hash is not in memory as a whole.
            let mut so_far = [0; 32];
            store.each_element(&id, &[], |name, value| {
                elements.clear();
                elements.extend_from_slice(&so_far);
                add(&mut elements, name);
                store.look_bytes(value.len())?;
                value.copy_to(store.view, &mut elements)?;
                so_far = domains.message(&elements).0;
                Ok(true)
            })?;
            text.extend_from_slice(&so_far);
        }
        if let Some(value) = value {
            add(&mut text, &value);
        }
    }
    let digest = domains.message(&text);
    digest.0.first_chunk().copied().ok_or(KvError::Failure(Failure::Malformed))
}

/// Executes a transaction. What stops it as a whole is undone by the caller, so nothing is kept on the way: an
/// operation that fails has written nothing, unless the store is full.
fn transact(store: &mut Store<'_, '_>, all: &All<'_>, out: &mut Vec<u8>) -> Result<(), KvError> {
    for (mark, operation) in all.checks() {
        let mut now = Vec::new();
        match Asked::decode(operation) {
            Ok(asked) if asked.is_read_only() && !is_many(&asked) => store.answer(&asked, &mut now)?,
            Ok(_) | Err(_) => return Err(KvError::Failure(Failure::Malformed)),
        }
        if Answer::decode(&now) != Ok(Answer::Value(mark)) {
            Answer::Nil.encode(out);
            return Ok(());
        }
    }
    Answer::begin_many(out);
    for operation in all.operations() {
        Answer::add(out, |out| {
            let start = out.len();
            let done = match Asked::decode(operation) {
                Ok(asked) if !is_many(&asked) => store.answer(&asked, out),
                Ok(_) | Err(_) => Err(KvError::Failure(Failure::Malformed)),
            };
            match done {
                Ok(()) if out.len() > RESULT_BYTES_MAX => Err(KvError::Failure(Failure::AnswerTooLong)),
                Ok(()) => Ok(()),
                Err(KvError::Failure(failure)) if !stops(failure) => {
                    out.truncate(start);
                    Answer::Failed(failure).encode(out);
                    Ok(())
                }
                Err(error) => Err(error),
            }
        })?;
    }
    Ok(())
}

/// Returns whether an operation is made of several.
fn is_many(asked: &Asked<'_>) -> bool {
    matches!(asked, Asked::Command(Command::Many(_)) | Asked::Further(Further::All(_)))
}

/// Returns whether a failure stops a transaction.
fn stops(failure: Failure) -> bool {
    matches!(failure, Failure::Full | Failure::NeedsOrder | Failure::AnswerTooLong)
}

/// Returns the bytes from `start` to `end`, both included; negative ones count from the end.
fn between(value: &[u8], start: i64, end: i64) -> &[u8] {
    let len = i64::try_from(value.len()).unwrap_or(i64::MAX);
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    let place = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    let (start, end) = (place(start), place(end).min(len - 1));
    match (usize::try_from(start), usize::try_from(end)) {
        (Ok(start), Ok(end)) if start <= end => value.get(start..=end).unwrap_or(&[]),
        _ => &[],
    }
}
