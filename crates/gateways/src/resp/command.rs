//! Translates a command: to an operation of the cluster, or to a reply of the gateway itself.
//!
//! Commands that concern only the connection (PING, AUTH, CLIENT ...) are answered here, by the gateway alone.
//! Commands on data go to the cluster. Between MULTI and EXEC, both are kept.

use quorate_service::kv::Further;

use super::data;
use super::encode;
use super::refusal::{Refusal, refuse, wrong_count};
use super::reply::{Facts, Form};
use super::session::{Parsed, Session, here};
use super::table::{COMMANDS, CommandEntry};
use super::transaction::{Queue, Queued};

/// Commands that are allowed before the password is given.
const OPEN: &[&str] = &["auth", "hello", "quit", "reset"];
/// Commands that a transaction does not keep.
const UNKEPT: &[&str] = &["multi", "exec", "discard", "watch", "quit", "reset"];

/// Handles a command of at least one word, as far as the gateway can: see [`Parsed`].
pub(super) fn parse(
    words: &[&[u8]],
    session: &mut Session,
    facts: &Facts<'_>,
    operation: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Parsed {
    let (before, asked_before) = (out.len(), operation.len());
    let found = find(words).and_then(|entry| {
        if !session.admitted && !OPEN.contains(&entry.name) {
            return refuse("NOAUTH Authentication required.");
        }
        Ok(entry)
    });
    if found.is_err()
        && let Some(queue) = &mut session.queue
    {
        queue.refuse();
    }
    let parsed = found.and_then(|entry| {
        let kept = session.queue.is_some() && !UNKEPT.contains(&entry.name);
        let parsed = one(&entry, words, session, facts, operation, out);
        if parsed.is_err() && entry.name == "watch" && session.queue.is_none() {
            session.watched.refuse();
        }
        if kept { Ok(keep(parsed, session, facts, (operation, asked_before), (out, before))) } else { parsed }
    });
    parsed.unwrap_or_else(|refusal| {
        out.truncate(before);
        operation.truncate(asked_before);
        encode::error(out, &refusal);
        Parsed::Answered
    })
}

/// Handles a command that is not kept for later.
fn one(
    entry: &CommandEntry,
    words: &[&[u8]],
    session: &mut Session,
    facts: &Facts<'_>,
    operation: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<Parsed, Refusal> {
    match entry.name {
        "multi" if session.queue.is_some() => return refuse("ERR MULTI calls can not be nested"),
        "multi" => {
            session.queue = Some(Box::new(Queue::new(session.database)));
            encode::status(out, "OK");
            return Ok(Parsed::Answered);
        }
        "discard" => {
            let Some(queue) = session.queue.take() else { return refuse("ERR DISCARD without MULTI") };
            session.database = queue.database_before();
            session.watched.clear();
            encode::status(out, "OK");
            return Ok(Parsed::Answered);
        }
        "exec" => {
            let Some(queue) = session.queue.take() else { return refuse("ERR EXEC without MULTI") };
            if queue.is_refused() || session.watched.is_refused() {
                session.database = queue.database_before();
                session.watched.clear();
                return refuse("EXECABORT Transaction discarded because of previous errors.");
            }
            let exec = queue.finish(&session.watched, session.version, operation);
            session.watched.clear();
            return Ok(Parsed::Exec(exec));
        }
        "watch" if session.queue.is_some() => return refuse("ERR WATCH inside MULTI is not allowed"),
        _ => {}
    }
    let start = operation.len();
    let Some(shape) = data::ask(entry.name, words, session.database, facts, operation)? else {
        return here(entry.name, words, session, facts, out);
    };
    if session.database > 0 {
        operation.splice(start..start, [Further::IN_CODE, session.database]);
    }
    if entry.name == "watch" && !session.watched.has_room(operation.len() - start) {
        return refuse("ERR too many keys are watched");
    }
    let form = Form { shape, name: entry.name, version: session.version, database: session.database };
    Ok(Parsed::Ask(form))
}

/// Keeps a command for EXEC: its operation, or its reply.
fn keep(
    parsed: Result<Parsed, Refusal>,
    session: &mut Session,
    facts: &Facts<'_>,
    (operation, asked_before): (&mut Vec<u8>, usize),
    (out, before): (&mut Vec<u8>, usize),
) -> Parsed {
    let item = match parsed {
        Ok(Parsed::Ask(form)) => Queued::Asked(form),
        Ok(Parsed::Answered) => Queued::Known(out.split_off(before)),
        // A command that ends the connection or runs a transaction is not kept.
        Ok(parsed @ (Parsed::Quit | Parsed::Exec(..))) => return parsed,
        Err(refusal) => {
            let mut reply = Vec::new();
            encode::error(&mut reply, &refusal);
            Queued::Known(reply)
        }
    };
    let asked = if matches!(item, Queued::Asked(_)) { operation.split_off(asked_before) } else { Vec::new() };
    operation.truncate(asked_before);
    out.truncate(before);
    let bytes_max = facts.operation_bytes_max.saturating_sub(session.watched.held());
    let kept = session.queue.as_mut().is_some_and(|queue| queue.push(item, &asked, bytes_max));
    if kept {
        encode::status(out, "QUEUED");
    } else {
        encode::error(out, b"ERR the transaction is too long: at most 1024 commands and 1 MiB");
    }
    Parsed::Answered
}

/// Finds a command in the table, and checks its number of words.
fn find(words: &[&[u8]]) -> Result<CommandEntry, Refusal> {
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
