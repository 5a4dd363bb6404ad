//! Translates the service's answer to the reply of Redis.

use std::fmt::Write as _;

use quorate_service::kv::{Answer, Failure};
use quorate_service::registry;

use super::decode::number;
use super::encode;
use super::refusal::bad_ttl;
use crate::front::Requests;

/// The version of Redis whose behaviour is followed, as reported to clients.
pub(super) const REDIS_VERSION: &str = "7.0.15";

/// The gateway's figures for INFO.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    /// The password, if there is one.
    pub(super) password: Option<&'a [u8]>,
    /// Maximum number of connections.
    pub(super) connections_max: usize,
    /// Open connections.
    pub(super) connections: usize,
    /// Connections so far.
    pub(super) connections_total: u64,
    /// Commands so far.
    pub(super) commands_total: u64,
    /// Requests to the cluster so far.
    pub(super) requests: Requests,
    /// Time since the gateway was opened, in seconds.
    pub(super) uptime_s: u64,
}

/// The kinds of replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A status.
    Status,
    /// SET: a status, or nil if the condition did not hold.
    Set,
    /// SET with GET: a value or nil.
    SetGet,
    /// A value or nil.
    Bulk,
    /// A number.
    Integer,
    /// A number, for EXPIRE.
    Expire,
    /// A time, rounded to seconds.
    Seconds,
    /// Values, each of which may be nil.
    List,
    /// The first of the store's sizes.
    Size,
    /// The text of INFO.
    Info(Sections),
}

/// The requested sections of INFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sections(u8);

const SECTIONS: [&str; 4] = ["server", "clients", "stats", "keyspace"];

impl Sections {
    /// Returns the sections with these names; without names, all.
    pub(super) fn named(names: &[&[u8]]) -> Self {
        let everything = names.is_empty()
            || names.iter().any(|name| ["all", "default", "everything"].iter().any(|all| is(name, all)));
        let wanted = SECTIONS
            .iter()
            .enumerate()
            .filter(|(_, section)| everything || names.iter().any(|name| is(name, section)));
        Self(wanted.fold(0, |bits, (at, _)| bits | 1 << at))
    }

    fn has(self, at: usize) -> bool {
        self.0 & 1 << at != 0
    }
}

fn is(name: &[u8], text: &str) -> bool {
    name.eq_ignore_ascii_case(text.as_bytes())
}

/// Appends the reply for an answer.
pub(super) fn reply(answer: &[u8], shape: Shape, facts: &Facts<'_>, out: &mut Vec<u8>) {
    let before = out.len();
    if shaped(answer, shape, facts, out).is_none() {
        // The service answers as documented. Other answers would come from another service, or from the client
        // registry.
        out.truncate(before);
        let text: &[u8] = match registry::RegistryResult::decode(answer) {
            Some(_) => b"NOPERM the gateway's client may not do this, or was removed",
            None => b"ERR the cluster runs another service than the key-value store",
        };
        encode::error(out, text);
    }
}

fn shaped(answer: &[u8], shape: Shape, facts: &Facts<'_>, out: &mut Vec<u8>) -> Option<()> {
    match (Answer::decode(answer).ok()?, shape) {
        (Answer::Failed(failure), _) => encode::error(out, refusal(failure, shape).as_bytes()),
        (Answer::Done, Shape::Status | Shape::Set) => encode::status(out, "OK"),
        (Answer::Nil, Shape::Set | Shape::SetGet | Shape::Bulk) => encode::nil(out),
        (Answer::Value(value), Shape::Bulk | Shape::SetGet) => encode::bulk(out, value),
        (Answer::Value(text), Shape::Integer | Shape::Expire) => {
            encode::integer(out, number(text)?);
        }
        (Answer::Value(text), Shape::Seconds) => {
            let ms = number(text)?;
            encode::integer(out, if ms < 0 { ms } else { ms.saturating_add(500) / 1000 });
        }
        (Answer::Many(values), Shape::List) => {
            encode::array(out, values.iter().count());
            for value in values.iter() {
                match Answer::decode(value).ok()? {
                    Answer::Value(value) => encode::bulk(out, value),
                    Answer::Nil => encode::nil(out),
                    Answer::Done | Answer::Failed(_) | Answer::Many(_) => return None,
                }
            }
        }
        (Answer::Many(sizes), Shape::Size | Shape::Info(_)) => {
            let mut numbers = [0; 3];
            for (number, size) in numbers.iter_mut().zip(sizes.iter()) {
                let Answer::Value(text) = Answer::decode(size).ok()? else { return None };
                *number = self::number(text)?;
            }
            if let Shape::Info(sections) = shape {
                encode::bulk(out, info(numbers, sections, facts).as_bytes());
            } else {
                encode::integer(out, numbers[0]);
            }
        }
        _ => return None,
    }
    Some(())
}

/// Returns Redis's error for a refusal of the service.
fn refusal(failure: Failure, shape: Shape) -> String {
    let text = match failure {
        Failure::NotANumber => "ERR value is not an integer or out of range",
        Failure::Overflow => "ERR increment or decrement would overflow",
        Failure::ValueTooLong => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        Failure::KeyTooLong => "ERR key too long",
        Failure::Full => "OOM command not allowed when used memory > 'maxmemory'.",
        Failure::BadTtl => return bad_ttl(if shape == Shape::Expire { "expire" } else { "set" }),
        Failure::AnswerTooLong => "ERR the answer is too long",
        Failure::Malformed | Failure::Mismatch | Failure::NeedsOrder => {
            return format!("ERR {}", failure.text());
        }
    };
    text.to_owned()
}

fn info([keys, expiring, pages]: [i64; 3], sections: Sections, facts: &Facts<'_>) -> String {
    let mut text = String::new();
    let version = env!("CARGO_PKG_VERSION");
    let bodies = [
        format!(
            "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\nquorate_version:{version}\r\n\
             uptime_in_seconds:{}\r\n",
            facts.uptime_s
        ),
        format!(
            "# Clients\r\nconnected_clients:{}\r\nmaxclients:{}\r\n",
            facts.connections, facts.connections_max
        ),
        format!(
            "# Stats\r\ntotal_connections_received:{}\r\ntotal_commands_processed:{}\r\nstate_pages:{pages}\r\n\
             requests_sent:{}\r\nrequests_resent:{}\r\n",
            facts.connections_total, facts.commands_total, facts.requests.sent, facts.requests.resent
        ),
        if keys == 0 {
            "# Keyspace\r\n".to_owned()
        } else {
            format!("# Keyspace\r\ndb0:keys={keys},expires={expiring},avg_ttl=0\r\n")
        },
    ];
    for (at, body) in bodies.iter().enumerate().filter(|(at, _)| sections.has(*at)) {
        // Writing to a string does not fail.
        let _ = write!(text, "{}{body}", if at > 0 && !text.is_empty() { "\r\n" } else { "" });
    }
    text
}
