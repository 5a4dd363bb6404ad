//! Translates commands on hashes and sets to operations of the store.

use quorate_service::kv::{Container, Elements, ITEMS_MAX, Items, Verb};

use super::decode::{is_infinite, number};
use super::refusal::{NOT_A_NUMBER, Refusal, SYNTAX, check_patterns, refuse, wrong_count};
use super::reply::{Facts, Property, Shape};

/// Appends the operation of a command; none if it is not one on hashes or sets. The number of words was checked with
/// the table.
pub(super) fn ask(
    name: &str,
    words: &[&[u8]],
    facts: &Facts<'_>,
    operation: &mut Vec<u8>,
) -> Result<Option<Shape>, Refusal> {
    let [_, key, rest @ ..] = words else { return Ok(None) };
    let first = rest.first().copied().unwrap_or_default();
    let mut asked = Plan { key, number: 0, names: rest, is_pairs: false };
    let (kind, verb, shape) = match name {
        "type" => (Container::Hash, Verb::Kind, Shape::Kind),
        "object" => {
            let properties = [
                ("encoding", Property::Encoding),
                ("refcount", Property::References),
                ("idletime", Property::IdleTime),
            ];
            let known = properties.iter().find(|(name, _)| key.eq_ignore_ascii_case(name.as_bytes()));
            let (Some((_, property)), [key]) = (known, rest) else {
                return refuse("ERR unknown subcommand or wrong number of arguments. Try OBJECT HELP.");
            };
            (asked.key, asked.names) = (key, &[]);
            (Container::Hash, Verb::Kind, Shape::Object(*property))
        }
        "hset" | "hmset" | "hsetnx" => {
            if rest.len() % 2 != 0 {
                return wrong_count(name);
            }
            asked.is_pairs = true;
            asked.number = i64::from(name == "hsetnx");
            (Container::Hash, Verb::Put, if name == "hmset" { Shape::Status } else { Shape::Integer })
        }
        "hget" => (Container::Hash, Verb::Get, Shape::First),
        "hmget" => (Container::Hash, Verb::Get, Shape::List),
        "hgetall" => (Container::Hash, Verb::Pairs, Shape::Map),
        "hkeys" => (Container::Hash, Verb::Names, Shape::List),
        "hvals" => (Container::Hash, Verb::Values, Shape::List),
        "hdel" => (Container::Hash, Verb::Remove, Shape::Integer),
        "hexists" => (Container::Hash, Verb::Has, Shape::FirstInteger),
        "hlen" => (Container::Hash, Verb::Count, Shape::Integer),
        "hstrlen" => (Container::Hash, Verb::Length, Shape::Integer),
        "hincrby" => {
            asked.number = integer(rest.get(1).copied().unwrap_or_default())?;
            asked.names = &rest[..1];
            (Container::Hash, Verb::Increase, Shape::Integer)
        }
        "hincrbyfloat" if rest.get(1).is_some_and(|by| is_infinite(by)) => {
            return refuse("ERR value is NaN or Infinity");
        }
        "hincrbyfloat" => {
            asked.is_pairs = true;
            (Container::Hash, Verb::AddDecimal, Shape::Bulk)
        }
        "hscan" | "sscan" => return scan(name, key, rest, facts, operation).map(Some),
        "hrandfield" | "srandmember" | "spop" => return random(name, key, rest, operation).map(Some),
        "sadd" => (Container::Set, Verb::Add, Shape::Integer),
        "srem" => (Container::Set, Verb::Remove, Shape::Integer),
        "smembers" => (Container::Set, Verb::Names, Shape::Set3),
        "sismember" => (Container::Set, Verb::Has, Shape::FirstInteger),
        "smismember" => (Container::Set, Verb::Has, Shape::Integers),
        "scard" => (Container::Set, Verb::Count, Shape::Integer),
        "smove" => (Container::Set, Verb::Move, Shape::Integer),
        "sinter" => (Container::Set, Verb::Common, Shape::Set3),
        "sunion" => (Container::Set, Verb::Union, Shape::Set3),
        "sdiff" => (Container::Set, Verb::Difference, Shape::Set3),
        "sinterstore" => (Container::Set, Verb::StoreCommon, Shape::Integer),
        "sunionstore" => (Container::Set, Verb::StoreUnion, Shape::Integer),
        "sdiffstore" => (Container::Set, Verb::StoreDifference, Shape::Integer),
        "sintercard" => {
            let Some(count) = number(key).and_then(|count| usize::try_from(count).ok()).filter(|n| *n > 0)
            else {
                return refuse("ERR numkeys should be greater than 0");
            };
            if count > rest.len() {
                return refuse("ERR Number of keys can't be greater than number of args");
            }
            let (keys, options) = rest.split_at(count);
            asked.number = limit(options)?;
            asked.key = first;
            asked.names = &keys[1..];
            (Container::Set, Verb::CountCommon, Shape::Integer)
        }
        _ => return Ok(None),
    };
    asked.encode(kind, verb, operation)?;
    Ok(Some(shape))
}

/// The words of an operation.
struct Plan<'a> {
    key: &'a [u8],
    number: i64,
    names: &'a [&'a [u8]],
    /// The names have values.
    is_pairs: bool,
}

impl Plan<'_> {
    fn encode(&self, kind: Container, verb: Verb, operation: &mut Vec<u8>) -> Result<(), Refusal> {
        let short = |word: &[u8]| u16::try_from(word.len()).is_ok();
        let step = if self.is_pairs { 2 } else { 1 };
        let fits = self.names.len() <= ITEMS_MAX && self.names.iter().step_by(step).all(|name| short(name));
        if !fits || !short(self.key) {
            return refuse("ERR key too long");
        }
        let mut buffer = Vec::new();
        let items = if self.is_pairs {
            Items::pairs(self.names, &mut buffer)
        } else {
            Items::keys(self.names, &mut buffer)
        };
        Elements { verb, kind, key: self.key, number: self.number, items }.encode(operation);
        Ok(())
    }
}

fn integer(word: &[u8]) -> Result<i64, Refusal> {
    number(word).map_or_else(|| refuse(NOT_A_NUMBER), Ok)
}

/// `[LIMIT limit]` of SINTERCARD; the last one counts.
fn limit(mut options: &[&[u8]]) -> Result<i64, Refusal> {
    let mut limit = 0;
    while let Some((option, behind)) = options.split_first() {
        let Some((value, behind)) = behind.split_first() else { return refuse(SYNTAX) };
        options = behind;
        if !option.eq_ignore_ascii_case(b"LIMIT") {
            return refuse(SYNTAX);
        }
        limit = match number(value) {
            Some(limit) if limit >= 0 => limit,
            _ => return refuse("ERR LIMIT can't be negative"),
        };
    }
    Ok(limit)
}

/// `HRANDFIELD key [count [WITHVALUES]]`, `SRANDMEMBER key [count]`, `SPOP key [count]`.
fn random(name: &str, key: &[u8], rest: &[&[u8]], operation: &mut Vec<u8>) -> Result<Shape, Refusal> {
    let kind = if name == "hrandfield" { Container::Hash } else { Container::Set };
    let is_pop = name == "spop";
    let (number, with_values) = match rest {
        [] => (1, false),
        [count] => (integer(count)?, false),
        [count, with] if kind == Container::Hash => {
            let count = integer(count)?;
            if !with.eq_ignore_ascii_case(b"WITHVALUES") {
                return refuse(SYNTAX);
            }
            (count, true)
        }
        _ => return refuse(SYNTAX),
    };
    if number == i64::MIN && !is_pop {
        let most = i64::MAX;
        return refuse(format!("ERR value is out of range, value must between -{most} and {most}"));
    }
    if with_values && number.unsigned_abs() > i64::MAX.unsigned_abs() / 2 {
        return refuse("ERR value is out of range");
    }
    if is_pop && number < 0 {
        return refuse("ERR value is out of range, must be positive");
    }
    let verb = match (is_pop, with_values) {
        (true, _) => Verb::Pop,
        (false, true) => Verb::RandomPairs,
        (false, false) => Verb::Random,
    };
    Plan { key, number, names: &[], is_pairs: false }.encode(kind, verb, operation)?;
    Ok(match (rest.is_empty(), is_pop, with_values) {
        (true, ..) => Shape::First,
        (_, true, _) => Shape::Set3,
        (_, _, true) => Shape::Pairs,
        _ => Shape::List,
    })
}

/// `HSCAN key cursor [MATCH pattern] [COUNT count]`, and SSCAN.
fn scan(
    name: &str,
    key: &[u8],
    rest: &[&[u8]],
    facts: &Facts<'_>,
    operation: &mut Vec<u8>,
) -> Result<Shape, Refusal> {
    let Some((cursor, mut options)) = rest.split_first() else { return wrong_count(name) };
    let Some(cursor) = std::str::from_utf8(cursor).ok().and_then(|text| text.parse::<u64>().ok()) else {
        return refuse("ERR invalid cursor");
    };
    let (mut pattern, mut count) = (&b"*"[..], 10);
    while let Some((option, behind)) = options.split_first() {
        let Some((value, behind)) = behind.split_first() else { return refuse(SYNTAX) };
        options = behind;
        match option.to_ascii_uppercase().as_slice() {
            b"MATCH" => pattern = *value,
            b"COUNT" => {
                count = integer(value)?;
                if count < 1 {
                    return refuse(SYNTAX);
                }
            }
            _ => return refuse(SYNTAX),
        }
    }
    check_patterns(&[pattern])?;
    let Ok(cursors) = facts.cursors.lock() else { return refuse("ERR invalid cursor") };
    let Some(from) = cursors.key(cursor) else {
        return refuse("ERR this gateway no longer knows the cursor: begin with 0");
    };
    let kind = if name == "hscan" { Container::Hash } else { Container::Set };
    Plan { key, number: count, names: &[from, pattern], is_pairs: true }.encode(
        kind,
        Verb::Scan,
        operation,
    )?;
    Ok(Shape::Scan { hide: false })
}
