//! Executes operations on hashes and sets.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use quorate_wire::message::RESULT_BYTES_MAX;

use super::collection::{Collection, add, remove};
use super::decimal::Decimal;
use super::elements::{Container, Elements, Verb};
use super::error::{KvError, decimal, many, number, parse};
use super::note::{Chance, ELEMENTS_MAX, LOOKED_MAX};
use super::operation::{Answer, Failure};
use super::store::Store;
use crate::stop::Stop;

/// Executes an operation, and appends the answer.
pub(super) fn execute(
    store: &mut Store<'_, '_>,
    elements: &Elements<'_>,
    out: &mut Vec<u8>,
) -> Result<(), KvError> {
    let Elements { verb, kind, key, number: amount, items } = *elements;
    let first = items.iter().next().unwrap_or_default();
    let second = items.iter().nth(1).unwrap_or_default();
    match verb {
        Verb::Kind => {
            let text = match store.made(key)? {
                Some((kind, _)) => kind.text(),
                None if store.is_there(key)? => "string",
                None => "none",
            };
            Answer::Value(text.as_bytes()).encode(out);
            Ok(())
        }
        Verb::Put | Verb::Add => {
            let mut wanted = BTreeMap::new();
            if verb == Verb::Put {
                let mut pairs = items.iter();
                while let (Some(name), Some(value)) = (pairs.next(), pairs.next()) {
                    wanted.insert(name, value);
                }
            } else {
                wanted.extend(items.iter().map(|name| (name, &[][..])));
            }
            number(add(store, kind, key, &wanted, amount == 1)?, out);
            Ok(())
        }
        Verb::Remove => {
            let names: BTreeSet<&[u8]> = items.iter().collect();
            number(remove(store, kind, key, names)?, out);
            Ok(())
        }
        Verb::Get => store.values(elements, out),
        Verb::Has => store.has(elements, out),
        Verb::Length => {
            let value = store.element(store.collection(kind, key)?, first)?;
            number(value.map_or(0, |value| value.len()), out);
            Ok(())
        }
        Verb::Count => {
            let count = store.collection(kind, key)?.map_or(0, |collection| collection.count);
            number(usize::try_from(count).unwrap_or(usize::MAX), out);
            Ok(())
        }
        Verb::Names | Verb::Values | Verb::Pairs => store.list(elements, out),
        Verb::Scan => store.scan_elements(elements, (first, second), out),
        Verb::Increase => {
            let old = store.hash_value(kind, key, first)?;
            let old = parse(old.as_deref().unwrap_or(b"0")).ok_or(KvError::Failure(Failure::NotANumber))?;
            let sum = decimal(old.checked_add(amount).ok_or(KvError::Failure(Failure::Overflow))?);
            put_one(store, (kind, key, first), sum.as_bytes(), out)
        }
        Verb::AddDecimal => {
            let by = Decimal::read(second).ok_or(KvError::Failure(Failure::NotADecimal))?;
            let old = store.hash_value(kind, key, first)?;
            let old = Decimal::read(old.as_deref().unwrap_or(b"0"));
            let old = old.ok_or(KvError::Failure(Failure::NotANumber))?;
            let sum = old.checked_add(by).ok_or(KvError::Failure(Failure::Overflow))?.text();
            put_one(store, (kind, key, first), sum.as_bytes(), out)
        }
        Verb::Random | Verb::RandomPairs => draw(store, elements, out).map(drop),
        Verb::Pop => {
            let names = draw(store, elements, out)?;
            remove(store, kind, key, names.iter().map(Vec::as_slice).collect())?;
            Ok(())
        }
        Verb::Move => move_name(store, key, first, second, out),
        Verb::Common
        | Verb::Union
        | Verb::Difference
        | Verb::StoreCommon
        | Verb::StoreUnion
        | Verb::StoreDifference
        | Verb::CountCommon => combine(store, elements, out),
    }
}

/// Sets the value of a name in a hash, and answers it.
fn put_one(
    store: &mut Store<'_, '_>,
    (kind, key, name): (Container, &[u8], &[u8]),
    value: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), KvError> {
    add(store, kind, key, &BTreeMap::from([(name, value)]), false)?;
    Answer::Value(value).encode(out);
    Ok(())
}

/// Returns chance that all replicas agree on, other than what was returned before.
fn chance(store: &Store<'_, '_>) -> Chance {
    let id = store.number();
    let (seq, place) = id.split_at(8);
    let part = |bytes: &[u8]| bytes.iter().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
    Chance::new(store.now_ns() ^ part(seq).rotate_left(32) ^ part(place).rotate_left(48))
}

/// Answers elements at random, and returns the names: different ones, or with a negative number any.
fn draw(store: &Store<'_, '_>, elements: &Elements<'_>, out: &mut Vec<u8>) -> Result<Vec<Vec<u8>>, KvError> {
    let collection = store.collection(elements.kind, elements.key)?;
    let Some(Collection { id, count, .. }) = collection else {
        Answer::begin_many(out);
        return Ok(Vec::new());
    };
    let wanted = elements.number.unsigned_abs();
    if elements.number < 0 && wanted > u64::from(ELEMENTS_MAX) {
        return Err(KvError::Failure(Failure::AnswerTooLong));
    }
    let mut random = chance(store);
    let mut place_below = |bound: u32| {
        let below = random.next() % u64::from(bound.max(1));
        u32::try_from(below).unwrap_or(u32::MAX)
    };
    let places: Vec<u32> = if elements.number < 0 {
        (0..wanted).map(|_| place_below(count)).collect()
    } else {
        // Each of the last places is taken, or one before it instead (Floyd).
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX).min(count);
        let mut chosen = BTreeSet::new();
        for last in count - wanted..count {
            let place = place_below(last + 1);
            if !chosen.insert(place) {
                chosen.insert(last);
            }
        }
        chosen.into_iter().collect()
    };
    store.look(u64::try_from(places.len()).unwrap_or(u64::MAX))?;
    let distinct: BTreeSet<u32> = places.iter().copied().collect();
    let is_shown = (true, elements.verb == Verb::RandomPairs);
    let (mut names, mut shown) = (Vec::new(), BTreeMap::new());
    let (mut cursor, mut at) = (store.elements().seek(store.view, &id)?, 0);
    let mut bytes = 0;
    for place in distinct {
        cursor.skip(store.view, place - at)?;
        at = place + 1;
        let (key, value) = cursor.next(store.view)?.ok_or(Stop::Corrupt)?;
        let name = key.strip_prefix(&id[..]).ok_or(Stop::Corrupt)?;
        let mut answer = Vec::new();
        store.answer_element((name, value), is_shown, &mut answer)?;
        bytes += answer.len();
        if bytes > RESULT_BYTES_MAX {
            return Err(KvError::Failure(Failure::AnswerTooLong));
        }
        shown.insert(place, answer);
        names.push(name.to_vec());
    }
    Answer::begin_many(out);
    for answer in places.iter().filter_map(|place| shown.get(place)) {
        if out.len() + answer.len() > RESULT_BYTES_MAX {
            return Err(KvError::Failure(Failure::AnswerTooLong));
        }
        out.extend_from_slice(answer);
    }
    Ok(names)
}

fn move_name(
    store: &mut Store<'_, '_>,
    from: &[u8],
    to: &[u8],
    name: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), KvError> {
    let source = store.collection(Container::Set, from)?;
    // As in Redis: without a source, the destination is not looked at.
    if source.is_none() {
        number(0, out);
        return Ok(());
    }
    let other = store.collection(Container::Set, to)?;
    let is_there = store.element(source, name)?.is_some();
    if is_there && from != to {
        store.check(to, &[])?;
        if other.is_some_and(|other| other.count >= ELEMENTS_MAX) && store.element(other, name)?.is_none() {
            return Err(KvError::Failure(Failure::TooManyElements));
        }
        remove(store, Container::Set, from, BTreeSet::from([name]))?;
        add(store, Container::Set, to, &BTreeMap::from([(name, &[][..])]), false)?;
    }
    number(usize::from(is_there), out);
    Ok(())
}

/// Answers what several sets have in common, together, or what the first one alone has; or stores it.
fn combine(store: &mut Store<'_, '_>, elements: &Elements<'_>, out: &mut Vec<u8>) -> Result<(), KvError> {
    let Elements { verb, key, number: most, items, .. } = *elements;
    let is_stored = matches!(verb, Verb::StoreCommon | Verb::StoreUnion | Verb::StoreDifference);
    let mut sets = Vec::new();
    for key in (!is_stored).then_some(key).into_iter().chain(items.iter()) {
        sets.push(store.collection(Container::Set, key)?);
    }
    let size = |set: &Option<Collection>| u64::from(set.map_or(0, |set| set.count));
    let many_sets = u64::try_from(sets.len()).unwrap_or(u64::MAX);
    let is_union = matches!(verb, Verb::Union | Verb::StoreUnion);
    let is_difference = matches!(verb, Verb::Difference | Verb::StoreDifference);
    let looked = if is_union {
        sets.iter().map(size).sum()
    } else {
        let walked = if is_difference { sets.first().map(size) } else { sets.iter().map(size).min() };
        walked.unwrap_or(0).saturating_mul(many_sets)
    };
    if looked > LOOKED_MAX {
        return Err(KvError::Failure(Failure::TooManyElements));
    }
    let mut names = BTreeSet::new();
    if is_union {
        for set in sets {
            names.append(&mut store.names(set)?);
        }
    } else if is_difference {
        for name in store.names(sets.first().copied().flatten())? {
            let mut elsewhere = false;
            for set in sets.iter().skip(1) {
                elsewhere = elsewhere || store.element(*set, &name)?.is_some();
            }
            if !elsewhere {
                names.insert(name);
            }
        }
    } else {
        let most = usize::try_from(most).ok().filter(|most| *most > 0).unwrap_or(usize::MAX);
        let smallest = sets.iter().copied().min_by_key(size).flatten();
        for name in store.names(smallest)? {
            if names.len() == most {
                break;
            }
            let mut everywhere = true;
            for set in &sets {
                everywhere = everywhere && store.element(*set, &name)?.is_some();
            }
            if everywhere {
                names.insert(name);
            }
        }
    }
    if verb == Verb::CountCommon {
        number(names.len(), out);
    } else if is_stored {
        if names.len() > usize::try_from(ELEMENTS_MAX).unwrap_or(usize::MAX) {
            return Err(KvError::Failure(Failure::TooManyElements));
        }
        store.check(key, &[])?;
        store.remove(key)?;
        let wanted: BTreeMap<&[u8], &[u8]> = names.iter().map(|name| (name.as_slice(), &[][..])).collect();
        if !wanted.is_empty() {
            add(store, Container::Set, key, &wanted, false)?;
        }
        number(names.len(), out);
    } else {
        let bytes: usize = names.iter().map(|name| name.len() + 5).sum();
        if out.len() + bytes >= RESULT_BYTES_MAX {
            return Err(KvError::Failure(Failure::AnswerTooLong));
        }
        many(names.iter().map(|name| Answer::Value(name)), out)?;
    }
    Ok(())
}
