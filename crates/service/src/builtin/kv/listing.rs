//! What the store does for lists.
//!
//! The values of a list are elements of the tree of hashes and sets. Their names are places: 8 bytes, the most significant
//! first, one after the other without a gap. So both ends take a value in the time of one search, and what is in the
//! middle moves the values of the shorter side by one place.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;

use quorate_wire::message::RESULT_BYTES_MAX;

use super::collection::{Collection, settle};
use super::elements::Container;
use super::error::{KvError, VALUE_BYTES_MAX, decimal, many, number};
use super::list::{ListCall, ListVerb};
use super::note::{ELEMENTS_MAX, element};
use super::operation::{Answer, Failure};
use super::store::Store;
use crate::stop::Stop;

/// The place of the first value of a new list: there are as many on each side.
const MIDDLE: u64 = 1 << 63;

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Left,
    Right,
}

impl End {
    fn right_if(is_right: bool) -> Self {
        if is_right { Self::Right } else { Self::Left }
    }
}

/// A list.
#[derive(Clone, Copy, Debug)]
struct List(Collection);

impl List {
    /// Returns the list of a key that has not expired. A value of another kind is a failure.
    fn find(store: &Store<'_, '_>, key: &[u8]) -> Result<Option<Self>, KvError> {
        Ok(store.collection(Container::List, key)?.map(Self))
    }

    fn new(store: &Store<'_, '_>) -> Self {
        let mut collection = Collection::new(Container::List, store.number());
        collection.first = MIDDLE;
        Self(collection)
    }

    fn len(&self) -> u32 {
        self.0.count
    }

    /// Returns the key of the value at a place, counted from the first one.
    fn key(&self, at: u32) -> Vec<u8> {
        self.key_of(self.0.first.wrapping_add(u64::from(at)))
    }

    fn key_of(&self, place: u64) -> Vec<u8> {
        element(&self.0.id, &place.to_be_bytes())
    }

    /// Returns the value at a place.
    fn value(&self, store: &Store<'_, '_>, at: u32) -> Result<Vec<u8>, KvError> {
        let value = store.elements().get(store.view, &self.key(at))?.ok_or(Stop::Corrupt)?;
        store.look_bytes(value.len())?;
        let mut bytes = Vec::new();
        value.copy_to(store.view, &mut bytes)?;
        Ok(bytes)
    }

    fn set(&self, store: &mut Store<'_, '_>, at: u32, value: &[u8]) -> Result<(), KvError> {
        store.set_element(&self.key(at), value)
    }

    fn remove(&self, store: &mut Store<'_, '_>, places: Range<u32>) -> Result<(), KvError> {
        for at in places {
            store.look(1)?;
            store.elements().remove(store.view, &self.key(at))?;
        }
        Ok(())
    }

    /// Adds a value at an end.
    fn add(&mut self, store: &mut Store<'_, '_>, end: End, value: &[u8]) -> Result<(), KvError> {
        let at = match end {
            End::Left => {
                self.0.first = self.0.first.wrapping_sub(1);
                0
            }
            End::Right => self.len(),
        };
        self.0.count += 1;
        self.set(store, at, value)
    }

    /// Removes the value at an end of a list that is not empty.
    fn take(&mut self, store: &mut Store<'_, '_>, end: End) -> Result<Vec<u8>, KvError> {
        let last = self.len().checked_sub(1).ok_or(Stop::Corrupt)?;
        let at = if end == End::Left { 0 } else { last };
        let value = self.value(store, at)?;
        self.remove(store, at..at + 1)?;
        self.0.first = self.0.first.wrapping_add(u64::from(end == End::Left));
        self.0.count = last;
        Ok(value)
    }

    /// Returns the places from one to another, both included; negative ones count from the right.
    fn places(&self, from: i64, until: i64) -> Range<u32> {
        let len = i64::from(self.len());
        let place = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
        let (from, until) = (place(from).max(0), place(until).min(len - 1).saturating_add(1));
        match (u32::try_from(from), u32::try_from(until)) {
            (Ok(from), Ok(until)) if from < until => from..until,
            _ => 0..0,
        }
    }

    /// Calls `each` with the values at these places, in order.
    fn each(
        &self,
        store: &Store<'_, '_>,
        places: Range<u32>,
        mut each: impl FnMut(u32, crate::state::btree::Value<'_>) -> Result<(), KvError>,
    ) -> Result<(), KvError> {
        let from = self.0.first.wrapping_add(u64::from(places.start)).to_be_bytes();
        let mut at = places.start;
        store.each_element(&self.0.id, &from, |_, value| {
            if at >= places.end {
                return Ok(false);
            }
            each(at, value)?;
            at += 1;
            Ok(at < places.end)
        })
    }

    /// Returns the places of the values that are equal to this one.
    fn matching(&self, store: &Store<'_, '_>, wanted: &[u8]) -> Result<Vec<u32>, KvError> {
        let (mut found, mut bytes) = (Vec::new(), Vec::new());
        self.each(store, 0..self.len(), |at, value| {
            if value.len() == wanted.len() {
                bytes.clear();
                store.look_bytes(value.len())?;
                value.copy_to(store.view, &mut bytes)?;
                if bytes == wanted {
                    found.push(at);
                }
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Copies the value at a place, counted from `from`, to another place.
    fn copy(&self, store: &mut Store<'_, '_>, from: u64, to: u64) -> Result<(), KvError> {
        let mut bytes = Vec::new();
        let value = store.elements().get(store.view, &self.key_of(from))?.ok_or(Stop::Corrupt)?;
        store.look(1)?;
        store.look_bytes(value.len())?;
        value.copy_to(store.view, &mut bytes)?;
        store.set_element(&self.key_of(to), &bytes)
    }

    /// Inserts a value before the one at this place.
    fn insert(&mut self, store: &mut Store<'_, '_>, at: u32, value: &[u8]) -> Result<(), KvError> {
        let place = |at: u32| self.0.first.wrapping_add(u64::from(at));
        if at < self.len() - at {
            for from in 0..at {
                self.copy(store, place(from), place(from).wrapping_sub(1))?;
            }
            self.0.first = self.0.first.wrapping_sub(1);
        } else {
            for from in (at..self.len()).rev() {
                self.copy(store, place(from), place(from).wrapping_add(1))?;
            }
        }
        self.0.count += 1;
        self.set(store, at, value)
    }

    /// Removes the values at these places, which are in order, and closes the gaps from the shorter side.
    fn drop_places(&mut self, store: &mut Store<'_, '_>, gone: &[u32]) -> Result<(), KvError> {
        let (Some(first), Some(last)) = (gone.first(), gone.last()) else { return Ok(()) };
        let removed = u32::try_from(gone.len()).map_err(|_| Stop::Corrupt)?;
        let place = |at: u32| self.0.first.wrapping_add(u64::from(at));
        let all: BTreeSet<u32> = gone.iter().copied().collect();
        let (first, last, len) = (*first, *last, self.len());
        if last < len - first {
            for (from, to) in (0..=last).rev().filter(|at| !all.contains(at)).zip((0..=last).rev()) {
                self.copy(store, place(from), place(to))?;
            }
            self.remove(store, 0..removed)?;
            self.0.first = place(removed);
        } else {
            for (from, to) in (first..len).filter(|at| !all.contains(at)).zip(first..) {
                self.copy(store, place(from), place(to))?;
            }
            self.remove(store, len - removed..len)?;
        }
        self.0.count = len - removed;
        Ok(())
    }
}

/// Executes an operation, and appends the answer.
pub(super) fn execute(
    store: &mut Store<'_, '_>,
    call: &ListCall<'_>,
    out: &mut Vec<u8>,
) -> Result<(), KvError> {
    match call.verb {
        ListVerb::PushLeft => push(store, call, End::Left, out),
        ListVerb::PushRight => push(store, call, End::Right, out),
        ListVerb::PopLeft => pop(store, call, End::Left, out),
        ListVerb::PopRight => pop(store, call, End::Right, out),
        ListVerb::Length => {
            let list = List::find(store, call.key)?;
            answer(list.map_or(0, |list| i64::from(list.len())), out);
            Ok(())
        }
        ListVerb::Range => range(store, call, out),
        ListVerb::Set => set(store, call, out),
        ListVerb::Insert => insert(store, call, out),
        ListVerb::Remove => remove(store, call, out),
        ListVerb::Trim => trim(store, call, out),
        ListVerb::Move => move_value(store, call, out),
        ListVerb::Positions => positions(store, call, out),
    }
}

fn answer(number: i64, out: &mut Vec<u8>) {
    Answer::Value(decimal(number).as_bytes()).encode(out);
}

/// Reads a place or a number among the items.
fn place(item: Option<&[u8]>) -> Result<i64, KvError> {
    let bytes = item.and_then(|item| item.try_into().ok());
    bytes.map(i64::from_le_bytes).ok_or(KvError::Failure(Failure::Malformed))
}

fn check_value(value: &[u8]) -> Result<(), KvError> {
    if value.len() > VALUE_BYTES_MAX { Err(KvError::Failure(Failure::ValueTooLong)) } else { Ok(()) }
}

/// Checks that a list has room for more values.
fn check_room(list: Option<List>, more: usize) -> Result<(), KvError> {
    let len = list.map_or(0, |list| list.len());
    match u32::try_from(more).ok().and_then(|more| more.checked_add(len)) {
        Some(len) if len <= ELEMENTS_MAX => Ok(()),
        _ => Err(KvError::Failure(Failure::TooManyElements)),
    }
}

fn push(store: &mut Store<'_, '_>, call: &ListCall<'_>, end: End, out: &mut Vec<u8>) -> Result<(), KvError> {
    let found = List::find(store, call.key)?;
    if found.is_none() && call.number == 1 {
        answer(0, out);
        return Ok(());
    }
    store.check(call.key, &[])?;
    check_room(found, call.items.len())?;
    call.items.iter().try_for_each(check_value)?;
    let mut list = found.unwrap_or_else(|| List::new(store));
    for value in call.items.iter() {
        list.add(store, end, value)?;
    }
    settle(store, call.key, list.0)?;
    answer(i64::from(list.len()), out);
    Ok(())
}

fn pop(store: &mut Store<'_, '_>, call: &ListCall<'_>, end: End, out: &mut Vec<u8>) -> Result<(), KvError> {
    let Some(mut list) = List::find(store, call.key)? else {
        Answer::Nil.encode(out);
        return Ok(());
    };
    let count = u32::try_from(call.number.max(0)).unwrap_or(u32::MAX).min(list.len());
    // What has no room in the answer stays.
    let places = if end == End::Left { 0..count } else { list.len() - count..list.len() };
    let mut bytes = out.len();
    list.each(store, places, |_, value| {
        bytes = bytes.saturating_add(value.len() + 5);
        if bytes >= RESULT_BYTES_MAX { Err(KvError::Failure(Failure::AnswerTooLong)) } else { Ok(()) }
    })?;
    let mut values = Vec::new();
    for _ in 0..count {
        values.push(list.take(store, end)?);
    }
    if count > 0 {
        settle(store, call.key, list.0)?;
    }
    many(values.iter().map(|value| Answer::Value(value)), out)
}

fn range(store: &Store<'_, '_>, call: &ListCall<'_>, out: &mut Vec<u8>) -> Result<(), KvError> {
    let until = place(call.items.iter().next())?;
    let list = List::find(store, call.key)?;
    Answer::begin_many(out);
    let Some(list) = list else { return Ok(()) };
    list.each(store, list.places(call.number, until), |_, value| {
        Answer::add(out, |out| store.answer_value(Some(value), out))
    })
}

fn set(store: &mut Store<'_, '_>, call: &ListCall<'_>, out: &mut Vec<u8>) -> Result<(), KvError> {
    let value = call.items.iter().next().unwrap_or_default();
    let Some(list) = List::find(store, call.key)? else {
        answer(-1, out);
        return Ok(());
    };
    check_value(value)?;
    let at = list.places(call.number, call.number);
    if at.is_empty() {
        answer(0, out);
        return Ok(());
    }
    list.set(store, at.start, value)?;
    answer(1, out);
    Ok(())
}

fn insert(store: &mut Store<'_, '_>, call: &ListCall<'_>, out: &mut Vec<u8>) -> Result<(), KvError> {
    let mut items = call.items.iter();
    let (pivot, value) = (items.next().unwrap_or_default(), items.next().unwrap_or_default());
    let Some(mut list) = List::find(store, call.key)? else {
        answer(0, out);
        return Ok(());
    };
    check_value(value)?;
    let Some(at) = list.matching(store, pivot)?.first().copied() else {
        answer(-1, out);
        return Ok(());
    };
    check_room(Some(list), 1)?;
    list.insert(store, at + u32::from(call.number == 1), value)?;
    settle(store, call.key, list.0)?;
    answer(i64::from(list.len()), out);
    Ok(())
}

fn remove(store: &mut Store<'_, '_>, call: &ListCall<'_>, out: &mut Vec<u8>) -> Result<(), KvError> {
    let value = call.items.iter().next().unwrap_or_default();
    let Some(mut list) = List::find(store, call.key)? else {
        answer(0, out);
        return Ok(());
    };
    let found = list.matching(store, value)?;
    let most = usize::try_from(call.number.unsigned_abs()).unwrap_or(usize::MAX);
    let most = if most == 0 { found.len() } else { most.min(found.len()) };
    let gone = if call.number < 0 { &found[found.len() - most..] } else { &found[..most] };
    if !gone.is_empty() {
        list.drop_places(store, gone)?;
        settle(store, call.key, list.0)?;
    }
    number(gone.len(), out);
    Ok(())
}

fn trim(store: &mut Store<'_, '_>, call: &ListCall<'_>, out: &mut Vec<u8>) -> Result<(), KvError> {
    let until = place(call.items.iter().next())?;
    let Some(mut list) = List::find(store, call.key)? else {
        answer(0, out);
        return Ok(());
    };
    let (kept, len) = (list.places(call.number, until), list.len());
    let left = u32::try_from(kept.len()).map_err(|_| Stop::Corrupt)?;
    if left < len {
        list.remove(store, 0..kept.start)?;
        list.remove(store, kept.end..len)?;
        list.0.first = list.0.first.wrapping_add(u64::from(kept.start));
        list.0.count = left;
        settle(store, call.key, list.0)?;
    }
    answer(i64::from(left), out);
    Ok(())
}

fn move_value(store: &mut Store<'_, '_>, call: &ListCall<'_>, out: &mut Vec<u8>) -> Result<(), KvError> {
    let to = call.other_key().unwrap_or_default();
    let (out_of, into) = (End::right_if(call.number & 1 != 0), End::right_if(call.number & 2 != 0));
    // As in Redis: without a source, the destination is not looked at.
    let Some(mut list) = List::find(store, call.key)? else {
        Answer::Nil.encode(out);
        return Ok(());
    };
    let value = if call.key == to {
        let value = list.take(store, out_of)?;
        list.add(store, into, &value)?;
        settle(store, to, list.0)?;
        value
    } else {
        let other = List::find(store, to)?;
        store.check(to, &[])?;
        check_room(other, 1)?;
        let value = list.take(store, out_of)?;
        settle(store, call.key, list.0)?;
        let mut other = other.unwrap_or_else(|| List::new(store));
        other.add(store, into, &value)?;
        settle(store, to, other.0)?;
        value
    };
    Answer::Value(&value).encode(out);
    Ok(())
}

fn positions(store: &Store<'_, '_>, call: &ListCall<'_>, out: &mut Vec<u8>) -> Result<(), KvError> {
    let mut items = call.items.iter();
    let value = items.next().unwrap_or_default();
    let at_most = |number: i64| match usize::try_from(number) {
        Ok(number) if number > 0 => number,
        Ok(_) | Err(_) => usize::MAX,
    };
    let (count, looked) = (at_most(place(items.next())?), at_most(place(items.next())?));
    let (mut found, mut len) = (Vec::new(), 0);
    if let Some(list) = List::find(store, call.key)? {
        (found, len) = (list.matching(store, value)?, list.len());
    }
    if call.number < 0 {
        found.reverse();
    }
    // How far a place is from the end where the search begins.
    let distance = |at: u32| if call.number < 0 { len - 1 - at } else { at };
    found.retain(|at| usize::try_from(distance(*at)).is_ok_and(|distance| distance < looked));
    let before = usize::try_from(call.number.unsigned_abs()).unwrap_or(usize::MAX).saturating_sub(1);
    let texts: Vec<_> = found.iter().skip(before).take(count).map(|at| decimal(i64::from(*at))).collect();
    many(texts.iter().map(|text| Answer::Value(text.as_bytes())), out)
}
