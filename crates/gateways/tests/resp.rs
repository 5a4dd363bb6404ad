//! The RESP gateway in front of a cluster on loopback, over real sockets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]
#![allow(clippy::format_push_string, reason = "commands are short")]

#[path = "../../node/tests/cluster/mod.rs"]
mod cluster;
#[path = "cluster/gateway.rs"]
mod gateway;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use cluster::Cluster;
use gateway::Door;
use quorate_gateways::front::Limits;
use quorate_gateways::resp::{self, RespOptions};
use quorate_service::kv::Kv;

/// Returns a gateway in front of a key-value store.
fn door(options: RespOptions) -> Door {
    let cluster = Cluster::start(Kv);
    let (drive, socket) = cluster.client(options.limits.lanes);
    let front = resp::open(([127, 0, 0, 1], 0).into(), options, drive, socket).unwrap();
    Door::run(cluster, front)
}

fn limited(limits: Limits) -> RespOptions {
    RespOptions { limits, password: None }
}

/// Sends bytes and expects these replies, and no others.
#[track_caller]
fn expect(stream: &mut TcpStream, send: &[u8], replies: &[u8]) {
    stream.write_all(send).unwrap();
    let mut read = vec![0; replies.len()];
    stream.read_exact(&mut read).unwrap();
    assert_eq!(read.escape_ascii().to_string(), replies.escape_ascii().to_string());
}

/// Expects that the gateway ends the connection after saying this.
#[track_caller]
fn expect_end(stream: &mut TcpStream, last: &[u8]) {
    let mut read = Vec::new();
    let _ = stream.read_to_end(&mut read);
    assert_eq!(read.escape_ascii().to_string(), last.escape_ascii().to_string());
}

#[test]
fn many_connections_pipeline_in_their_order() {
    let door = door(limited(Limits { lanes: 4, ..Limits::default() }));
    let mut streams: Vec<TcpStream> = (0..12).map(|_| door.connect()).collect();
    let mut expected = Vec::new();
    for (number, stream) in streams.iter_mut().enumerate() {
        let (mut commands, mut replies) = (String::new(), String::new());
        for round in 1..=300 {
            commands += &format!("INCR own{number}\r\nINCR shared\r\nGET own{number}\r\nPING {round}\r\n");
            replies += &format!("${}\r\n{round}\r\n", round.to_string().len());
        }
        stream.write_all(commands.as_bytes()).unwrap();
        expected.push(replies);
    }
    for (stream, expected) in streams.iter_mut().zip(&expected) {
        let (mut read, mut buffer) = (String::new(), [0; 4096]);
        while read.matches('$').count() < 600 || !read.ends_with(expected.rsplit('$').next().unwrap()) {
            let len = stream.read(&mut buffer).unwrap();
            assert!(len > 0);
            read += std::str::from_utf8(&buffer[..len]).unwrap();
        }
        // Of each four replies the first, the third and the fourth name the round.
        let lines: Vec<&str> = read.split("\r\n").collect();
        for (round, lines) in lines.chunks_exact(6).enumerate() {
            let round = (round + 1).to_string();
            assert_eq!(lines[0], format!(":{round}"));
            assert_eq!([lines[3], lines[5]], [round.as_str(), round.as_str()]);
        }
    }
    let mut last = door.connect();
    expect(&mut last, b"*2\r\n$3\r\nGET\r\n$6\r\nshared\r\n", b"$4\r\n3600\r\n");
}

/// With real clocks: a key is gone when its time has come, though nothing is ordered in between.
#[test]
fn an_expired_key_is_gone_in_an_idle_cluster() {
    let door = door(RespOptions::default());
    let mut stream = door.connect();
    expect(&mut stream, b"SET k v PX 1500\r\nSET forever v\r\n", b"+OK\r\n+OK\r\n");
    let set = Instant::now();
    expect(&mut stream, b"GET k\r\n", b"$1\r\nv\r\n");
    std::thread::sleep(Duration::from_millis(1700).saturating_sub(set.elapsed()));
    expect(&mut stream, b"GET k\r\nTTL k\r\nGET forever\r\n", b"$-1\r\n:-2\r\n$1\r\nv\r\n");
}

#[test]
fn what_is_too_much_is_refused() {
    let door = door(limited(Limits { connections_max: 3, ..Limits::default() }));
    let mut first = door.connect();
    expect(&mut first, b"*2\r\n$3\r\nGET\r\n$536870913\r\n", b"-ERR Protocol error: invalid bulk length\r\n");
    expect_end(&mut first, b"");
    let mut second = door.connect();
    expect(&mut second, b"*99999999\r\n", b"-ERR Protocol error: invalid multibulk length\r\n");
    expect_end(&mut second, b"");
    let mut third = door.connect();
    let (key, value) = (vec![b'k'; 10_000], vec![b'v'; 1 << 20]);
    let long =
        [&b"*3\r\n$3\r\nSET\r\n$10000\r\n"[..], &key, b"\r\n$1048576\r\n", &value, b"\r\nPING\r\n"].concat();
    expect(&mut third, &long, b"-ERR the command is longer than 1052672 bytes\r\n+PONG\r\n");
    let mut more: Vec<TcpStream> = (0..2).map(|_| door.connect()).collect();
    for stream in &mut more {
        expect(stream, b"PING\r\n", b"+PONG\r\n");
    }
    expect_end(&mut door.connect(), b"-ERR max number of clients reached\r\n");
    drop(more);
    expect(&mut third, b"QUIT\r\nGET k\r\n", b"+OK\r\n");
    expect_end(&mut third, b"");
}

#[test]
fn a_password_comes_first() {
    let door = door(RespOptions { password: Some(b"secret".to_vec()), ..RespOptions::default() });
    let mut stream = door.connect();
    expect(&mut stream, b"GET k\r\n", b"-NOAUTH Authentication required.\r\n");
    let wrong = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    expect(&mut stream, b"AUTH secres\r\n", wrong);
    expect(&mut stream, b"AUTH nobody secret\r\n", wrong);
    expect(&mut stream, b"AUTH default secret\r\nGET k\r\n", b"+OK\r\n$-1\r\n");
    // A program that guesses is not told for a while whether it is right.
    let mut other = door.connect();
    expect(&mut other, &b"AUTH wrong\r\n".repeat(8), &wrong.repeat(8));
    expect(&mut other, b"AUTH secret\r\n", b"-ERR too many wrong passwords: try again in 10 seconds\r\n");
    expect(&mut stream, b"GET k\r\n", b"$-1\r\n");
}

/// H4: a command at or beyond a limit is answered, or refused in words, whatever pieces it comes in. It hung for a minute,
/// or ended the connection without a word.
#[test]
fn h4_large_commands_are_answered_or_refused() {
    let door = door(RespOptions::default());
    let mut stream = door.connect();
    let mut command = |words: &[&[u8]], reply: &[u8]| {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend([format!("${}\r\n", word.len()).as_bytes(), word, b"\r\n"].concat());
        }
        let begin = Instant::now();
        stream.write_all(&bytes).unwrap();
        let mut read = vec![0; reply.len()];
        stream.read_exact(&mut read).unwrap();
        assert_eq!(read.escape_ascii().to_string(), reply.escape_ascii().to_string());
        println!("{} words, {} bytes: {:?}", words.len(), bytes.len(), begin.elapsed());
    };
    let keys: Vec<Vec<u8>> = (0..20_000).map(|key| format!("k{key}").into_bytes()).collect();
    let named =
        |name: &'static [u8]| std::iter::once(name).chain(keys.iter().map(Vec::as_slice)).collect::<Vec<_>>();
    command(&named(b"MGET"), &[&b"*20000\r\n"[..], &b"$-1\r\n".repeat(20_000)].concat());
    command(&named(b"DEL"), b":0\r\n");
    let (large, kilobyte) = (vec![b'v'; 4 << 20], vec![b'v'; 1024]);
    let too_long =
        b"-ERR command too long: a word has at most 1 MiB, a command 65537 words and little more than 1 MiB in all\r\n";
    command(&[b"SET", b"k", &large], too_long);
    let pairs: Vec<&[u8]> = std::iter::once(&b"MSET"[..])
        .chain(keys[..5000].iter().flat_map(|key| [key, &kilobyte[..]]))
        .collect();
    command(&pairs, too_long);
    command(&[b"PING"], b"+PONG\r\n");
}

/// M4: connections that nobody uses keep nobody out, least of all those without the password.
#[test]
fn m4_idle_connections_give_their_place_away() {
    let limits = Limits { connections_max: 8, ..Limits::default() };
    let door = door(RespOptions { limits, password: Some(b"secret".to_vec()) });
    let mut known: Vec<TcpStream> = (0..5).map(|_| door.connect()).collect();
    for known in &mut known {
        expect(known, b"AUTH secret\r\n", b"+OK\r\n");
    }
    let idle: Vec<TcpStream> = (0..3).map(|_| door.connect()).collect();
    let begin = Instant::now();
    let mut refused = 0;
    loop {
        let mut stream = door.connect();
        let _ = stream.write_all(b"PING\r\nQUIT\r\n");
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        if reply.starts_with(b"-NOAUTH") {
            break;
        }
        assert!(reply.is_empty() || reply.starts_with(b"-ERR max number"), "{}", reply.escape_ascii());
        refused += 1;
        assert!(begin.elapsed() < Duration::from_secs(20), "refused {refused} times");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(refused > 0, "eight places are taken at first");
    for known in &mut known {
        expect(known, b"PING\r\n", b"+PONG\r\n");
    }
    drop(idle);
}

/// M4: nor do connections without the password that go on sending: commands, or the beginning of one.
#[test]
fn m4_strangers_that_send_keep_nobody_out() {
    let limits = Limits { connections_max: 8, ..Limits::default() };
    let door = door(RespOptions { limits, password: Some(b"secret".to_vec()) });
    let mut known = door.connect();
    expect(&mut known, b"AUTH secret\r\n", b"+OK\r\n");
    let mut strangers: Vec<TcpStream> = (0..7).map(|_| door.connect()).collect();
    let begin = Instant::now();
    loop {
        for (number, stranger) in strangers.iter_mut().enumerate() {
            // It may have been closed.
            let _ = stranger.write_all(if number % 2 == 0 { b"PING\r\n" } else { b"PI" });
        }
        let mut stream = door.connect();
        let _ = stream.write_all(b"AUTH secret\r\nQUIT\r\n");
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        if reply.starts_with(b"+OK") {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{}", reply.escape_ascii());
        std::thread::sleep(Duration::from_millis(20));
    }
    expect(&mut known, b"PING\r\n", b"+PONG\r\n");
}

/// A client that asks for much and takes nothing gets no more done, and hinders nobody.
#[test]
fn a_client_that_takes_nothing_is_not_served_on() {
    let door = door(RespOptions::default());
    let (mut greedy, mut other) = (door.connect(), door.connect());
    expect(&mut other, format!("SET big {}\r\n", "v".repeat(30_000)).as_bytes(), b"+OK\r\n");
    // A megabyte of requests asks for 1.6 GB of replies. The kernel holds some of them, the gateway few.
    let pairs = 50_000;
    let asked = std::thread::spawn(move || {
        let ask = b"GET big\r\nINCR done\r\n".repeat(pairs);
        greedy.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        let _ = greedy.write_all(&ask);
        greedy
    });
    let mut done = || {
        expect(&mut other, b"APPEND log x\r\n", b":");
        let mut buffer = [0; 64];
        let _ = other.read(&mut buffer).unwrap();
        other.write_all(b"INCRBY done 0\r\n").unwrap();
        let len = other.read(&mut buffer).unwrap();
        std::str::from_utf8(&buffer[1..len]).unwrap().trim_end().parse::<usize>().unwrap()
    };
    let (mut before, mut now) = (usize::MAX, 0);
    let start = Instant::now();
    while before != now {
        assert!(start.elapsed() < Duration::from_secs(20), "it goes on and on: {now}");
        std::thread::sleep(Duration::from_millis(400));
        before = std::mem::replace(&mut now, done());
    }
    assert!((1..pairs / 10).contains(&now), "{now} were done for it");
    drop(asked.join().unwrap());
}

/// With two of four replicas gone nothing can be agreed on. What was asked may be done some day, and
/// that is what is said; what was not asked is said not to be done.
#[test]
fn a_halted_cluster_is_reported() {
    let door = door(limited(Limits { lanes: 1, deadline_ns: 700_000_000, ..Limits::default() }));
    let (mut first, mut second) = (door.connect(), door.connect());
    expect(&mut first, b"SET k v\r\n", b"+OK\r\n");
    door.cluster.pause(2);
    door.cluster.pause(3);
    std::thread::sleep(Duration::from_millis(200));
    first.write_all(b"INCR n\r\nPING\r\n").unwrap();
    let unknown =
        b"-UNKNOWN no answer from the cluster in time: it may have been done or may be done yet\r\n";
    expect(&mut first, b"", &[&unknown[..], b"+PONG\r\n"].concat());
    let nothing = b"-TRYAGAIN no answer from the cluster in time: nothing was done\r\n";
    expect(&mut second, b"INCR n\r\n", nothing);
}
