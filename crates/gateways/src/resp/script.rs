//! EVAL, EVALSHA and SCRIPT, for the scripts of locks.

use quorate_service::kv::{Extend, Further};

use super::decode::number;
use super::encode;
use super::refusal::{NOT_A_NUMBER, Refusal, refuse, wrong_count};
use super::reply::{Facts, Shape};
use super::scripts::Does;

const NO_LUA: &str = "ERR this gateway runs no Lua: it knows the scripts of locks only";

/// `EVAL script 1 key value ...`, `EVALSHA digest 1 key value ...`.
pub(super) fn ask(
    name: &str,
    script: &[u8],
    rest: &[&[u8]],
    facts: &Facts<'_>,
    operation: &mut Vec<u8>,
) -> Result<Shape, Refusal> {
    let Some((count, words)) = rest.split_first() else { return wrong_count(name) };
    match number(count) {
        None => return refuse(NOT_A_NUMBER),
        Some(count) if count < 0 => return refuse("ERR Number of keys can't be negative"),
        Some(count) if usize::try_from(count).map_or(true, |count| count > words.len()) => {
            return refuse("ERR Number of keys can't be greater than number of args");
        }
        Some(_) => {}
    }
    let Ok(mut scripts) = facts.scripts.lock() else { return refuse(NO_LUA) };
    let does = if name == "eval" {
        scripts.load(script).map(|(_, does)| does)
    } else {
        match scripts.find(script) {
            None => return refuse("NOSCRIPT No matching script. Please use EVAL."),
            does => does,
        }
    };
    let (Some(does), Some(1), [key, value, arguments @ ..]) = (does, number(count), words) else {
        return refuse(NO_LUA);
    };
    let time = || {
        let time_ms = arguments.first().and_then(|time| number(time));
        time_ms.map_or_else(|| refuse("ERR value is not an integer or out of range script"), Ok)
    };
    let (key, value) = (*key, *value);
    let how = match (does, arguments.get(1).copied()) {
        (Does::Release, _) => {
            Further::RemoveIf { key, value }.encode(operation);
            return Ok(Shape::Integer);
        }
        (Does::Renew, _) => Extend::From,
        (Does::Extend, Some(b"0")) => Extend::By,
        (Does::Extend, _) => Extend::Again,
    };
    Further::ExpireIf { key, value, how, time_ms: time()? }.encode(operation);
    Ok(Shape::Integer)
}

/// `SCRIPT LOAD script`, `SCRIPT EXISTS digest ...`, `SCRIPT FLUSH`.
pub(super) fn script(rest: &[&[u8]], facts: &Facts<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let Ok(mut scripts) = facts.scripts.lock() else { return refuse(NO_LUA) };
    match (rest.first().map(|what| what.to_ascii_lowercase()).as_deref(), rest.get(1..).unwrap_or(&[])) {
        (Some(b"load"), [text]) => match scripts.load(text) {
            Some((digest, _)) => encode::bulk(out, &digest),
            None => return refuse(NO_LUA),
        },
        (Some(b"exists"), digests) if !digests.is_empty() => {
            encode::array(out, digests.len());
            for digest in digests {
                encode::integer(out, i64::from(scripts.find(digest).is_some()));
            }
        }
        (Some(b"flush"), _) => {
            scripts.clear();
            encode::status(out, "OK");
        }
        _ => return refuse(NO_LUA),
    }
    Ok(())
}
