//! Translates commands on lists to operations of the store.

use quorate_service::kv::{ITEMS_MAX, Items, ListCall, ListVerb};

use super::decode::number;
use super::refusal::{NOT_A_NUMBER, Refusal, SYNTAX, refuse, wrong_count};
use super::reply::Shape;

/// Appends the operation of a command; none if it is not one on lists. The number of words was checked with the table.
pub(super) fn ask(name: &str, words: &[&[u8]], operation: &mut Vec<u8>) -> Result<Option<Shape>, Refusal> {
    let [_, key, rest @ ..] = words else { return Ok(None) };
    let first = rest.first().copied().unwrap_or_default();
    let second = rest.get(1).copied().unwrap_or_default();
    let (verb, amount, items, shape): (_, _, Vec<&[u8]>, _) = match name {
        "lpush" => (ListVerb::PushLeft, 0, rest.to_vec(), Shape::Integer),
        "rpush" => (ListVerb::PushRight, 0, rest.to_vec(), Shape::Integer),
        "lpushx" => (ListVerb::PushLeft, 1, rest.to_vec(), Shape::Integer),
        "rpushx" => (ListVerb::PushRight, 1, rest.to_vec(), Shape::Integer),
        "lpop" | "rpop" => {
            let verb = if name == "lpop" { ListVerb::PopLeft } else { ListVerb::PopRight };
            match rest {
                [] => (verb, 1, Vec::new(), Shape::First),
                [count] => match number(count) {
                    Some(count) if count >= 0 => (verb, count, Vec::new(), Shape::ListOrNil),
                    Some(_) | None => return refuse("ERR value is out of range, must be positive"),
                },
                _ => return wrong_count(name),
            }
        }
        "llen" => (ListVerb::Length, 0, Vec::new(), Shape::Integer),
        "lindex" => {
            let place = integer(first)?;
            return encode(ListVerb::Range, key, place, &[&place.to_le_bytes()], Shape::First, operation);
        }
        "lrange" | "ltrim" => {
            let (verb, shape) = if name == "lrange" {
                (ListVerb::Range, Shape::List)
            } else {
                (ListVerb::Trim, Shape::Status)
            };
            let (from, until) = (integer(first)?, integer(second)?);
            return encode(verb, key, from, &[&until.to_le_bytes()], shape, operation);
        }
        "lset" => (ListVerb::Set, integer(first)?, vec![second], Shape::Placed),
        "lrem" => (ListVerb::Remove, integer(first)?, vec![second], Shape::Integer),
        "linsert" => {
            let is_behind = match first.to_ascii_uppercase().as_slice() {
                b"BEFORE" => 0,
                b"AFTER" => 1,
                _ => return refuse(SYNTAX),
            };
            (ListVerb::Insert, is_behind, rest[1..].to_vec(), Shape::Integer)
        }
        "rpoplpush" => (ListVerb::Move, 1, vec![first], Shape::Bulk),
        "lmove" => {
            let is_right = |end: Option<&&[u8]>| match end.map(|end| end.to_ascii_uppercase()).as_deref() {
                Some(b"LEFT") => Ok(0),
                Some(b"RIGHT") => Ok(1),
                _ => refuse(SYNTAX),
            };
            (ListVerb::Move, is_right(rest.get(1))? | is_right(rest.get(2))? << 1, vec![first], Shape::Bulk)
        }
        "lpos" => return positions(key, first, rest.get(1..).unwrap_or(&[]), operation),
        _ => return Ok(None),
    };
    encode(verb, key, amount, &items, shape, operation)
}

fn encode(
    verb: ListVerb,
    key: &[u8],
    number: i64,
    items: &[&[u8]],
    shape: Shape,
    operation: &mut Vec<u8>,
) -> Result<Option<Shape>, Refusal> {
    if u16::try_from(key.len()).is_err() || items.len() > ITEMS_MAX {
        return refuse("ERR key too long");
    }
    let mut buffer = Vec::new();
    let items = if items.is_empty() { Items::none() } else { Items::operations(items, &mut buffer) };
    ListCall { verb, key, number, items }.encode(operation);
    Ok(Some(shape))
}

/// `LPOS key value [RANK rank] [COUNT count] [MAXLEN length]`.
fn positions(
    key: &[u8],
    value: &[u8],
    mut options: &[&[u8]],
    operation: &mut Vec<u8>,
) -> Result<Option<Shape>, Refusal> {
    let (mut rank, mut count, mut looked) = (1, None, 0);
    while let Some((option, behind)) = options.split_first() {
        let Some((word, behind)) = behind.split_first() else { return refuse(SYNTAX) };
        options = behind;
        match option.to_ascii_uppercase().as_slice() {
            b"RANK" => match integer(word)? {
                0 | i64::MIN => {
                    return refuse(
                        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or \
                         use negative to start from the end of the list",
                    );
                }
                other => rank = other,
            },
            b"COUNT" => count = Some(natural(word, "ERR COUNT can't be negative")?),
            b"MAXLEN" => looked = natural(word, "ERR MAXLEN can't be negative")?,
            _ => return refuse(SYNTAX),
        }
    }
    let shape = if count.is_some() { Shape::Integers } else { Shape::FirstInteger };
    let (count, looked) = (count.unwrap_or(1).to_le_bytes(), looked.to_le_bytes());
    encode(ListVerb::Positions, key, rank, &[value, &count, &looked], shape, operation)
}

fn integer(word: &[u8]) -> Result<i64, Refusal> {
    number(word).map_or_else(|| refuse(NOT_A_NUMBER), Ok)
}

fn natural(word: &[u8], negative: &str) -> Result<i64, Refusal> {
    match integer(word)? {
        number if number < 0 => refuse(negative),
        number => Ok(number),
    }
}
