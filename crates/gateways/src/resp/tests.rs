//! The gateway's replies against those of Redis itself.
//!
//! `redis.txt` is a transcript: commands, and what Redis 7.0.15 replied. Here the same commands go
//! through the decoder, the packs and a key-value service in memory, and have to come out alike, byte
//! for byte. To record it again, with other commands if need be:
//!
//! ```text
//! redis-server --port 16379 --save '' &
//! RECORD_REDIS=127.0.0.1:16379 cargo test -p quorate-gateways transcript
//! ```
#![allow(clippy::format_push_string, clippy::format_collect, reason = "commands are short")]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;

use quorate_service::kv::PATTERN_BYTES_MAX;

use super::desk::Desk;

fn transcript() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/resp/redis.txt"))
}

/// Commands and replies, without their `> ` and `< `.
fn read_transcript(text: &str) -> Vec<(&str, &str)> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let pairs = lines.chunks_exact(2);
    pairs.map(|pair| (pair[0].strip_prefix("> ").unwrap(), pair[1].strip_prefix("< ").unwrap())).collect()
}

/// A command on lists.
pub(super) fn on_list(random: &mut Random, k: &str, k2: &str, v: &str, v2: &str) -> String {
    let place = random.pick(&["0", "1", "-1", "2", "-2", "7", "-7", "100", "z", "9223372036854775807"]);
    let place2 = random.pick(&["0", "-1", "-1", "2", "-2", "5", "-9223372036854775808"]);
    let end = random.pick(&["LEFT", "RIGHT", "left", "DOWN"]);
    let end2 = random.pick(&["LEFT", "RIGHT", "Right"]);
    match random.below(19) {
        0 | 1 => format!("LPUSH {k} {v} {v2}"),
        2 | 3 => format!("RPUSH {k} {v} {v2} {v}"),
        4 => format!("LPUSHX {k} {v}"),
        5 => format!("RPUSHX {k} {v} {v2}"),
        6 => format!("LPOP {k}{}", random.pick(&["", " 2", " 0", " -1", " x", " 100", " 1 1"])),
        7 => format!("RPOP {k}{}", random.pick(&["", " 2", " 0"])),
        8 => format!("LLEN {k}"),
        9 => format!("LRANGE {k} {place} {place2}"),
        // Redis looks at the key before it looks at these places.
        10 => format!("LINDEX {k} {place2}"),
        11 => format!("LSET {k} {place2} {v}"),
        12 => format!("LINSERT {k} {} {v} {v2}", random.pick(&["BEFORE", "after", "AFTER", "AT"])),
        13 => format!("LREM {k} {place} {v}"),
        14 => format!("LTRIM {k} {} {place2}", random.pick(&["0", "1", "-3", "-2", "x"])),
        15 => format!("RPOPLPUSH {k} {k2}"),
        16 => format!("LMOVE {k} {k2} {end} {end2}"),
        17 => format!(
            "LPOS {k} {v}{}",
            random.pick(&[
                "",
                " RANK 1",
                " RANK -1",
                " RANK 2 COUNT 0",
                " COUNT 2",
                " COUNT 0 RANK -2",
                " MAXLEN 2",
                " RANK -1 MAXLEN 1",
                " RANK 0",
                " COUNT -1",
                " MAXLEN -1",
                " MAXLEN 0 COUNT 3",
                " RANK",
                " FOO 1"
            ])
        ),
        _ => format!("LRANGE {k} 0 -1"),
    }
}

/// INFO says how many requests the gateway has sent to the cluster, and how many of them again.
#[test]
fn info_counts_the_requests_to_the_cluster() {
    let reply = Desk::new().send(b"*2\r\n$4\r\nINFO\r\n$5\r\nstats\r\n");
    let text = String::from_utf8(reply).unwrap();
    assert!(text.contains("\r\nrequests_sent:7\r\nrequests_resent:2\r\n"), "{text}");
}

/// Every reply is the one that Redis gave to the same command after the same commands.
#[test]
fn replies_are_those_of_the_transcript() {
    if let Ok(address) = std::env::var("RECORD_REDIS") {
        record(&address);
    }
    let text = std::fs::read_to_string(transcript()).unwrap();
    let pairs = read_transcript(&text);
    assert!(pairs.len() > 1000, "the transcript is there");
    for reads in [true, false] {
        let mut desk = Desk::reading(reads);
        let mut wrong = Vec::new();
        for (command, expected) in &pairs {
            let reply = desk.send(format!("{command}\r\n").as_bytes()).escape_ascii().to_string();
            if reply != *expected {
                wrong.push(format!("{command}\n  is    {reply}\n  Redis {expected}"));
            }
        }
        assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong[..wrong.len().min(40)].join("\n"));
    }
}

/// The same in pipelines: the packs change nothing.
#[test]
fn a_pipeline_replies_like_its_commands_one_by_one() {
    let text = std::fs::read_to_string(transcript()).unwrap();
    let pairs = read_transcript(&text);
    for len in [2, 3, 16, 400] {
        let mut desk = Desk::new();
        for pipeline in pairs.chunks(len) {
            let commands: String = pipeline.iter().map(|(command, _)| format!("{command}\r\n")).collect();
            let expected: String = pipeline.iter().map(|(_, reply)| *reply).collect();
            let replies = desk.send(commands.as_bytes());
            assert_eq!(replies.escape_ascii().to_string(), expected, "{commands}");
        }
    }
}

/// A key is there until its time has come, on every path, and not one millisecond longer.
#[test]
fn expired_keys_are_not_served() {
    for reads in [true, false] {
        let mut desk = Desk::reading(reads);
        let start_ns = desk.time_ns;
        assert_eq!(desk.send(b"SET k v PX 1500\r\nGET k\r\nTTL k\r\n"), b"+OK\r\n$1\r\nv\r\n:2\r\n");
        desk.time_ns = start_ns + 1_499_000_000;
        assert_eq!(desk.send(b"GET k\r\nTTL k\r\nEXISTS k\r\n"), b"$1\r\nv\r\n:0\r\n:1\r\n");
        desk.time_ns = start_ns + 1_500_000_000;
        // The clock of the last batch is what a read may use: until the next one the key is asked for in
        // order, and that gives it the time.
        assert_eq!(desk.send(b"GET k\r\n"), b"$-1\r\n");
        assert_eq!(desk.send(b"TTL k\r\nEXISTS k\r\nMGET k k\r\n"), b":-2\r\n:0\r\n*2\r\n$-1\r\n$-1\r\n");
        assert_eq!(desk.send(b"APPEND k x\r\nTTL k\r\nDBSIZE\r\n"), b":1\r\n:-1\r\n:1\r\n");
    }
}

/// Long values in a pipeline come one by one, and none is left out.
#[test]
fn a_pipeline_may_be_longer_than_an_answer() {
    let mut desk = Desk::new();
    let value = "v".repeat(20_000);
    for key in 0..5 {
        assert_eq!(desk.send(format!("SET {key} {value}\r\n").as_bytes()), b"+OK\r\n");
    }
    let replies = desk.send(b"GET 0\r\nGET 1\r\nPING\r\nGET 2\r\nGETDEL 3\r\nGET 4\r\nGET 3\r\n");
    let one = format!("$20000\r\n{value}\r\n");
    assert_eq!(replies, format!("{one}{one}+PONG\r\n{one}{one}{one}$-1\r\n").as_bytes());
    let long = desk.send(format!("SET 0 {}\r\nGET 1\r\n", "v".repeat(60_000)).as_bytes());
    assert_eq!(long, format!("-ERR the command is longer than 50000 bytes\r\n{one}").as_bytes());
}

/// L80: a pattern that is too long is refused with an error that says so.
#[test]
fn l80_a_long_pattern_is_refused() {
    let mut desk = Desk::new();
    for len in [PATTERN_BYTES_MAX, PATTERN_BYTES_MAX + 1, 40_000, 70_000] {
        let pattern = "[".repeat(len);
        let (half, rest) = pattern.split_at(len / 2);
        let commands = [
            format!("KEYS {pattern}"),
            format!("SCAN 0 MATCH {pattern}"),
            format!("HSCAN h 0 MATCH {pattern}"),
            format!("SSCAN s 0 MATCH {pattern}"),
            format!("CONFIG GET {pattern}"),
            format!("CONFIG GET {half} {rest}"),
        ];
        for command in commands {
            let words: Vec<&str> = command.split(' ').collect();
            let parts: String = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len())).collect();
            let reply = desk.send(format!("*{}\r\n{parts}", words.len()).as_bytes());
            let is_refused = reply == b"-ERR pattern too long: at most 1024 bytes\r\n";
            assert_eq!(is_refused, len > PATTERN_BYTES_MAX, "{}", reply.escape_ascii());
            assert_eq!(reply[0] == b'-', is_refused, "{}", reply.escape_ascii());
        }
    }
}

/// L81: a WATCH that is answered with OK watches its key, however many are sent together. After one that is refused,
/// EXEC does nothing.
#[test]
fn l81_every_watch_is_kept_or_refused() {
    let mut desk = Desk::new();
    let watch = |keys: std::ops::Range<u32>| keys.map(|key| format!("WATCH {key}\r\n")).collect::<String>();
    let replies = desk.send(watch(0..600).as_bytes());
    assert_eq!(replies, b"+OK\r\n".repeat(600));
    let replies = desk.send(watch(600..1200).as_bytes());
    let kept =
        replies.split_inclusive(|byte| *byte == b'\n').take_while(|reply| *reply == b"+OK\r\n").count();
    assert_eq!(kept, 1024 - 600);
    assert_eq!(replies[5 * kept..], b"-ERR too many keys are watched\r\n".repeat(600 - kept));
    let exec = "SET 1150 changed\r\nMULTI\r\nSET done 1\r\nEXEC\r\n";
    let aborted =
        b"+OK\r\n+OK\r\n+QUEUED\r\n-EXECABORT Transaction discarded because of previous errors.\r\n";
    assert_eq!(desk.send(exec.as_bytes()), aborted);
    // The next one is a new beginning, and its last mark counts.
    let few =
        watch(0..600) + &watch(600..1024) + "SET 1023 changed\r\nMULTI\r\nSET done 1\r\nEXEC\r\nGET done\r\n";
    let replies = desk.send(few.as_bytes());
    assert!(replies.ends_with(b"+OK\r\n+QUEUED\r\n*-1\r\n$-1\r\n"), "{}", replies.escape_ascii());
}

/// L81: UNWATCH, DISCARD and RESET drop the marks of a WATCH that was sent together with them.
#[test]
fn l81_a_mark_does_not_outlive_unwatch() {
    let exec = "SET k 2\r\nMULTI\r\nINCR n\r\nEXEC\r\n";
    let mut desk = Desk::new();
    for (number, end) in ["UNWATCH", "MULTI\r\nDISCARD", "RESET"].into_iter().enumerate() {
        let replies = desk.send(format!("WATCH k\r\n{end}\r\nAPPEND k x\r\n{exec}").as_bytes());
        let expected = format!("+OK\r\n+QUEUED\r\n*1\r\n:{}\r\n", number + 1);
        assert!(replies.ends_with(expected.as_bytes()), "{end}: {}", replies.escape_ascii());
    }
    // In a transaction, it comes after the comparison.
    let replies = desk.send(b"WATCH k\r\nSET k 3\r\nMULTI\r\nUNWATCH\r\nEXEC\r\n");
    assert!(replies.ends_with(b"*-1\r\n"), "{}", replies.escape_ascii());
}

/// Makes the transcript: cases that were thought of, then commands at random over a few keys.
fn record(address: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut replies = BufReader::new(stream.try_clone().unwrap());
    let mut text = "# Recorded from Redis 7.0.15: see tests.rs.\n".to_owned();
    let mut random = Random(7);
    let cases = CASES.lines().map(str::to_owned).chain((0..3000).map(|_| random.command()));
    for command in ["FLUSHALL".to_owned()].into_iter().chain(cases) {
        stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut reply = Vec::new();
        read_reply(&mut replies, &mut reply);
        text += &format!("> {command}\n< {}\n", reply.escape_ascii());
    }
    std::fs::write(transcript(), text).unwrap();
}

pub(super) fn read_reply(from: &mut impl BufRead, reply: &mut Vec<u8>) {
    let start = reply.len();
    from.read_until(b'\n', reply).unwrap();
    let line = String::from_utf8(reply[start + 1..reply.len() - 2].to_vec()).unwrap();
    match (reply[start], line.parse::<usize>()) {
        (b'$', Ok(len)) => {
            let mut bytes = vec![0; len + 2];
            from.read_exact(&mut bytes).unwrap();
            reply.extend(bytes);
        }
        // `~` and `%` are a set and a map of version 3.
        (b'*' | b'~', Ok(len)) => (0..len).for_each(|_| read_reply(from, reply)),
        (b'%', Ok(len)) => (0..2 * len).for_each(|_| read_reply(from, reply)),
        _ => {}
    }
}

/// What is worth a look by itself. The replies do not depend on the time.
const CASES: &str = r#"PING
PING hello
PING a b
ping "a\x00b"
ECHO
ECHO hi
SELECT 0
SELECT 1x
SELECT 99999999999
SELECT
NOSUCH
nosuch a b
"no\r\nsuch" "a\r\nb" c
GET
GET a b
GET nothing
SET
SET k
SET k v
GET k
set k v nx
set k w xx
get k
SET k v NX XX
SET k v XX NX
SET k v NX NX
SET new v XX
GET new
SET new v NX
SET k v GET
SET other v GET
SET k v2 NX GET
SET fresh v2 NX GET
SET fresh v3 XX GET
SET absent v3 XX GET
GET absent
SET k v EX
SET k v EX 0
SET k v EX -1
SET k v EX ten
SET k v EX 1.5
SET k v EX 9223372036854775807
SET k v PX 9223372036854775807
SET k v EX 9223372036854775
SET k v EX 10 PX 10
SET k v PX 10 EX 10
SET k v EX 10 EX 10
SET k v BOGUS
SET k v EX 100000
TTL k
SET k v
TTL k
SET k v PX 1
SET k 100000 PX 100000000
INCR k
TTL k
APPEND k 7
TTL k
SET k v XX
TTL k
SET k v EX 100000 NX
TTL k
EXPIRE k 200000
TTL k
PERSIST k
PERSIST k
TTL k
PERSIST nothing
TTL nothing
EXPIRE nothing 10
EXPIRE k ten
EXPIRE k
EXPIRE k 9223372036854775807
EXPIRE k -9223372036854775808
EXPIRE k 9223372036854775
EXPIRE k 0
GET k
SET k v
EXPIRE k -5
EXISTS k
SET k v EX 100000
MSET k w
TTL k
SET k v EX 100000
GETDEL k
SET k w
TTL k
SET k v EX 100000
DEL k
SET k w
TTL k
SET n 10
INCR n
DECR n
INCRBY n 5
INCRBY n -20
INCRBY n x
INCRBY n 1.0
INCRBY n " 1"
INCRBY n +1
INCRBY n 01
INCRBY n 9223372036854775807
INCRBY n -9223372036854775808
INCRBY n 9223372036854775808
GET n
SET n 9223372036854775807
INCR n
DECR n
SET n -9223372036854775808
DECR n
SET n ""
INCR n
SET n " 1"
INCR n
SET n 01
INCR n
SET n -0
INCR n
SET n abc
DECR n
INCR fresh-number
DECR fresh-negative
DECR
INCR a b
APPEND
APPEND log a
APPEND log ""
APPEND log "\x00\xff\r\n"
GET log
STRLEN log
STRLEN nothing
STRLEN
MSET
MSET a
MSET a 1 b
MSET a 1 b 2 a 3
MGET a b c a
MGET
MGET nothing
EXISTS
EXISTS a b c a
DEL
DEL a nothing b a
EXISTS a b
GETDEL
GETDEL nothing
DBSIZE
DBSIZE x
FLUSHALL x
FLUSHALL SYNC
DBSIZE
FLUSHALL ASYNC
FLUSHALL
CONFIG GET save
CONFIG GET nosuchsetting
CLIENT GETNAME
CLIENT SETNAME me
CLIENT GETNAME
CLIENT SETNAME "a b"
CLIENT SETNAME ""
CLIENT GETNAME
CLIENT GETNAME x
CLIENT NOSUCH a
CLIENT
CONFIG GET
CONFIG NOSUCH
CONFIG
COMMAND NOSUCH
HELLO 3x
HELLO 4
AUTH
AUTH a b c
AUTH secret
AUTH default secret
AUTH nobody secret
COMMAND COUNT x
SET "" empty-key
GET ""
SET quoted 'it\'s'
GET quoted
"#;

pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 16) % u64::try_from(bound).unwrap()).unwrap()
    }

    pub(super) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    /// Keys that live for a day or not at all, so that a recording takes no account of time.
    fn command(&mut self) -> String {
        let key = |random: &mut Self| random.pick(&["a", "b", "c", "d", "\"\"", "\"k\\x00\""]);
        let value = |random: &mut Self| {
            random.pick(&["1", "-7", "x", "\"\"", "\"\\r\\n\"", "9223372036854775806", "0", "word", "007"])
        };
        let seconds = |random: &mut Self| random.pick(&["100000", "200000", "300000", "0", "-1", "x"]);
        let (k, v) = (key(self), value(self));
        match self.below(20) {
            0..=2 => format!("SET {k} {v}"),
            3..=5 => {
                let mut command = format!("SET {k} {v}");
                for _ in 0..self.below(4) {
                    let time = seconds(self);
                    command += &match self.below(6) {
                        0 => " NX".to_owned(),
                        1 => " XX".to_owned(),
                        2 | 3 => " GET".to_owned(),
                        4 => format!(" EX {time}"),
                        _ => {
                            format!(" PX {}", if time == "x" { "y".to_owned() } else { format!("{time}000") })
                        }
                    };
                }
                command
            }
            6 | 7 => format!("GET {k}"),
            8 => format!("GETDEL {k}"),
            9 => format!("DEL {k} {}", key(self)),
            10 => format!("EXISTS {k} {} {}", key(self), key(self)),
            11 => format!("INCR {k}"),
            12 => format!("DECR {k}"),
            13 => format!("INCRBY {k} {v}"),
            14 => format!("APPEND {k} {v}"),
            15 => format!("MGET {k} {} {}", key(self), key(self)),
            16 => format!("MSET {k} {v} {} {}", key(self), value(self)),
            17 => format!("EXPIRE {k} {}", seconds(self)),
            18 => self.pick(&["DBSIZE", "STRLEN a", "STRLEN b", "PERSIST a", "PERSIST b"]).to_owned(),
            _ => format!("TTL {k}"),
        }
    }
}
