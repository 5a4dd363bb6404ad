//! Errors of commands, with Redis's texts.

use quorate_service::kv::PATTERN_BYTES_MAX;

/// An error, with Redis's text.
pub(super) type Refusal = Vec<u8>;

pub(super) fn refuse<T>(text: impl Into<String>) -> Result<T, Refusal> {
    Err(text.into().into_bytes())
}

pub(super) const SYNTAX: &str = "ERR syntax error";

pub(super) const NOT_A_NUMBER: &str = "ERR value is not an integer or out of range";

pub(super) fn wrong_count<T>(name: &str) -> Result<T, Refusal> {
    refuse(format!("ERR wrong number of arguments for '{name}' command"))
}

/// Refuses patterns that are too long, all of them together.
pub(super) fn check_patterns(patterns: &[&[u8]]) -> Result<(), Refusal> {
    if patterns.iter().map(|pattern| pattern.len()).sum::<usize>() > PATTERN_BYTES_MAX {
        return refuse(format!("ERR pattern too long: at most {PATTERN_BYTES_MAX} bytes"));
    }
    Ok(())
}

pub(super) fn bad_ttl(command: &str) -> String {
    format!("ERR invalid expire time in '{command}' command")
}
