//! The table of commands.

use super::encode;

/// An entry of the command table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    /// Number of words, including the name; negative: at least that many.
    pub(super) arity: i64,
    flags: &'static [&'static str],
    /// The first key, the last, and the step between.
    keys: (i64, i64, i64),
}

const fn entry(
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    keys: (i64, i64, i64),
) -> Entry {
    Entry { name, arity, flags, keys }
}

const READ: &[&str] = &["readonly", "fast"];

const WRITE: &[&str] = &["write", "denyoom", "fast"];

const REMOVE: &[&str] = &["write", "fast"];

const HERE: &[&str] = &["loading", "stale", "fast"];

/// Every command, in alphabetical order.
pub(super) const COMMANDS: &[Entry] = &[
    entry("append", 3, WRITE, (1, 1, 1)),
    entry("auth", -2, HERE, (0, 0, 0)),
    entry("client", -2, HERE, (0, 0, 0)),
    entry("command", -1, HERE, (0, 0, 0)),
    entry("config", -2, HERE, (0, 0, 0)),
    entry("dbsize", 1, READ, (0, 0, 0)),
    entry("decr", 2, WRITE, (1, 1, 1)),
    entry("del", -2, REMOVE, (1, -1, 1)),
    entry("echo", 2, HERE, (0, 0, 0)),
    entry("exists", -2, READ, (1, -1, 1)),
    entry("expire", 3, REMOVE, (1, 1, 1)),
    entry("flushall", -1, REMOVE, (0, 0, 0)),
    entry("get", 2, READ, (1, 1, 1)),
    entry("getdel", 2, REMOVE, (1, 1, 1)),
    entry("hello", -1, HERE, (0, 0, 0)),
    entry("incr", 2, WRITE, (1, 1, 1)),
    entry("incrby", 3, WRITE, (1, 1, 1)),
    entry("info", -1, HERE, (0, 0, 0)),
    entry("mget", -2, READ, (1, -1, 1)),
    entry("mset", -3, WRITE, (1, -1, 2)),
    entry("persist", 2, REMOVE, (1, 1, 1)),
    entry("ping", -1, HERE, (0, 0, 0)),
    entry("quit", -1, HERE, (0, 0, 0)),
    entry("select", 2, HERE, (0, 0, 0)),
    entry("set", -3, WRITE, (1, 1, 1)),
    entry("strlen", 2, READ, (1, 1, 1)),
    entry("ttl", 2, READ, (1, 1, 1)),
];

impl Entry {
    /// Appends the entry of COMMAND for it.
    pub(super) fn describe(&self, out: &mut Vec<u8>) {
        encode::array(out, 6);
        encode::bulk(out, self.name.as_bytes());
        encode::integer(out, self.arity);
        encode::array(out, self.flags.len());
        self.flags.iter().for_each(|flag| encode::status(out, flag));
        let (first, last, step) = self.keys;
        for at in [first, last, step] {
            encode::integer(out, at);
        }
    }
}
