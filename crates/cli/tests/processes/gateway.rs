//! The gateway with real sockets in front of it and behind it: what is long, and what is read.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use crate::support::{Dir, PATIENCE, own_address};
use crate::up::Up;

/// Sends a command and returns the first `bytes` bytes of the reply.
fn ask(stream: &mut TcpStream, words: &[&[u8]], bytes: usize) -> Vec<u8> {
    let mut command = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        command.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        command.extend_from_slice(word);
        command.extend_from_slice(b"\r\n");
    }
    stream.write_all(&command).unwrap();
    let mut reply = vec![0; bytes];
    stream.read_exact(&mut reply).unwrap();
    reply
}

/// 900 KiB are far more than a datagram: they go over the side channel, into the cluster and out of it.
#[test]
fn long_values_go_through_the_door_and_back() {
    let up = Up::start(Dir::new("gateway-long"), SocketAddr::new(own_address(), 6380));
    assert_eq!(up.redis("PING"), "+PONG");
    let mut stream = TcpStream::connect(up.door()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let value: Vec<u8> =
        (0..900 << 10).map(|i: u32| u8::try_from(i.wrapping_mul(2_654_435_761) >> 24).unwrap()).collect();
    assert_eq!(ask(&mut stream, &[b"SET", b"long", &value], 5), b"+OK\r\n");
    let header = format!("${}\r\n", value.len());
    for _ in 0..2 {
        let reply = ask(&mut stream, &[b"GET", b"long"], header.len() + value.len() + 2);
        assert!(reply.starts_with(header.as_bytes()) && reply[header.len()..].starts_with(&value));
    }
    assert_eq!(up.redis("STRLEN long"), format!(":{}", value.len()));
    // More than an operation may have is refused, and nothing is done.
    let words: Vec<Vec<u8>> = (0..3_u8).map(|i| vec![b'a' + i; 500 << 10]).collect();
    let said = ask(&mut stream, &[b"MSET", b"a", &words[0], b"b", &words[1], b"c", &words[2]], 4);
    assert_eq!(said, b"-ERR");
    assert_eq!(up.redis("EXISTS a b c"), ":0");
    up.down();
}
