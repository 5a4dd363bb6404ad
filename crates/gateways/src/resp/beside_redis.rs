//! The gateway beside a real Redis: both get the same commands at random, and their replies must be alike.
//!
//! The server runs on a socket in a temporary directory. Where `redis-server` is not installed, these tests say so and
//! do nothing; `.ci/run` installs it.
#![allow(clippy::format_push_string, reason = "commands are short")]

use std::fs;
use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::desk::Desk;
use super::tests::{Random, on_list, read_reply};

/// A server, until this is dropped.
struct Redis {
    process: Child,
    dir: PathBuf,
    stream: UnixStream,
    replies: BufReader<UnixStream>,
}

impl Redis {
    /// Starts a server. None: it is not installed.
    fn start() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("quorate-redis-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let socket = dir.join("socket");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--dir"]).arg(&dir).arg("--unixsocket").arg(&socket);
        let Ok(process) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
            println!("redis-server is not installed: nothing is compared");
            fs::remove_dir_all(&dir).unwrap();
            return None;
        };
        let begin = Instant::now();
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(error) => assert!(begin.elapsed() < Duration::from_secs(60), "redis-server: {error}"),
            }
            std::thread::yield_now();
        };
        let replies = BufReader::new(stream.try_clone().unwrap());
        Some(Self { process, dir, stream, replies })
    }

    fn send(&mut self, command: &str) -> Vec<u8> {
        self.stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut reply = Vec::new();
        read_reply(&mut self.replies, &mut reply);
        reply
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn now_ns() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// Waits for another millisecond than the last reply came in. Expirations that only the clock tells apart are then
/// ordered alike: each side reads its own, and equal milliseconds of one may be two of the other.
fn next_ms() -> u64 {
    let begin = now_ns() / 1_000_000;
    loop {
        let now = now_ns();
        if now / 1_000_000 > begin {
            return now;
        }
        std::thread::yield_now();
    }
}

/// Sends a command to both, and compares the replies. Remaining times may differ by what the machine takes.
#[track_caller]
fn compare(desk: &mut Desk, redis: &mut Redis, command: &str, history: &mut Vec<String>) {
    history.push(command.to_owned());
    desk.time_ns =
        if [" GT", " LT"].iter().any(|rule| command.contains(rule)) { next_ms() } else { now_ns() };
    let (is, expected) = (desk.send(format!("{command}\r\n").as_bytes()), redis.send(command));
    if let Some(last) = history.last_mut() {
        *last += &format!("   -> {}", expected.escape_ascii());
    }
    let number = |reply: &[u8]| -> Option<i64> {
        std::str::from_utf8(reply.strip_prefix(b":")?).ok()?.trim_end().parse().ok()
    };
    let slack = match command.split(' ').next().unwrap() {
        "PTTL" | "PEXPIRETIME" => 20_000,
        "TTL" | "EXPIRETIME" => 20,
        _ => 0,
    };
    // The order of elements is nobody's promise. A transaction may have such replies in it.
    let unordered =
        ["EXEC", "HGETALL", "HKEYS", "HVALS", "HSCAN", "SSCAN", "SMEMBERS", "SINTER", "SUNION", "SDIFF"];
    // A transaction may have the time of a key in it as well, which differs by what the machine takes. Times are at least 90
    // seconds in milliseconds, and other numbers are smaller, or above 10^15.
    let timeless = |line: &[u8]| {
        let is_time =
            number(line).is_some_and(|number| (90_000..1_000_000_000_000_000).contains(&number.abs()));
        if is_time { b":time".to_vec() } else { line.to_vec() }
    };
    let sorted = |reply: &[u8]| {
        let mut lines: Vec<Vec<u8>> = reply.split(|byte| *byte == b'\n').map(timeless).collect();
        lines.sort();
        lines
    };
    let near = match (number(&is), number(&expected)) {
        (Some(is), Some(expected)) => is == expected || is > 100 && (is - expected).abs() <= slack,
        _ if unordered.contains(&command.split(' ').next().unwrap()) => sorted(&is) == sorted(&expected),
        _ => is == expected,
    };
    let last = &history[history.len().saturating_sub(12)..];
    assert!(near, "{}\n  is    {}\n  Redis {}", last.join("\n"), is.escape_ascii(), expected.escape_ascii());
}

const KEYS: &[&str] = &["a", "b", "c", "d", "\"\"", "\"k\\x00\"", "user:1", "user:22"];
const VALUES: &[&str] =
    &["1", "-7", "x", "\"\"", "\"\\r\\n\"", "9223372036854775806", "0", "word", "3.25", "1e3", "007", "10"];

/// A command, often right and sometimes wrong.
#[allow(clippy::too_many_lines, reason = "a line for each command")]
fn command(random: &mut Random) -> String {
    let (k, k2, k3) = (random.pick(KEYS), random.pick(KEYS), random.pick(KEYS));
    let (v, v2) = (random.pick(VALUES), random.pick(VALUES));
    let seconds =
        random.pick(&["100000", "200000", "300000", "0", "-1", "x", "9223372036854775807", "150000"]);
    let at = random.pick(&["4102444800", "4102444900", "1", "0", "-5", "y", "9223372036854775807"]);
    // Redis counts keys that have expired until it removes them, so none is set in the past.
    let later = random.pick(&["4102444800", "4102444900", "0", "-5", "y", "9223372036854775807"]);
    let place = random.pick(&["0", "1", "-1", "3", "-3", "100", "-100", "z"]);
    let place2 = random.pick(&["0", "-1", "2", "-2", "5", "50"]);
    let rule = random.pick(&["", "", " NX", " XX", " GT", " LT", " XX GT", " NX GT", " GT LT", " ZZ"]);
    // Fields with numbers of their own, as above.
    let (field, field2) = (random.pick(&["f", "g", "\"\"", "long field"]), random.pick(&["f", "h"]));
    match random.below(112) {
        52..=55 => format!("HSET {k} {field} {v}{}", random.pick(&["", " f 5", " g x f 7", " odd"])),
        56 => format!("HMSET {k} {field} {v} {field2} {v2}"),
        57 => format!("HSETNX {k} {field} {v}"),
        58 => format!("HGET {k} {field}"),
        59 => format!("HMGET {k} {field} {field2} none"),
        60 => format!("HGETALL {k}"),
        61 | 62 => format!("HDEL {k} {field} {field2}"),
        63 => format!("HEXISTS {k} {field}"),
        64 => format!("HINCRBY {k} {field} {v}"),
        65 => format!("HINCRBYFLOAT hf {field} {}", random.pick(&["0.5", "-2.5", "1e2", "x", "3"])),
        66 => format!("HKEYS {k}"),
        67 => format!("HVALS {k}"),
        68 => format!("HLEN {k}"),
        69 => format!("HSTRLEN {k} {field}"),
        70 => format!(
            "{} {k} 0 COUNT 1000{}",
            random.pick(&["HSCAN", "SSCAN"]),
            random.pick(&["", " MATCH *x*"])
        ),
        71..=73 => format!("SADD {k} {v} {v2}"),
        74 => format!("SREM {k} {v} {v2}"),
        75 => format!("SMEMBERS {k}"),
        76 => format!("SISMEMBER {k} {v}"),
        77 => format!("SMISMEMBER {k} {v} {v2}"),
        78 => format!("SCARD {k}"),
        79 => format!("SMOVE {k} {k2} {v}"),
        80 => format!("SINTER {k} {k2}"),
        81 => format!("SUNION {k} {k2} {k3}"),
        82 => format!("SDIFF {k} {k2} {k3}"),
        83 => format!("SINTERSTORE {k} {k2} {k3}"),
        84 => format!("SUNIONSTORE {k} {k2} {k3}"),
        85 => format!("SDIFFSTORE {k} {k2} {k3}"),
        86 => format!(
            "SINTERCARD {}",
            random.pick(&["2 a b", "1 c", "2 a b LIMIT 1", "0 a", "3 a b", "x a", "1 a LIMIT -1"])
        ),
        87 => random
            .pick(&[
                "SPOP a 0",
                "SPOP a -1",
                "SRANDMEMBER a x",
                "HRANDFIELD a 1 WITH",
                "SPOP none",
                "SRANDMEMBER none 3",
                "SRANDMEMBER a -9223372036854775808",
                "HRANDFIELD a -9223372036854775807 WITHVALUES",
                "MEMORY USAGE none",
                "HRANDFIELD none 2 WITHVALUES",
                "HRANDFIELD none",
            ])
            .to_owned(),
        88 => format!("SADD {k} {k2}"),
        89..=107 => on_list(random, k, k2, v, v2),
        108 => format!("MOVE {k} {}", random.pick(&["1", "0", "15", "16", "-1", "x"])),
        109 => format!(
            "SETBIT {k} {} {}",
            random.pick(&["0", "7", "11", "100", "-1", "z"]),
            random.pick(&["0", "1", "2"])
        ),
        110 => {
            format!("GETBIT {k} {}", random.pick(&["0", "7", "1", "11", "10000", "-1", "z", "4294967296"]))
        }
        111 => random.pick(&["OBJECT REFCOUNT none", "EXEC", "EXEC", "EXEC"]).to_owned(),
        0..=2 => format!("SET {k} {v}"),
        3..=6 => {
            let mut command = format!("SET {k} {v}");
            for _ in 0..random.below(4) {
                command += &match random.below(9) {
                    0 => " NX".to_owned(),
                    1 => " XX".to_owned(),
                    2 | 3 => " GET".to_owned(),
                    4 => format!(" EX {seconds}"),
                    5 => format!(" PX {seconds}"),
                    6 => format!(" EXAT {later}"),
                    7 => format!(" PXAT {later}000"),
                    _ => " KEEPTTL".to_owned(),
                };
            }
            command
        }
        7 => format!("GET {k}"),
        8 => format!("GETDEL {k}"),
        9 => format!("DEL {k} {k2}"),
        10 => format!("EXISTS {k} {k2} {k3}"),
        11 => format!("INCR {k}"),
        12 => format!("DECR {k}"),
        13 => format!("INCRBY {k} {v}"),
        14 => format!("DECRBY {k} {v}"),
        // Keys and values of their own: Redis adds binary fractions and the store decimal ones.
        15 | 16 => {
            let k = random.pick(&["f", "g", "h"]);
            let by = random.pick(&["0.5", "-2.5", "3", "1e2", "x", "10.50", "5.0e3", "\"\"", "0.25"]);
            if random.below(8) == 0 {
                format!("SET {k} {}", random.pick(&["3.0e3", "12", "-0.5", "\" 1\"", "abc", "10"]))
            } else {
                format!("INCRBYFLOAT {k} {by}")
            }
        }
        17 => format!("APPEND {k} {v}"),
        18 => format!("MGET {k} {k2} {k3}"),
        19 => format!("MSET {k} {v} {k2} {v2}"),
        20 => format!("MSETNX {k} {v} {k2} {v2}"),
        21 => format!("SETNX {k} {v}"),
        22 => format!("SETEX {k} {seconds} {v}"),
        23 => format!("PSETEX {k} {seconds} {v}"),
        24 => format!("GETSET {k} {v}"),
        25 => format!("GETEX {k}"),
        26 => format!(
            "GETEX {k} {}",
            random.pick(&[
                "PERSIST",
                "EX 100000",
                "PX 100000000",
                "EXAT 4102444800",
                "EX 0",
                "NX",
                "PERSIST EX 5"
            ])
        ),
        27 => format!("EXPIRE {k} {seconds}{rule}"),
        28 => format!("PEXPIRE {k} {seconds}{rule}"),
        29 => format!("EXPIREAT {k} {at}{rule}"),
        30 => format!("PEXPIREAT {k} {at}{rule}"),
        31 => format!("TTL {k}"),
        32 => format!("PTTL {k}"),
        33 => format!("EXPIRETIME {k}"),
        34 => format!("PEXPIRETIME {k}"),
        35 => format!("PERSIST {k}"),
        36 => format!("GETRANGE {k} {place} {place2}"),
        37 => format!("SUBSTR {k} {place} {place2}"),
        38 => format!("SETRANGE {k} {place} {v}"),
        39 => format!("STRLEN {k}"),
        40 => format!("RENAME {k} {k2}"),
        41 => format!("RENAMENX {k} {k2}"),
        42 => format!(
            "COPY {k} {k2}{}",
            random.pick(&[
                "",
                " REPLACE",
                " BOGUS",
                " DB 1",
                " DB 0 REPLACE",
                " DB 15",
                " DB 16",
                " DB x",
                " DB"
            ])
        ),
        43 => format!("TYPE {k}"),
        44 => format!("TOUCH {k} {k2}"),
        45 => format!("UNLINK {k} {k2}"),
        46 => format!("SELECT {}", random.pick(&["0", "1", "15", "0", "16", "-1", "x"])),
        47 => "DBSIZE".to_owned(),
        48 => random.pick(&["MULTI", "EXEC", "DISCARD", "EXEC", "UNWATCH"]).to_owned(),
        49 => format!("WATCH {k} {k2}"),
        50 => random
            .pick(&["NOSUCH a", "GET", "SETEX a", "PING", "ECHO e", "FLUSHDB ASYNC x", "RENAME a"])
            .to_owned(),
        _ if random.below(6) == 0 => random.pick(&["FLUSHDB", "FLUSHALL"]).to_owned(),
        _ => format!("GET {k}"),
    }
}

#[test]
fn random_commands_are_answered_as_redis_answers_them() {
    for seed in 1..=6 {
        let Some(mut redis) = Redis::start() else { return };
        let (mut random, mut history) = (Random(seed * 7919), Vec::new());
        let mut desk = Desk::reading(seed % 2 == 0);
        if seed % 3 == 0 {
            // The replies name the connection.
            redis.send("HELLO 3");
            desk.send(b"HELLO 3\r\n");
        }
        for _ in 0..4000 {
            let command = command(&mut random);
            compare(&mut desk, &mut redis, &command, &mut history);
            // To set a key to the value that it has is a change for Redis alone: see docs/redis.md. So a key that is
            // watched changes for certain, or not at all.
            if let Some(keys) = command.strip_prefix("WATCH ") {
                if random.below(3) == 0 {
                    let changed = keys.split(' ').next().unwrap();
                    compare(&mut desk, &mut redis, &format!("APPEND {changed} x"), &mut history);
                }
                compare(&mut desk, &mut redis, "MULTI", &mut history);
            }
        }
    }
}

/// The bulk strings of a reply.
fn bulks(reply: &[u8]) -> Vec<String> {
    let text = String::from_utf8(reply.to_vec()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let found = lines.windows(2).filter(|pair| pair[0].starts_with('$') && pair[0] != "$-1");
    found.map(|pair| pair[1].to_owned()).collect()
}

/// What is drawn at random differs from what Redis draws: it has to be as many, and be there.
#[test]
fn what_is_drawn_is_there() {
    let Some(mut redis) = Redis::start() else { return };
    let (mut desk, mut history) = (Desk::new(), Vec::new());
    for number in 0..50 {
        compare(&mut desk, &mut redis, &format!("SADD s m{number}"), &mut history);
        compare(&mut desk, &mut redis, &format!("HSET h m{number} v{number}"), &mut history);
    }
    for version in ["HELLO 2", "HELLO 3"] {
        redis.send(version);
        desk.send(format!("{version}\r\n").as_bytes());
        for command in [
            "SRANDMEMBER s",
            "SRANDMEMBER s 0",
            "SRANDMEMBER s 7",
            "SRANDMEMBER s 60",
            "SRANDMEMBER s -60",
            "HRANDFIELD h",
            "HRANDFIELD h 7",
            "HRANDFIELD h -60",
            "HRANDFIELD h 9 WITHVALUES",
            "HRANDFIELD h -9 WITHVALUES",
        ] {
            let (is, expected) = (desk.send(format!("{command}\r\n").as_bytes()), redis.send(command));
            let heads = |reply: &[u8]| -> Vec<String> {
                let text = String::from_utf8(reply.to_vec()).unwrap();
                text.lines().filter(|line| line.starts_with(['*', '~', '%'])).map(str::to_owned).collect()
            };
            assert_eq!(heads(&is), heads(&expected), "{command}");
            let (is, expected) = (bulks(&is), bulks(&expected));
            assert_eq!(is.len(), expected.len(), "{command}");
            assert!(is.iter().all(|name| name[1..].parse::<u32>().unwrap() < 50), "{command}: {is:?}");
            if command.ends_with("WITHVALUES") {
                assert!(is.chunks(2).all(|pair| pair[0][1..] == pair[1][1..]), "{is:?}");
            }
        }
        // What is popped here is removed there.
        for command in ["SPOP s", "SPOP s 3"] {
            let popped = bulks(&desk.send(format!("{command}\r\n").as_bytes()));
            let removed = redis.send(&format!("SREM s {}", popped.join(" ")));
            assert_eq!(removed, format!(":{}\r\n", popped.len()).into_bytes());
            compare(&mut desk, &mut redis, "SCARD s", &mut history);
        }
    }
    let popped = bulks(&desk.send(b"SPOP s 1000\r\n"));
    assert_eq!(popped.len(), 42);
    assert_eq!(desk.send(b"TYPE s\r\n"), b"+none\r\n");
}

/// The items of the array that a reply ends with, sorted; before it the cursor, if there is one.
fn items(reply: &[u8]) -> (String, Vec<String>) {
    let text = String::from_utf8(reply.to_vec()).unwrap();
    let (head, array) = text.split_at(text.rfind('*').unwrap());
    let cursor = head.lines().last().unwrap_or("0").to_owned();
    let mut items: Vec<String> = array.lines().skip(2).step_by(2).map(str::to_owned).collect();
    items.sort();
    (cursor, items)
}

/// Every key is scanned once, whatever the options; a key of another database is not.
#[test]
fn scans_find_what_redis_finds() {
    let Some(mut redis) = Redis::start() else { return };
    let (mut desk, mut history) = (Desk::new(), Vec::new());
    for number in 0..300 {
        compare(&mut desk, &mut redis, &format!("SET key:{number} {number}"), &mut history);
    }
    compare(&mut desk, &mut redis, "SELECT 3", &mut history);
    compare(&mut desk, &mut redis, "SET other 1", &mut history);
    compare(&mut desk, &mut redis, "SELECT 0", &mut history);
    for pattern in ["*", "key:1*", "*[5-7]", "key:??", "none", "other", "key:\\1"] {
        let command = format!("KEYS {pattern}");
        let expected = items(&redis.send(&command)).1;
        assert_eq!(items(&desk.send(format!("{command}\r\n").as_bytes())).1, expected, "{pattern}");
        for options in ["", " COUNT 1", " COUNT 1000", " TYPE string COUNT 50"] {
            let (mut cursor, mut all) = ("0".to_owned(), Vec::new());
            loop {
                let command = format!("SCAN {cursor} MATCH {pattern}{options}\r\n");
                let (next, found) = items(&desk.send(command.as_bytes()));
                all.extend(found);
                cursor = next;
                if cursor == "0" {
                    break;
                }
            }
            all.sort();
            assert_eq!(all, expected, "{pattern}{options}");
        }
    }
    compare(&mut desk, &mut redis, "HSET key:h a 1", &mut history);
    compare(&mut desk, &mut redis, "SADD key:s a", &mut history);
    compare(&mut desk, &mut redis, "RPUSH key:l a b", &mut history);
    for kind in ["hash", "set", "list"] {
        let found = items(&desk.send(format!("SCAN 0 COUNT 1000 TYPE {kind}\r\n").as_bytes())).1;
        assert_eq!(found, [format!("key:{}", &kind[..1])]);
    }
    for number in 0..300 {
        let command = format!("HSET large {number} v{number}");
        compare(&mut desk, &mut redis, &command, &mut history);
    }
    let (mut cursor, mut all) = ("0".to_owned(), Vec::new());
    loop {
        let (next, found) = items(&desk.send(format!("HSCAN large {cursor} MATCH *1*\r\n").as_bytes()));
        all.extend(found);
        cursor = next;
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(all.len(), 2 * (0..300).filter(|number| number.to_string().contains('1')).count());
    for wrong in [
        "SCAN",
        "HSCAN large x",
        "HSCAN large 0 COUNT 0",
        "SSCAN large 0",
        "HSCAN large",
        "HSET large a",
        "SADD large a",
        "SINTERCARD 1",
        "SCAN x",
        "SCAN 0 COUNT 0",
        "SCAN 0 COUNT x",
        "SCAN 0 MATCH",
        "SCAN 0 NO 1",
        "KEYS",
        "KEYS a b",
    ] {
        compare(&mut desk, &mut redis, wrong, &mut history);
    }
}
