//! A key-value service.
//!
//! [`Operation`], [`Command`] and [`Answer`] are values with an encoding, so that a text protocol and a
//! RESP gateway are only parsers on top of them. Numbers are kept as decimal text, as they came.

use alloc::vec::Vec;

use crate::service::{Access, Context, Service};

use crate::state::btree::Tree;
use crate::state::view::View;
use crate::stop::Stop;

mod all;
mod asked;
mod collection;
mod command;
mod decimal;
#[cfg(test)]
mod element_tests;
mod elements;
mod error;
mod execute;
mod expiry;
mod further;
#[cfg(test)]
mod further_tests;
mod layout;
mod list;
#[cfg(test)]
mod list_tests;
mod listing;
mod note;
mod operation;
mod pattern;
mod perform;
mod store;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod transaction_tests;

pub use all::{All, CHECKS_MAX, MARK_BYTES};
pub use asked::Asked;
pub use command::{Command, Condition, ITEMS_MAX, Items};
pub use elements::{Container, Elements, Verb};
pub use error::VALUE_BYTES_MAX;
use error::{KvError, MANY_BYTES_MAX, decimal, number, parse};
pub use further::{DATABASES, Extend, Further, Life, Rule, Sort};
pub use list::{ListCall, ListVerb};
pub use note::{ELEMENTS_MAX, LOOKED_MAX};
pub use operation::{Answer, Answers, Failure, Operation};
pub use pattern::{PATTERN_BYTES_MAX, matches};
pub use store::WORK_MAX;
use store::{Deadline, Store};

/// Each write operation removes this number of expired keys: more than it can make expire.
const REAP_MAX: usize = 4;
/// Counting removes more: it has to look at them all.
const REAP_TO_COUNT_MAX: usize = 4096;

/// The most pages that setting a key takes, with its value in the leaf: a split of every node on the way, in three trees.
const PUT_PAGES_MAX: u32 = 3 * Tree::SPLIT_PAGES_MAX;
/// The longest decimal number, in bytes.
const NUMBER_BYTES_MAX: usize = 20;

/// A key-value store whose keys can expire. Keys and values are bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kv;

impl Service for Kv {
    fn is_read_only(&self, operation: &[u8]) -> bool {
        Asked::decode(operation).is_ok_and(|asked| asked.is_read_only())
    }

    fn access(&self, operation: &[u8], keys: &mut Access) {
        match Asked::decode(operation) {
            Ok(Asked::Operation(Operation::Get { key })) => keys.read(key_number(key)),
            Ok(Asked::Operation(operation)) => keys.write(key_number(operation.key())),
            Ok(Asked::Command(command)) => declare(&command, keys),
            Ok(Asked::Elements(elements)) => declare_elements(&elements, keys),
            Ok(Asked::List(call)) => declare_list(&call, keys),
            // Databases have keys of the same names.
            Ok(Asked::Further(_)) => keys.everything(),
            // Answered without a look at the state.
            Err(_) => {}
        }
    }

    fn step(&self, cx: Context, step: u32, state: &mut View<'_>) -> Result<(), Stop> {
        let reaped = Store::new(&cx, state).reap(usize::try_from(step).unwrap_or(usize::MAX));
        reaped.map_err(|error| match error {
            KvError::Stop(reason) => reason,
            KvError::Failure(_) | KvError::TooMuch => Stop::Corrupt,
        })
    }

    fn cost(&self, operation: &[u8], page_bytes: usize) -> Option<u32> {
        let put = |key: &[u8], value: &[u8]| Tree::is_inline(page_bytes, key, value).then_some(PUT_PAGES_MAX);
        match Asked::decode(operation).ok()? {
            Asked::Operation(Operation::Get { .. }) => Some(0),
            Asked::Operation(Operation::Put { key, value } | Operation::Cas { key, value, .. })
            | Asked::Command(Command::Set { key, value, .. }) => put(key, value),
            Asked::Operation(Operation::Del { .. })
            | Asked::Command(Command::GetDel { .. } | Command::Expire { .. } | Command::Persist { .. }) => {
                Some(PUT_PAGES_MAX)
            }
            Asked::Operation(Operation::Incr { key, .. }) => put(key, &[0; NUMBER_BYTES_MAX]),
            Asked::Command(command) if command.is_read_only() => Some(0),
            // The pages of a long value have to be found in a few runs, which is not known before.
            Asked::Operation(Operation::Append { .. })
            | Asked::Command(_)
            | Asked::Further(_)
            | Asked::Elements(_)
            | Asked::List(_) => None,
        }
    }

    fn room(&self, state: &View<'_>) -> Result<u32, Stop> {
        Store::room(state)
    }

    fn execute(
        &self,
        cx: Context,
        operation: &[u8],
        state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let mut store = Store::new(&cx, state);
        let done = match Asked::decode(operation) {
            Ok(Asked::Command(Command::Many(items))) => store.many(&items, out),
            Ok(asked) => store.answer(&asked, out),
            Err(_) => Err(KvError::Failure(Failure::Malformed)),
        };
        done.or_else(|error| {
            let failure = error.failure()?;
            out.clear();
            Answer::Failed(failure).encode(out);
            Err(Stop::Refused)
        })
    }
}

fn declare(command: &Command<'_>, keys: &mut Access) {
    match *command {
        Command::Length { key } | Command::Ttl { key } => keys.read(key_number(key)),
        Command::Exists(items) | Command::GetMany(items) => {
            items.iter().for_each(|key| keys.read(key_number(key)));
        }
        Command::Set { key, .. }
        | Command::GetDel { key }
        | Command::Expire { key, .. }
        | Command::Persist { key } => keys.write(key_number(key)),
        Command::Del(items) => items.iter().for_each(|key| keys.write(key_number(key))),
        Command::SetMany(items) => items.iter().step_by(2).for_each(|key| keys.write(key_number(key))),
        Command::Count | Command::Clear | Command::Many(_) => keys.everything(),
    }
}

fn declare_elements(elements: &Elements<'_>, keys: &mut Access) {
    let key = key_number(elements.key);
    if elements.verb.writes() {
        keys.write(key);
    } else {
        keys.read(key);
    }
    if elements.verb.is_of_keys() {
        elements.items.iter().for_each(|key| keys.read(key_number(key)));
    } else if elements.verb == Verb::Move
        && let Some(other) = elements.items.iter().next()
    {
        keys.write(key_number(other));
    }
}

fn declare_list(call: &ListCall<'_>, keys: &mut Access) {
    if call.verb.is_read_only() {
        keys.read(key_number(call.key));
    } else {
        keys.write(key_number(call.key));
    }
    if let Some(other) = call.other_key() {
        keys.write(key_number(other));
    }
}

impl Store<'_, '_> {
    /// Does one thing after the other, and appends an answer for each. What there is no room for is left,
    /// but for the first; and what comes after enough elements have been looked at.
    fn many(&mut self, items: &Items<'_>, out: &mut Vec<u8>) -> Result<(), KvError> {
        Answer::begin_many(out);
        let mut looked = 0;
        for item in items.iter() {
            let start = out.len();
            let is_first = start == 1;
            let mut is_left = false;
            if looked > LOOKED_MAX {
                break;
            }
            Answer::add(out, |out| {
                let start = out.len();
                let done = match Asked::decode(item) {
                    // A transaction is undone as a whole, so it is an operation by itself.
                    Ok(Asked::Command(Command::Many(_)) | Asked::Further(Further::All(_))) | Err(_) => {
                        Err(KvError::Failure(Failure::Malformed))
                    }
                    Ok(asked) => self.answer(&asked, out),
                };
                match done {
                    Ok(()) if is_first || out.len() <= MANY_BYTES_MAX => self.view.keep(),
                    Ok(()) => is_left = true,
                    // The whole question has to be asked again.
                    Err(KvError::Failure(Failure::NeedsOrder) | KvError::Stop(_)) => return done,
                    Err(KvError::Failure(Failure::AnswerTooLong)) if !is_first => is_left = true,
                    Err(error) => {
                        let failure = error.failure()?;
                        self.view.undo();
                        out.truncate(start);
                        Answer::Failed(failure).encode(out);
                    }
                }
                Ok(())
            })?;
            if is_left {
                self.view.undo();
                out.truncate(start);
                break;
            }
            looked += self.set_looked(0);
        }
        Ok(())
    }

    /// Executes an operation, and appends the answer.
    pub(super) fn answer(&mut self, asked: &Asked<'_>, out: &mut Vec<u8>) -> Result<(), KvError> {
        if !asked.is_read_only() {
            self.reap(REAP_MAX)?;
        }
        match asked {
            Asked::Operation(operation) => self.operate(operation, out),
            Asked::Command(command) => self.command(command, out),
            Asked::Further(further) => {
                self.view.needs_pages()?;
                execute::further(self, further, out)
            }
            Asked::Elements(elements) => perform::execute(self, elements, out),
            Asked::List(call) => listing::execute(self, call, out),
        }
    }

    fn operate(&mut self, operation: &Operation<'_>, out: &mut Vec<u8>) -> Result<(), KvError> {
        match *operation {
            Operation::Get { key } => self.get(key, out)?,
            Operation::Put { key, value } => {
                self.put(key, value, Deadline::Never)?;
                Answer::Done.encode(out);
            }
            Operation::Del { key } => {
                let answer = if self.remove(key)? { Answer::Done } else { Answer::Nil };
                answer.encode(out);
            }
            Operation::Cas { key, expected, value } => {
                if self.value(key)?.as_deref() != expected {
                    return Err(KvError::Failure(Failure::Mismatch));
                }
                self.put(key, value, Deadline::Never)?;
                Answer::Done.encode(out);
            }
            Operation::Incr { key, by } => {
                let text = self.value(key)?.unwrap_or_else(|| b"0".to_vec());
                let number = parse(&text).ok_or(KvError::Failure(Failure::NotANumber))?;
                let sum = number.checked_add(by).ok_or(KvError::Failure(Failure::Overflow))?;
                let text = decimal(sum);
                self.put(key, text.as_bytes(), Deadline::Keep)?;
                Answer::Value(text.as_bytes()).encode(out);
            }
            Operation::Append { key, suffix } => {
                let mut value = self.value(key)?.unwrap_or_default();
                value.extend_from_slice(suffix);
                self.put(key, &value[..], Deadline::Keep)?;
                number(value.len(), out);
            }
        }
        Ok(())
    }

    pub(super) fn command(&mut self, command: &Command<'_>, out: &mut Vec<u8>) -> Result<(), KvError> {
        match *command {
            Command::Set { key, value, condition, ttl_ms, get } => {
                let deadline = match ttl_ms {
                    None => Deadline::Never,
                    Some(ttl_ms) => Deadline::At(self.after(ttl_ms)?),
                };
                if get {
                    self.get(key, out)?;
                }
                let holds = match condition {
                    None => true,
                    Some(Condition::Absent) => !self.is_there(key)?,
                    Some(Condition::Present) => self.is_there(key)?,
                };
                if holds {
                    self.put(key, value, deadline)?;
                }
                if !get {
                    let answer = if holds { Answer::Done } else { Answer::Nil };
                    answer.encode(out);
                }
            }
            Command::GetDel { key } => {
                self.get(key, out)?;
                self.remove(key)?;
            }
            Command::Length { key } => number(self.find(key)?.map_or(0, |value| value.len()), out),
            Command::Del(keys) => {
                let mut removed = 0;
                for key in keys.iter() {
                    removed += usize::from(self.remove(key)?);
                }
                number(removed, out);
            }
            Command::Exists(keys) => {
                let mut there = 0;
                for key in keys.iter() {
                    there += usize::from(self.is_there(key)?);
                }
                number(there, out);
            }
            Command::GetMany(keys) => {
                Answer::begin_many(out);
                for key in keys.iter() {
                    Answer::add(out, |out| self.get_string(key, out))?;
                }
            }
            Command::SetMany(items) => {
                let mut pairs = items.iter();
                // What fails has written nothing, unless the store is full.
                while let (Some(key), Some(value)) = (pairs.next(), pairs.next()) {
                    self.check(key, value)?;
                }
                let mut pairs = items.iter();
                while let (Some(key), Some(value)) = (pairs.next(), pairs.next()) {
                    self.put(key, value, Deadline::Never)?;
                }
                Answer::Done.encode(out);
            }
            Command::Expire { key, ttl_ms } => number(usize::from(self.expire(key, ttl_ms)?), out),
            Command::Ttl { key } => {
                let ttl = if self.is_there(key)? {
                    self.ttl_ms(key)?.map_or(-1, |ttl| i64::try_from(ttl).unwrap_or(i64::MAX))
                } else {
                    -2
                };
                Answer::Value(decimal(ttl).as_bytes()).encode(out);
            }
            Command::Persist { key } => {
                let expires = self.is_there(key)? && self.ttl_ms(key)?.is_some();
                if expires {
                    self.expire_at(key, None)?;
                }
                number(usize::from(expires), out);
            }
            Command::Count => self.sizes(out)?,
            Command::Clear => {
                self.clear()?;
                Answer::Done.encode(out);
            }
            Command::Many(_) => unreachable!("many are taken apart before"),
        }
        Ok(())
    }

    /// Appends the value of a key, or nil.
    pub(super) fn get(&self, key: &[u8], out: &mut Vec<u8>) -> Result<(), KvError> {
        self.answer_value(self.find(key)?, out)
    }

    /// As [`Self::get`], but a hash, set or list is nil.
    fn get_string(&self, key: &[u8], out: &mut Vec<u8>) -> Result<(), KvError> {
        match self.get(key, out) {
            Err(KvError::Failure(Failure::WrongKind)) => {
                Answer::Nil.encode(out);
                Ok(())
            }
            done => done,
        }
    }

    pub(super) fn expire(&mut self, key: &[u8], ttl_ms: i64) -> Result<bool, KvError> {
        if !self.is_there(key)? {
            return Ok(false);
        }
        match u64::try_from(ttl_ms) {
            Ok(ttl_ms) if ttl_ms > 0 => {
                let at = self.after(ttl_ms)?;
                self.expire_at(key, Some(at))?;
            }
            Ok(_) | Err(_) => {
                self.remove(key)?;
            }
        }
        Ok(true)
    }

    /// Returns the time this many milliseconds from now.
    pub(super) fn after(&self, ttl_ms: u64) -> Result<u64, KvError> {
        let at = self.now_ms().checked_add(ttl_ms).filter(|at| i64::try_from(*at).is_ok());
        at.ok_or(KvError::Failure(Failure::BadTtl))
    }

    fn sizes(&mut self, out: &mut Vec<u8>) -> Result<(), KvError> {
        // A run on cells would count what is removed when it settles.
        self.view.needs_pages()?;
        self.reap(REAP_TO_COUNT_MAX)?;
        let (keys, expiring) = self.count()?;
        Answer::begin_many(out);
        for size in [keys, expiring, u64::from(self.pages()?)] {
            Answer::add(out, |out| {
                number(usize::try_from(size).unwrap_or(usize::MAX), out);
                Ok::<(), KvError>(())
            })?;
        }
        Ok(())
    }
}

/// Returns the number that represents a key in an access declaration (FNV-1a).
fn key_number(key: &[u8]) -> u64 {
    key.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
