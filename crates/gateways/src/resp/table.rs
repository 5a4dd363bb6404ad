//! The table of commands.

use super::encode;

/// An entry of the command table.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandEntry {
    pub(super) name: &'static str,
    /// Number of words, including the name; negative: at least that many.
    pub(super) arity: i64,
    flags: &'static [&'static str],
    /// The first key, the last, and the step between.
    keys: (i64, i64, i64),
    /// Its options and limits, for the documents.
    pub(super) about: &'static str,
}

const fn entry(
    name: &'static str,
    arity: i64,
    flags: &'static [&'static str],
    keys: (i64, i64, i64),
    about: &'static str,
) -> CommandEntry {
    CommandEntry { name, arity, flags, keys, about }
}

const READ: &[&str] = &["readonly", "fast"];

const WRITE: &[&str] = &["write", "denyoom", "fast"];

const REMOVE: &[&str] = &["write", "fast"];

const HERE: &[&str] = &["loading", "stale", "fast"];

/// Every command, in alphabetical order.
pub(super) const COMMANDS: &[CommandEntry] = &[
    entry("append", 3, WRITE, (1, 1, 1), "`APPEND key value`"),
    entry("auth", -2, HERE, (0, 0, 0), "`AUTH [user] password`; the user is `default`"),
    entry(
        "client",
        -2,
        HERE,
        (0, 0, 0),
        "`CLIENT ID`, `GETNAME`, `SETNAME`, `SETINFO`, `INFO`, `LIST` (this connection only), `NO-EVICT`, `NO-TOUCH`, `TRACKING ON OPTIN`, `TRACKING OFF`, `CACHING YES`",
    ),
    entry(
        "command",
        -1,
        HERE,
        (0, 0, 0),
        "`COMMAND`, `COUNT`, `DOCS` (empty), `INFO` (at most 1024 names), `LIST`",
    ),
    entry(
        "config",
        -2,
        HERE,
        (0, 0, 0),
        "`CONFIG GET pattern ...`: a few settings; `CONFIG SET` changes nothing (see the differences below)",
    ),
    entry("copy", -3, WRITE, (1, 2, 1), "`DB`, `REPLACE`"),
    entry("dbsize", 1, READ, (0, 0, 0), ""),
    entry("decr", 2, WRITE, (1, 1, 1), ""),
    entry("decrby", 3, WRITE, (1, 1, 1), ""),
    entry("del", -2, REMOVE, (1, -1, 1), ""),
    entry("discard", 1, HERE, (0, 0, 0), ""),
    entry("echo", 2, HERE, (0, 0, 0), ""),
    entry("eval", -3, WRITE, (0, 0, 0), "the lock scripts below only"),
    entry("evalsha", -3, WRITE, (0, 0, 0), "the lock scripts below only"),
    entry("exec", 1, HERE, (0, 0, 0), "one ordered operation of at most 1 MiB"),
    entry("exists", -2, READ, (1, -1, 1), ""),
    entry("expire", -3, REMOVE, (1, 1, 1), "`NX`, `XX`, `GT`, `LT`"),
    entry("expireat", -3, REMOVE, (1, 1, 1), "`NX`, `XX`, `GT`, `LT`"),
    entry("expiretime", 2, READ, (1, 1, 1), ""),
    entry("flushall", -1, REMOVE, (0, 0, 0), "all databases"),
    entry("flushdb", -1, REMOVE, (0, 0, 0), ""),
    entry("get", 2, READ, (1, 1, 1), ""),
    entry("getbit", 3, READ, (1, 1, 1), ""),
    entry("getdel", 2, REMOVE, (1, 1, 1), ""),
    entry("getex", -2, REMOVE, (1, 1, 1), "`EX`, `PX`, `EXAT`, `PXAT`, `PERSIST`"),
    entry("getrange", 4, READ, (1, 1, 1), ""),
    entry("getset", 3, WRITE, (1, 1, 1), ""),
    entry("hdel", -3, REMOVE, (1, 1, 1), ""),
    entry("hello", -1, HERE, (0, 0, 0), "versions 2 and 3, `AUTH`, `SETNAME`"),
    entry("hexists", 3, READ, (1, 1, 1), ""),
    entry("hget", 3, READ, (1, 1, 1), ""),
    entry("hgetall", 2, READ, (1, 1, 1), "reply of at most 1 MiB; use `HSCAN` for larger hashes"),
    entry("hincrby", 4, WRITE, (1, 1, 1), ""),
    entry("hincrbyfloat", 4, WRITE, (1, 1, 1), "exact sums; numbers are rounded to 17 decimal places"),
    entry("hkeys", 2, READ, (1, 1, 1), "reply of at most 1 MiB; use `HSCAN` for larger hashes"),
    entry("hlen", 2, READ, (1, 1, 1), ""),
    entry("hmget", -3, READ, (1, 1, 1), "reply of at most 1 MiB"),
    entry("hmset", -4, WRITE, (1, 1, 1), ""),
    entry("hrandfield", -2, READ, (1, 1, 1), "`[count [WITHVALUES]]`; reply of at most 1 MiB"),
    entry(
        "hscan",
        -3,
        READ,
        (1, 1, 1),
        "`MATCH`, `COUNT` (at most 10,000); a cursor is valid at the gateway that gave it",
    ),
    entry("hset", -4, WRITE, (1, 1, 1), ""),
    entry("hsetnx", 4, WRITE, (1, 1, 1), ""),
    entry("hstrlen", 3, READ, (1, 1, 1), ""),
    entry("hvals", 2, READ, (1, 1, 1), "reply of at most 1 MiB"),
    entry("incr", 2, WRITE, (1, 1, 1), ""),
    entry("incrby", 3, WRITE, (1, 1, 1), ""),
    entry("incrbyfloat", 3, WRITE, (1, 1, 1), "exact sums; numbers are rounded to 17 decimal places"),
    entry("info", -1, HERE, (0, 0, 0), ""),
    entry(
        "keys",
        2,
        READ,
        (0, 0, 0),
        "error if it would look at more than 100,000 keys, whether they match or not, or if its reply would exceed 512 KiB; then use `SCAN`",
    ),
    entry("lindex", 3, READ, (1, 1, 1), ""),
    entry(
        "linsert",
        5,
        WRITE,
        (1, 1, 1),
        "`BEFORE`, `AFTER`; takes longer, the more values are between the new value and the nearer end of the list",
    ),
    entry("llen", 2, READ, (1, 1, 1), ""),
    entry("lmove", 5, WRITE, (1, 2, 1), "`LEFT`, `RIGHT`"),
    entry("lpop", -2, REMOVE, (1, 1, 1), "`[count]`"),
    entry("lpos", -3, READ, (1, 1, 1), "`RANK`, `COUNT`, `MAXLEN`"),
    entry("lpush", -3, WRITE, (1, 1, 1), ""),
    entry("lpushx", -3, WRITE, (1, 1, 1), ""),
    entry("lrange", 4, READ, (1, 1, 1), "reply of at most 1 MiB"),
    entry("lrem", 4, REMOVE, (1, 1, 1), ""),
    entry("lset", 4, WRITE, (1, 1, 1), ""),
    entry("ltrim", 4, REMOVE, (1, 1, 1), ""),
    entry(
        "memory",
        -2,
        READ,
        (2, 2, 1),
        "`MEMORY USAGE key`: the bytes of the key and of its values, without overhead",
    ),
    entry("mget", -2, READ, (1, -1, 1), "reply of at most 1 MiB"),
    entry("move", 3, REMOVE, (1, 1, 1), ""),
    entry("mset", -3, WRITE, (1, -1, 2), ""),
    entry("msetnx", -3, WRITE, (1, -1, 2), ""),
    entry("multi", 1, HERE, (0, 0, 0), "at most 1024 commands"),
    entry(
        "object",
        -2,
        READ,
        (2, 2, 1),
        "`ENCODING` (`raw`, `hashtable` or `quicklist`), `REFCOUNT` (1), `IDLETIME` (0)",
    ),
    entry("persist", 2, REMOVE, (1, 1, 1), ""),
    entry("pexpire", -3, REMOVE, (1, 1, 1), "`NX`, `XX`, `GT`, `LT`"),
    entry("pexpireat", -3, REMOVE, (1, 1, 1), "`NX`, `XX`, `GT`, `LT`"),
    entry("pexpiretime", 2, READ, (1, 1, 1), ""),
    entry("ping", -1, HERE, (0, 0, 0), ""),
    entry("psetex", 4, WRITE, (1, 1, 1), ""),
    entry("pttl", 2, READ, (1, 1, 1), ""),
    entry("quit", -1, HERE, (0, 0, 0), ""),
    entry("randomkey", 1, READ, (0, 0, 0), "one of the first 1,024 keys, in the order of their bytes"),
    entry("rename", 3, WRITE, (1, 2, 1), ""),
    entry("renamenx", 3, WRITE, (1, 2, 1), ""),
    entry("reset", 1, HERE, (0, 0, 0), ""),
    entry("rpop", -2, REMOVE, (1, 1, 1), "`[count]`"),
    entry("rpoplpush", 3, WRITE, (1, 2, 1), ""),
    entry("rpush", -3, WRITE, (1, 1, 1), ""),
    entry("rpushx", -3, WRITE, (1, 1, 1), ""),
    entry("sadd", -3, WRITE, (1, 1, 1), ""),
    entry(
        "scan",
        -2,
        READ,
        (0, 0, 0),
        "`MATCH`, `COUNT` (at most 10,000), `TYPE`; a cursor is valid at the gateway that gave it",
    ),
    entry("scard", 2, READ, (1, 1, 1), ""),
    entry("script", -2, HERE, (0, 0, 0), "`SCRIPT LOAD` and `EXISTS`, for the lock scripts below"),
    entry("sdiff", -2, READ, (1, -1, 1), "reply of at most 1 MiB"),
    entry("sdiffstore", -3, WRITE, (1, -1, 1), ""),
    entry("select", 2, HERE, (0, 0, 0), "databases 0 to 15"),
    entry("set", -3, WRITE, (1, 1, 1), "`NX`, `XX`, `GET`, `EX`, `PX`, `EXAT`, `PXAT`, `KEEPTTL`"),
    entry("setbit", 4, WRITE, (1, 1, 1), "within a value of 1 MiB"),
    entry("setex", 4, WRITE, (1, 1, 1), ""),
    entry("setnx", 3, WRITE, (1, 1, 1), ""),
    entry("setrange", 4, WRITE, (1, 1, 1), ""),
    entry("sinter", -2, READ, (1, -1, 1), "reply of at most 1 MiB"),
    entry("sintercard", -3, READ, (0, 0, 0), "`LIMIT`"),
    entry("sinterstore", -3, WRITE, (1, -1, 1), ""),
    entry("sismember", 3, READ, (1, 1, 1), ""),
    entry("smembers", 2, READ, (1, 1, 1), "reply of at most 1 MiB; use `SSCAN` for larger sets"),
    entry("smismember", -3, READ, (1, 1, 1), ""),
    entry("smove", 4, REMOVE, (1, 2, 1), ""),
    entry("spop", -2, REMOVE, (1, 1, 1), "`[count]`"),
    entry("srandmember", -2, READ, (1, 1, 1), "`[count]`; reply of at most 1 MiB"),
    entry("srem", -3, REMOVE, (1, 1, 1), ""),
    entry(
        "sscan",
        -3,
        READ,
        (1, 1, 1),
        "`MATCH`, `COUNT` (at most 10,000); a cursor is valid at the gateway that gave it",
    ),
    entry("strlen", 2, READ, (1, 1, 1), ""),
    entry("substr", 4, READ, (1, 1, 1), ""),
    entry("sunion", -2, READ, (1, -1, 1), "reply of at most 1 MiB"),
    entry("sunionstore", -3, WRITE, (1, -1, 1), ""),
    entry("time", 1, HERE, (0, 0, 0), "the agreed time of the replicas"),
    entry("touch", -2, READ, (1, -1, 1), "counts keys; there is no eviction"),
    entry("ttl", 2, READ, (1, 1, 1), ""),
    entry("type", 2, READ, (1, 1, 1), "`string`, `hash`, `set`, `list` or `none`"),
    entry("unlink", -2, REMOVE, (1, -1, 1), ""),
    entry("unwatch", 1, HERE, (0, 0, 0), ""),
    entry(
        "watch",
        -2,
        HERE,
        (1, -1, 1),
        "a key that was changed and changed back counts as unchanged (see the differences below)",
    ),
];

impl CommandEntry {
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

/// Returns the table of commands for the documents.
pub fn document() -> String {
    COMMANDS.iter().fold("| Command | Options and limits |\n|---|---|\n".to_owned(), |text, entry| {
        text + &format!("| `{}` | {} |\n", entry.name.to_uppercase(), entry.about)
    })
}
