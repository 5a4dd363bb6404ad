//! Translates the service's answer to the reply of Redis.

use std::fmt::Write as _;
use std::sync::Mutex;

use quorate_service::kv::{Answer, Answers, ELEMENTS_MAX, Failure, LOOKED_MAX, WORK_MAX};

use super::cursors::Cursors;
use super::decode::number;
use super::encode::{self, Version};
use super::guesses::Guesses;
use super::refusal::bad_ttl;
use super::scripts::Scripts;
use crate::front::Requests;

/// The version of Redis whose behaviour is followed, as reported to clients.
pub(super) const REDIS_VERSION: &str = "7.0.15";

/// The gateway's figures for INFO.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    /// The cursors of SCAN.
    pub(super) cursors: &'a Mutex<Cursors>,
    /// The scripts that clients have sent.
    pub(super) scripts: &'a Mutex<Scripts>,
    /// Maximum number of bytes of an operation.
    pub(super) operation_bytes_max: usize,
    /// The wrong passwords of late.
    pub(super) guesses: &'a Mutex<Guesses>,
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
    /// A number or nil.
    Figure,
    /// SETNX: a number, 1 if it was done.
    Flag,
    /// RENAME: a status, or an error if there is no such key.
    Rename,
    /// COPY, RENAMENX: a number; `strict`: an error if there is no such key.
    Copy { strict: bool },
    /// TYPE: a status.
    Kind,
    /// OBJECT: an encoding or a number; nil if there is no such key.
    Object(Property),
    /// GETBIT: a bit of the one byte that was asked for.
    Bit { shift: u32 },
    /// The first of many values, or nil.
    First,
    /// The first of many numbers, or nil.
    FirstInteger,
    /// Numbers.
    Integers,
    /// Names and values: of version 3 a map.
    Map,
    /// Names: of version 3 a set.
    Set3,
    /// Names and values: of version 3 pairs.
    Pairs,
    /// Seconds and microseconds.
    Time,
    /// A cursor and keys, or no keys.
    Scan { hide: bool },
    /// Keys.
    Keys,
    /// WATCH: the mark of its keys.
    Watch,
    /// A time, rounded to seconds.
    Seconds,
    /// Values, each of which may be nil.
    List,
    /// Values, or nil instead of an array.
    ListOrNil,
    /// LSET: a status, or an error if there is no such place or key.
    Placed,
    /// The first of the store's sizes.
    Size,
    /// The text of INFO.
    Info(Sections),
}

/// What OBJECT asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Property {
    Encoding,
    References,
    IdleTime,
}

/// What a reply to a command needs, in addition to the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) shape: Shape,
    /// The name of the command, for errors.
    pub(super) name: &'static str,
    pub(super) version: Version,
    pub(super) database: u8,
}

/// The requested sections of INFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sections(u8);

const SECTIONS: [&str; 8] =
    ["server", "clients", "memory", "persistence", "stats", "replication", "cluster", "keyspace"];

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
pub(super) fn reply(answer: &[u8], form: Form, facts: &Facts<'_>, out: &mut Vec<u8>) {
    let before = out.len();
    if shaped(answer, form, facts, out).is_none() {
        // The service answers as documented. Other answers would come from another service.
        out.truncate(before);
        encode::error(out, b"ERR the cluster runs another service than the key-value store");
    }
}

fn shaped(answer: &[u8], form: Form, facts: &Facts<'_>, out: &mut Vec<u8>) -> Option<()> {
    let version = form.version;
    match (Answer::decode(answer).ok()?, form.shape) {
        (Answer::Failed(failure), _) => encode::error(out, refusal(failure, form.name).as_bytes()),
        (Answer::Done, Shape::Status | Shape::Set) | (Answer::Value(_), Shape::Rename | Shape::Watch) => {
            // The session takes the mark of WATCH.
            encode::status(out, "OK");
        }
        (Answer::Nil, Shape::Set | Shape::SetGet | Shape::Bulk | Shape::First | Shape::Figure) => {
            encode::nil(out, version);
        }
        (Answer::Nil, Shape::ListOrNil) => encode::no_array(out, version),
        (Answer::Value(b"0"), Shape::Placed) => encode::error(out, b"ERR index out of range"),
        (Answer::Value(b"-1"), Shape::Placed) => encode::error(out, b"ERR no such key"),
        (Answer::Value(value), Shape::Bulk | Shape::SetGet) => encode::bulk(out, value),
        (Answer::Value(text), Shape::Integer | Shape::Figure | Shape::Copy { .. }) => {
            encode::integer(out, number(text)?);
        }
        (Answer::Done, Shape::Flag) => encode::integer(out, 1),
        (Answer::Nil, Shape::Flag | Shape::Copy { strict: false }) => encode::integer(out, 0),
        (Answer::Nil, Shape::Rename | Shape::Copy { strict: true }) => {
            encode::error(out, b"ERR no such key");
        }
        (Answer::Value(byte), Shape::Bit { shift }) => {
            encode::integer(out, i64::from(byte.first().copied().unwrap_or(0) >> shift & 1));
        }
        (Answer::Value(kind), Shape::Object(property)) => object(kind, property, version, out)?,
        (Answer::Value(kind), Shape::Kind) => encode::status(out, std::str::from_utf8(kind).ok()?),
        (Answer::Value(_), Shape::Status | Shape::Placed) => encode::status(out, "OK"),
        (Answer::Many(values), Shape::First | Shape::FirstInteger) => {
            match values.iter().next().map(Answer::decode) {
                Some(Ok(Answer::Value(text))) if form.shape == Shape::FirstInteger => {
                    encode::integer(out, number(text)?);
                }
                Some(Ok(Answer::Value(value))) => encode::bulk(out, value),
                None => encode::nil(out, version),
                Some(Ok(Answer::Nil)) if form.shape == Shape::First => encode::nil(out, version),
                _ => return None,
            }
        }
        (Answer::Many(numbers), Shape::Integers) => {
            encode::array(out, numbers.iter().count());
            for text in numbers.iter() {
                let Answer::Value(text) = Answer::decode(text).ok()? else { return None };
                encode::integer(out, number(text)?);
            }
        }
        (Answer::Many(values), Shape::Map | Shape::Set3 | Shape::Pairs) => elements(&values, form, out)?,
        (Answer::Value(text), Shape::Time) => {
            let us = number(text)?;
            encode::array(out, 2);
            encode::bulk(out, (us / 1_000_000).to_string().as_bytes());
            encode::bulk(out, (us % 1_000_000).to_string().as_bytes());
        }
        (Answer::Many(found), Shape::Scan { .. } | Shape::Keys) => {
            let mut keys = found.iter();
            let next = Answer::decode(keys.next()?).ok()?;
            let shown = if form.shape == (Shape::Scan { hide: true }) { 0 } else { found.iter().count() - 1 };
            if form.shape != Shape::Keys {
                let cursor = match next {
                    Answer::Value(key) => facts.cursors.lock().ok()?.keep(key),
                    Answer::Done | Answer::Nil | Answer::Failed(_) | Answer::Many(_) => 0,
                };
                encode::array(out, 2);
                encode::bulk(out, cursor.to_string().as_bytes());
            }
            encode::array(out, shown);
            for key in keys.take(shown) {
                let Answer::Value(key) = Answer::decode(key).ok()? else { return None };
                encode::bulk(out, key);
            }
        }
        (Answer::Value(text), Shape::Seconds) => {
            let ms = number(text)?;
            encode::integer(out, if ms < 0 { ms } else { ms.saturating_add(500) / 1000 });
        }
        (Answer::Many(values), Shape::List | Shape::ListOrNil) => {
            encode::array(out, values.iter().count());
            for value in values.iter() {
                match Answer::decode(value).ok()? {
                    Answer::Value(value) => encode::bulk(out, value),
                    Answer::Nil => encode::nil(out, version),
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
            if let Shape::Info(sections) = form.shape {
                encode::text(out, &info(numbers, form.database, sections, facts), version);
            } else {
                encode::integer(out, numbers[0]);
            }
        }
        _ => return None,
    }
    Some(())
}

/// Appends what OBJECT says of a value of this kind. The store has one encoding for each kind: the general one of Redis.
fn object(kind: &[u8], property: Property, version: Version, out: &mut Vec<u8>) -> Option<()> {
    let encoding = match kind {
        b"none" => {
            encode::nil(out, version);
            return Some(());
        }
        b"string" => "raw",
        b"hash" | b"set" => "hashtable",
        b"list" => "quicklist",
        _ => return None,
    };
    match property {
        Property::Encoding => encode::bulk(out, encoding.as_bytes()),
        Property::References => encode::integer(out, 1),
        Property::IdleTime => encode::integer(out, 0),
    }
    Some(())
}

/// Appends elements, as the version of the protocol has them.
fn elements(values: &Answers<'_>, form: Form, out: &mut Vec<u8>) -> Option<()> {
    let (count, version) = (values.iter().count(), form.version);
    let nested = form.shape == Shape::Pairs && version == Version::Three;
    if form.shape == Shape::Map {
        encode::map(out, count / 2, version);
    } else if form.shape == Shape::Set3 {
        encode::set(out, count, version);
    } else {
        encode::array(out, if nested { count / 2 } else { count });
    }
    for (at, value) in values.iter().enumerate() {
        if nested && at % 2 == 0 {
            encode::array(out, 2);
        }
        let Answer::Value(value) = Answer::decode(value).ok()? else { return None };
        encode::bulk(out, value);
    }
    Some(())
}

/// Returns Redis's error for a refusal of the service.
fn refusal(failure: Failure, name: &str) -> String {
    let text = match failure {
        Failure::WrongKind => "WRONGTYPE Operation against a key holding the wrong kind of value",
        Failure::TooManyElements => {
            return format!(
                "TOOLARGE a hash, set or list has at most {ELEMENTS_MAX} elements, and a command looks at {LOOKED_MAX} to \
                 {WORK_MAX}, depending on the command"
            );
        }
        Failure::KeyTooLong if name.starts_with('h') => "ERR key or field too long",
        Failure::NotANumber if name == "hincrby" => "ERR hash value is not an integer",
        Failure::NotANumber if name == "hincrbyfloat" => "ERR hash value is not a float",
        Failure::NotANumber => "ERR value is not an integer or out of range",
        Failure::NotADecimal => "ERR value is not a valid float",
        Failure::Overflow if name.ends_with("incrbyfloat") => "ERR increment would produce NaN or Infinity",
        Failure::Overflow => "ERR increment or decrement would overflow",
        Failure::ValueTooLong => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
        Failure::KeyTooLong => "ERR key too long",
        Failure::Full => "OOM command not allowed when used memory > 'maxmemory'.",
        Failure::BadTtl => return bad_ttl(name),
        Failure::AnswerTooLong => "ERR the answer is too long",
        Failure::Malformed | Failure::Mismatch | Failure::NeedsOrder => {
            return format!("ERR {}", failure.text());
        }
    };
    text.to_owned()
}

fn info([keys, expiring, pages]: [i64; 3], database: u8, sections: Sections, facts: &Facts<'_>) -> String {
    let mut text = String::new();
    let version = env!("CARGO_PKG_VERSION");
    let bodies = [
        format!(
            "# Server\r\nredis_version:{REDIS_VERSION}\r\nredis_mode:standalone\r\narch_bits:64\r\n\
             quorate_version:{version}\r\nprocess_id:{}\r\nuptime_in_seconds:{}\r\nuptime_in_days:{}\r\n",
            std::process::id(),
            facts.uptime_s,
            facts.uptime_s / 86_400
        ),
        format!(
            "# Clients\r\nconnected_clients:{}\r\nmaxclients:{}\r\n",
            facts.connections, facts.connections_max
        ),
        "# Memory\r\nused_memory:0\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n".to_owned(),
        "# Persistence\r\nloading:0\r\n".to_owned(),
        format!(
            "# Stats\r\ntotal_connections_received:{}\r\ntotal_commands_processed:{}\r\nstate_pages:{pages}\r\n\
             requests_sent:{}\r\nrequests_resent:{}\r\n",
            facts.connections_total, facts.commands_total, facts.requests.sent, facts.requests.resent
        ),
        "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n".to_owned(),
        "# Cluster\r\ncluster_enabled:0\r\n".to_owned(),
        if keys == 0 {
            "# Keyspace\r\n".to_owned()
        } else {
            format!("# Keyspace\r\ndb{database}:keys={keys},expires={expiring},avg_ttl=0\r\n")
        },
    ];
    for (at, body) in bodies.iter().enumerate().filter(|(at, _)| sections.has(*at)) {
        // Writing to a string does not fail.
        let _ = write!(text, "{}{body}", if at > 0 && !text.is_empty() { "\r\n" } else { "" });
    }
    text
}
