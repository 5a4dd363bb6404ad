//! Translates a command: to an operation of the cluster, or to a reply of the gateway itself.
//!
//! Commands that concern only the connection (PING, AUTH, CLIENT ...) are answered here, by the gateway alone.
//! Commands on data go to the cluster.

use quorate_service::kv::{Command, Condition, ITEMS_MAX, Items, Operation};

use super::decode::number;
use super::encode;
use super::refusal::{NOT_A_NUMBER, Refusal, SYNTAX, bad_ttl, refuse, wrong_count};
use super::reply::{Facts, Sections, Shape};
use super::session::{Parsed, Session, here};
use super::table::{COMMANDS, Entry};

/// Commands that are allowed before the password is given.
const OPEN: &[&str] = &["auth", "hello", "quit"];

/// Handles a command of at least one word, as far as the gateway can: see [`Parsed`].
pub(super) fn parse(
    words: &[&[u8]],
    session: &mut Session,
    facts: &Facts<'_>,
    operation: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Parsed {
    let (before, asked_before) = (out.len(), operation.len());
    let parsed = find(words).and_then(|entry| {
        if !session.admitted && !OPEN.contains(&entry.name) {
            return refuse("NOAUTH Authentication required.");
        }
        match ask(entry.name, words, operation)? {
            Some(shape) => Ok(Parsed::Ask(shape)),
            None => here(entry.name, words, session, facts, out),
        }
    });
    parsed.unwrap_or_else(|refusal| {
        out.truncate(before);
        operation.truncate(asked_before);
        encode::error(out, &refusal);
        Parsed::Answered
    })
}

/// Finds a command in the table, and checks its number of words.
fn find(words: &[&[u8]]) -> Result<Entry, Refusal> {
    let name = words.first().copied().unwrap_or_default();
    let Some(entry) = COMMANDS.iter().find(|entry| name.eq_ignore_ascii_case(entry.name.as_bytes())) else {
        let mut text = b"ERR unknown command '".to_vec();
        text.extend(name.iter().take(128));
        text.extend_from_slice(b"', with args beginning with: ");
        for word in words.iter().skip(1) {
            if text.len() > 256 {
                break;
            }
            text.push(b'\'');
            text.extend(word.iter().take(128));
            text.extend_from_slice(b"' ");
        }
        return Err(text);
    };
    let count = i64::try_from(words.len()).unwrap_or(i64::MAX);
    if (entry.arity > 0 && count != entry.arity) || count < -entry.arity {
        return wrong_count(entry.name);
    }
    Ok(*entry)
}

/// Appends the operation of a command on data; none if it is not one. The number of words was checked with the table.
fn ask(name: &str, words: &[&[u8]], operation: &mut Vec<u8>) -> Result<Option<Shape>, Refusal> {
    let (key, rest) = match words {
        [_, key, rest @ ..] => (*key, rest),
        _ => (&[][..], &[][..]),
    };
    let all = words.get(1..).unwrap_or(&[]);
    if all.len() > ITEMS_MAX || all.iter().any(|word| word.len() > usize::from(u16::MAX)) && name != "set" {
        // Only values can be that long, and only these commands have one after a key.
        if !matches!(name, "append" | "mset") || all.iter().step_by(2).any(|key| key.len() > 65_535) {
            return refuse("ERR key too long");
        }
    }
    if name == "set" && key.len() > usize::from(u16::MAX) {
        return refuse("ERR key too long");
    }
    let mut buffer = Vec::new();
    let (command, shape) = match name {
        "get" => {
            Operation::Get { key }.encode(operation);
            return Ok(Some(Shape::Bulk));
        }
        "incr" | "decr" | "incrby" => {
            let by = match (name, rest.first()) {
                ("incr", _) => 1,
                ("decr", _) => -1,
                (_, by) => match by.and_then(|by| number(by)) {
                    Some(by) => by,
                    None => return refuse(NOT_A_NUMBER),
                },
            };
            Operation::Incr { key, by }.encode(operation);
            return Ok(Some(Shape::Integer));
        }
        "append" => {
            let suffix = rest.first().copied().unwrap_or_default();
            Operation::Append { key, suffix }.encode(operation);
            return Ok(Some(Shape::Integer));
        }
        "set" => return set(key, rest, operation).map(Some),
        "getdel" => (Command::GetDel { key }, Shape::Bulk),
        "strlen" => (Command::Length { key }, Shape::Integer),
        "del" => (Command::Del(Items::keys(all, &mut buffer)), Shape::Integer),
        "exists" => (Command::Exists(Items::keys(all, &mut buffer)), Shape::Integer),
        "mget" => (Command::GetMany(Items::keys(all, &mut buffer)), Shape::List),
        "mset" if all.len() % 2 != 0 => return wrong_count("mset"),
        "mset" => (Command::SetMany(Items::pairs(all, &mut buffer)), Shape::Status),
        "expire" => {
            let Some(seconds) = rest.first().and_then(|word| number(word)) else {
                return refuse(NOT_A_NUMBER);
            };
            let Some(ttl_ms) = seconds.checked_mul(1000) else { return refuse(bad_ttl("expire")) };
            (Command::Expire { key, ttl_ms }, Shape::Expire)
        }
        "ttl" => (Command::Ttl { key }, Shape::Seconds),
        "persist" => (Command::Persist { key }, Shape::Integer),
        "dbsize" => (Command::Count, Shape::Size),
        "flushall" => {
            let how = all.first().copied().unwrap_or(b"sync");
            if all.len() > 1 || !(how.eq_ignore_ascii_case(b"sync") || how.eq_ignore_ascii_case(b"async")) {
                return refuse(SYNTAX);
            }
            (Command::Clear, Shape::Status)
        }
        "info" => (Command::Count, Shape::Info(Sections::named(all))),
        _ => return Ok(None),
    };
    command.encode(operation);
    Ok(Some(shape))
}

/// `SET key value [NX | XX] [GET] [EX seconds | PX milliseconds]`, in any order.
fn set(key: &[u8], rest: &[&[u8]], operation: &mut Vec<u8>) -> Result<Shape, Refusal> {
    let Some((value, mut options)) = rest.split_first() else { return wrong_count("set") };
    let (mut condition, mut ttl_ms, mut get) = (None, None, false);
    while let Some((option, behind)) = options.split_first() {
        options = behind;
        match option.to_ascii_uppercase().as_slice() {
            b"NX" if condition != Some(Condition::Present) => condition = Some(Condition::Absent),
            b"XX" if condition != Some(Condition::Absent) => condition = Some(Condition::Present),
            b"GET" => get = true,
            unit @ (b"EX" | b"PX") => {
                let unit = if unit == b"EX" { 1000 } else { 1 };
                let Some((time, behind)) = options.split_first() else { return refuse(SYNTAX) };
                // The last one counts, but seconds and milliseconds cannot be combined.
                if ttl_ms.is_some_and(|(_, other)| other != unit) {
                    return refuse(SYNTAX);
                }
                options = behind;
                ttl_ms = Some((*time, unit));
            }
            _ => return refuse(SYNTAX),
        }
    }
    let ttl_ms = match ttl_ms {
        None => None,
        Some((time, unit)) => {
            let Some(time) = number(time) else { return refuse(NOT_A_NUMBER) };
            let ttl_ms = time.checked_mul(unit).filter(|_| time > 0).and_then(|ttl| u64::try_from(ttl).ok());
            let Some(ttl_ms) = ttl_ms else { return refuse(bad_ttl("set")) };
            Some(ttl_ms)
        }
    };
    if condition.is_none() && ttl_ms.is_none() && !get {
        Operation::Put { key, value }.encode(operation);
    } else {
        Command::Set { key, value, condition, ttl_ms, get }.encode(operation);
    }
    Ok(if get { Shape::SetGet } else { Shape::Set })
}
