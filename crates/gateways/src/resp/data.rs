//! Translates commands on data to operations of the store.

use quorate_service::kv::{
    Asked, Command, Condition, Container, DATABASES, Further, ITEMS_MAX, Items, Life, Operation, Rule, Sort,
};

use super::decode::{is_infinite, number};
use super::refusal::{NOT_A_NUMBER, Refusal, SYNTAX, bad_ttl, check_patterns, refuse, wrong_count};
use super::reply::{Facts, Sections, Shape};
use super::script;
use super::{elements, lists};

/// Appends the operation of a command on data in the database `here`; none if it is not one. The number of words was checked with the table.
#[allow(clippy::too_many_lines, reason = "a line for each command")]
pub(super) fn ask(
    name: &str,
    words: &[&[u8]],
    here: u8,
    facts: &Facts<'_>,
    operation: &mut Vec<u8>,
) -> Result<Option<Shape>, Refusal> {
    let (key, rest) = match words {
        [_, key, rest @ ..] => (*key, rest),
        _ => (&[][..], &[][..]),
    };
    let all = words.get(1..).unwrap_or(&[]);
    if !fits(name, key, all) && !name.starts_with('h') {
        return refuse("ERR key too long");
    }
    let mut buffer = Vec::new();
    let first = rest.first().copied().unwrap_or_default();
    let second = rest.get(1).copied().unwrap_or_default();
    let plain = Asked::Operation;
    let command = Asked::Command;
    let further = Asked::Further;
    let (asked, shape) = match name {
        "get" => (plain(Operation::Get { key }), Shape::Bulk),
        "incr" => (plain(Operation::Incr { key, by: 1 }), Shape::Integer),
        "decr" => (plain(Operation::Incr { key, by: -1 }), Shape::Integer),
        "incrby" => (plain(Operation::Incr { key, by: integer(first)? }), Shape::Integer),
        "decrby" => {
            let Some(by) = integer(first)?.checked_neg() else {
                return refuse("ERR decrement would overflow");
            };
            (plain(Operation::Incr { key, by }), Shape::Integer)
        }
        "incrbyfloat" if is_infinite(first) => {
            return refuse("ERR increment would produce NaN or Infinity");
        }
        "incrbyfloat" => (further(Further::AddDecimal { key, by: first }), Shape::Bulk),
        "append" => (plain(Operation::Append { key, suffix: first }), Shape::Integer),
        "set" => return set(key, rest, operation).map(Some),
        "setnx" => {
            let condition = Some(Condition::Absent);
            let set = Further::Set { key, value: first, condition, life: Life::Forever, get: false };
            (further(set), Shape::Flag)
        }
        "setex" | "psetex" => {
            let life = lasting(first, if name == "setex" { b"EX" } else { b"PX" }, name)?;
            let set = Further::Set { key, value: second, condition: None, life, get: false };
            (further(set), Shape::Set)
        }
        "getset" => {
            let set = Further::Set { key, value: first, condition: None, life: Life::Forever, get: true };
            (further(set), Shape::SetGet)
        }
        "getex" if rest.is_empty() => (plain(Operation::Get { key }), Shape::Bulk),
        "getex" => (further(Further::GetEx { key, life: options(rest, "getex")?.life }), Shape::Bulk),
        "getdel" => (command(Command::GetDel { key }), Shape::Bulk),
        "getrange" | "substr" => {
            (further(Further::Range { key, start: integer(first)?, end: integer(second)? }), Shape::Bulk)
        }
        "setrange" => {
            let offset = integer(first)?;
            if offset < 0 {
                return refuse("ERR offset is out of range");
            }
            let Ok(offset) = u32::try_from(offset) else {
                return refuse("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
            };
            (further(Further::Overwrite { key, offset, value: second }), Shape::Integer)
        }
        "setbit" => {
            let place = bit_place(first)?;
            let is_set = match second {
                b"0" => false,
                b"1" => true,
                _ => return refuse("ERR bit is not an integer or out of range"),
            };
            (further(Further::SetBit { key, place, is_set }), Shape::Integer)
        }
        "getbit" => {
            let place = bit_place(first)?;
            let byte = i64::from(place / 8);
            (further(Further::Range { key, start: byte, end: byte }), Shape::Bit { shift: 7 - place % 8 })
        }
        "memory" => match (key.eq_ignore_ascii_case(b"USAGE"), rest) {
            (true, [of]) => (further(Further::Usage { key: of }), Shape::Figure),
            (true, [of, samples, count]) if samples.eq_ignore_ascii_case(b"SAMPLES") => {
                integer(count)?;
                (further(Further::Usage { key: of }), Shape::Figure)
            }
            (true, _) => return refuse(SYNTAX),
            (false, _) => {
                return refuse("ERR unknown subcommand or wrong number of arguments. Try MEMORY HELP.");
            }
        },
        "strlen" => (command(Command::Length { key }), Shape::Integer),
        "del" | "unlink" => (command(Command::Del(Items::keys(all, &mut buffer))), Shape::Integer),
        "exists" | "touch" => (command(Command::Exists(Items::keys(all, &mut buffer))), Shape::Integer),
        "mget" => (command(Command::GetMany(Items::keys(all, &mut buffer))), Shape::List),
        "mset" | "msetnx" if all.len() % 2 != 0 => return wrong_count(name),
        "mset" => (command(Command::SetMany(Items::pairs(all, &mut buffer))), Shape::Status),
        "msetnx" => (further(Further::SetAbsent(Items::pairs(all, &mut buffer))), Shape::Integer),
        "expire" | "pexpire" | "expireat" | "pexpireat" => {
            (further(expire(name, key, rest)?), Shape::Integer)
        }
        "ttl" => (command(Command::Ttl { key }), Shape::Seconds),
        "pttl" => (command(Command::Ttl { key }), Shape::Integer),
        "expiretime" => (further(Further::Deadline { key }), Shape::Seconds),
        "pexpiretime" => (further(Further::Deadline { key }), Shape::Integer),
        "persist" => (command(Command::Persist { key }), Shape::Integer),
        "rename" => (
            further(Further::Copy { from: key, to: first, database: None, replace: true, remove: true }),
            Shape::Rename,
        ),
        "renamenx" => {
            let copy = Further::Copy { from: key, to: first, database: None, replace: false, remove: true };
            (further(copy), Shape::Copy { strict: true })
        }
        "copy" => (further(copy(key, rest, here)?), Shape::Copy { strict: false }),
        "move" => {
            let database = database(first)?;
            if database == here {
                return refuse(SAME);
            }
            let moved =
                Further::Copy { from: key, to: key, database: Some(database), replace: false, remove: true };
            (further(moved), Shape::Copy { strict: false })
        }
        "dbsize" => (command(Command::Count), Shape::Size),
        "flushall" | "flushdb" => {
            let how = all.first().copied().unwrap_or(b"sync");
            if all.len() > 1 || !(how.eq_ignore_ascii_case(b"sync") || how.eq_ignore_ascii_case(b"async")) {
                return refuse(SYNTAX);
            }
            let clear = if name == "flushall" { command(Command::Clear) } else { further(Further::ClearOne) };
            (clear, Shape::Status)
        }
        "info" => (command(Command::Count), Shape::Info(Sections::named(all))),
        "time" => (further(Further::Time), Shape::Time),
        "randomkey" => (further(Further::Random), Shape::Bulk),
        "keys" => {
            check_patterns(all)?;
            let scan = Further::Scan { from: &[], count: 0, all: true, kind: Sort::Any, pattern: key };
            (further(scan), Shape::Keys)
        }
        "scan" => return scan(key, rest, facts, operation).map(Some),
        "watch" => (further(Further::Mark(Items::keys(all, &mut buffer))), Shape::Watch),
        "eval" | "evalsha" => return script::ask(name, key, rest, facts, operation).map(Some),
        _ => {
            return match elements::ask(name, words, facts, operation)? {
                None => lists::ask(name, words, operation),
                shape => Ok(shape),
            };
        }
    };
    encode(asked, operation);
    Ok(Some(shape))
}

/// Reads the place of a bit, which Redis bounds by 512 MiB.
fn bit_place(word: &[u8]) -> Result<u32, Refusal> {
    let place = number(word).and_then(|place| u32::try_from(place).ok());
    place.map_or_else(|| refuse("ERR bit offset is not an integer or out of range"), Ok)
}

fn encode(asked: Asked<'_>, operation: &mut Vec<u8>) {
    match asked {
        Asked::Operation(asked) => asked.encode(operation),
        Asked::Command(asked) => asked.encode(operation),
        Asked::Further(asked) => asked.encode(operation),
        Asked::Elements(asked) => asked.encode(operation),
        Asked::List(asked) => asked.encode(operation),
    }
}

/// Returns whether keys, and the number of words, fit in an operation. Values are bounded by its length.
fn fits(name: &str, key: &[u8], all: &[&[u8]]) -> bool {
    let short = |key: &[u8]| u16::try_from(key.len()).is_ok();
    match name {
        "mset" | "msetnx" => all.len() <= ITEMS_MAX && all.iter().step_by(2).all(|key| short(key)),
        "set" | "append" | "setnx" | "setex" | "psetex" | "getset" | "setrange" | "incrbyfloat" | "lpush"
        | "rpush" | "lpushx" | "rpushx" | "lset" | "lrem" | "linsert" | "lpos" => short(key),
        // Patterns have a limit of their own.
        "keys" | "scan" | "sscan" | "config" => true,
        "eval" | "evalsha" => all.iter().skip(2).all(|word| short(word)),
        _ => all.len() <= ITEMS_MAX && all.iter().all(|word| short(word)),
    }
}

fn integer(word: &[u8]) -> Result<i64, Refusal> {
    number(word).map_or_else(|| refuse(NOT_A_NUMBER), Ok)
}

/// What the options of SET and GETEX say.
struct SetOptions {
    condition: Option<Condition>,
    life: Life,
    get: bool,
}

/// Reads options in any order: of SET `NX`, `XX`, `GET` and `KEEPTTL`, of GETEX `PERSIST`; of both a time.
fn options(mut rest: &[&[u8]], name: &str) -> Result<SetOptions, Refusal> {
    let is_set = name == "set";
    let mut options =
        SetOptions { condition: None, life: if is_set { Life::Forever } else { Life::AsBefore }, get: false };
    // The time and its unit; or the one option that stands for no time.
    let (mut time, mut other) = (None::<(&[u8], Vec<u8>)>, None::<Life>);
    while let Some((option, behind)) = rest.split_first() {
        rest = behind;
        match option.to_ascii_uppercase().as_slice() {
            b"NX" if is_set && options.condition != Some(Condition::Present) => {
                options.condition = Some(Condition::Absent);
            }
            b"XX" if is_set && options.condition != Some(Condition::Absent) => {
                options.condition = Some(Condition::Present);
            }
            b"GET" if is_set => options.get = true,
            b"KEEPTTL" if is_set && time.is_none() => other = Some(Life::AsBefore),
            b"PERSIST" if !is_set && time.is_none() => other = Some(Life::Forever),
            unit @ (b"EX" | b"PX" | b"EXAT" | b"PXAT") if other.is_none() => {
                let Some((word, behind)) = rest.split_first() else { return refuse(SYNTAX) };
                // The last one counts, but units cannot be combined.
                if time.as_ref().is_some_and(|(_, other)| other != unit) {
                    return refuse(SYNTAX);
                }
                rest = behind;
                time = Some((word, unit.to_vec()));
            }
            _ => return refuse(SYNTAX),
        }
    }
    if let Some(other) = other {
        options.life = other;
    }
    if let Some((word, unit)) = time {
        options.life = lasting(word, &unit, name)?;
    }
    Ok(options)
}

/// Reads a time above 0 in a unit.
fn lasting(word: &[u8], unit: &[u8], name: &str) -> Result<Life, Refusal> {
    let time = integer(word)?;
    let factor = if unit.starts_with(b"EX") { 1000 } else { 1 };
    let ms = time.checked_mul(factor).filter(|_| time > 0).and_then(|ms| u64::try_from(ms).ok());
    let ms = match ms {
        Some(ms) => ms,
        // The store refuses it, if there is such a key.
        None if name == "getex" => 0,
        None => return refuse(bad_ttl(name)),
    };
    Ok(if unit.ends_with(b"AT") { Life::Until(ms) } else { Life::For(ms) })
}

/// `SET key value [NX | XX] [GET] [KEEPTTL | EX seconds | PX milliseconds | EXAT time | PXAT time]`.
fn set(key: &[u8], rest: &[&[u8]], operation: &mut Vec<u8>) -> Result<Shape, Refusal> {
    let Some((value, rest)) = rest.split_first() else { return wrong_count("set") };
    let SetOptions { condition, life, get } = options(rest, "set")?;
    if condition.is_none() && life == Life::Forever && !get {
        Operation::Put { key, value }.encode(operation);
    } else {
        Further::Set { key, value, condition, life, get }.encode(operation);
    }
    Ok(if get { Shape::SetGet } else { Shape::Set })
}

/// `EXPIRE key time [NX | XX | GT | LT]` and the like.
fn expire<'a>(name: &str, key: &'a [u8], rest: &[&[u8]]) -> Result<Further<'a>, Refusal> {
    let Some((time, options)) = rest.split_first() else { return wrong_count(name) };
    let mut rule = 0;
    for option in options {
        rule |= match option.to_ascii_uppercase().as_slice() {
            b"NX" => Rule::ABSENT,
            b"XX" => Rule::PRESENT,
            b"GT" => Rule::LATER,
            b"LT" => Rule::EARLIER,
            _ => {
                let mut text = b"ERR Unsupported option ".to_vec();
                text.extend(option.iter().take(128));
                return Err(text);
            }
        };
    }
    if rule & Rule::ABSENT != 0 && rule != Rule::ABSENT {
        return refuse("ERR NX and XX, GT or LT options at the same time are not compatible");
    }
    if rule & Rule::LATER != 0 && rule & Rule::EARLIER != 0 {
        return refuse("ERR GT and LT options at the same time are not compatible");
    }
    let factor = if name.starts_with('p') { 1 } else { 1000 };
    let Some(time_ms) = integer(time)?.checked_mul(factor) else { return refuse(bad_ttl(name)) };
    Ok(Further::Expire { key, time_ms, since_1970: name.ends_with("at"), rule: Rule(rule) })
}

const SAME: &str = "ERR source and destination objects are the same";

fn database(word: &[u8]) -> Result<u8, Refusal> {
    match u8::try_from(integer(word)?) {
        Ok(database) if database < DATABASES => Ok(database),
        Ok(_) | Err(_) => refuse("ERR DB index is out of range"),
    }
}

/// `COPY from to [DB database] [REPLACE]`, in the database `here`.
fn copy<'a>(from: &'a [u8], rest: &[&'a [u8]], here: u8) -> Result<Further<'a>, Refusal> {
    let Some((to, mut options)) = rest.split_first() else { return wrong_count("copy") };
    let (mut replace, mut other) = (false, None);
    while let Some((option, behind)) = options.split_first() {
        options = behind;
        if option.eq_ignore_ascii_case(b"REPLACE") {
            replace = true;
        } else if let (true, Some((word, behind))) =
            (option.eq_ignore_ascii_case(b"DB"), behind.split_first())
        {
            (other, options) = (Some(database(word)?), behind);
        } else {
            return refuse(SYNTAX);
        }
    }
    if from == *to && other.is_none_or(|other| other == here) {
        return refuse(SAME);
    }
    Ok(Further::Copy { from, to, database: other, replace, remove: false })
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`.
fn scan(
    cursor: &[u8],
    mut rest: &[&[u8]],
    facts: &Facts<'_>,
    operation: &mut Vec<u8>,
) -> Result<Shape, Refusal> {
    let Some(cursor) = std::str::from_utf8(cursor).ok().and_then(|text| text.parse::<u64>().ok()) else {
        return refuse("ERR invalid cursor");
    };
    let (mut pattern, mut count, mut hide, mut kind) = (&b"*"[..], 10, false, Sort::Any);
    while let Some((option, behind)) = rest.split_first() {
        let Some((value, behind)) = behind.split_first() else { return refuse(SYNTAX) };
        rest = behind;
        match option.to_ascii_uppercase().as_slice() {
            b"MATCH" => pattern = value,
            b"COUNT" => {
                let number = integer(value)?;
                if number < 1 {
                    return refuse(SYNTAX);
                }
                count = u32::try_from(number).unwrap_or(u32::MAX);
            }
            b"TYPE" => {
                let sorts = [
                    ("string", Sort::String),
                    ("hash", Sort::Made(Container::Hash)),
                    ("set", Sort::Made(Container::Set)),
                    ("list", Sort::Made(Container::List)),
                ];
                let found = sorts.iter().find(|(name, _)| value.eq_ignore_ascii_case(name.as_bytes()));
                kind = found.map_or(Sort::Any, |(_, kind)| *kind);
                hide = found.is_none();
            }
            _ => return refuse(SYNTAX),
        }
    }
    check_patterns(&[pattern])?;
    let Ok(cursors) = facts.cursors.lock() else { return refuse("ERR invalid cursor") };
    let Some(from) = cursors.key(cursor) else {
        return refuse("ERR this gateway no longer knows the cursor: begin with 0");
    };
    Further::Scan { from, count, all: false, kind, pattern }.encode(operation);
    Ok(Shape::Scan { hide })
}
