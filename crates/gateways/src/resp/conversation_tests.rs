//! A connection of the gateway without sockets: bytes in pieces of all sizes, and what is over a limit.

use super::conversation::{Protocol, RespConversation};
use super::decode::{COMMAND_BYTES_MAX, WORD_BYTES_MAX, WORDS_MAX};
use super::table::COMMANDS;
use crate::front::Ends;
use crate::front::{Conversation, Counts, Failure, INPUT_BYTES, Progress};
use quorate_wire::message::OPERATION_BYTES_MAX;

/// A connection, and what is behind it.
struct Peer {
    conversation: RespConversation,
    protocol: Protocol,
    counts: Counts,
    output: Vec<u8>,
    /// The most bytes that it has held.
    held: usize,
}

impl Peer {
    fn new() -> Self {
        let operation_bytes_max = OPERATION_BYTES_MAX;
        let protocol = Protocol { connections_max: 10, operation_bytes_max, ..Protocol::default() };
        let peer = std::net::SocketAddr::from(([127, 0, 0, 1], 5000));
        let conversation = RespConversation::open(&protocol, Ends { peer, own: peer }, 1);
        Self { conversation, protocol, counts: Counts::default(), output: Vec::new(), held: 0 }
    }

    /// Works until there is nothing to be done.
    fn work(&mut self) {
        self.held = self.held.max(self.conversation.held());
        while self.conversation.work(&self.protocol, &mut self.counts) == Progress::Again {}
        self.held = self.held.max(self.conversation.held());
        self.output.extend_from_slice(self.conversation.output());
        self.conversation.sent(self.conversation.output().len());
    }

    /// Sends bytes in pieces of `piece`, as the gateway takes them. Says whether all of them were taken.
    fn send(&mut self, bytes: &[u8], piece: usize) -> bool {
        for piece in bytes.chunks(piece) {
            // What is read at once is no more than this.
            for part in piece.chunks(INPUT_BYTES) {
                if !self.conversation.wants_input() {
                    return false;
                }
                self.conversation.receive(&self.protocol, part);
                self.work();
            }
        }
        true
    }
}

fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// R1: a command of many words is taken wherever a piece of it ends. It hung where that was inside of a length, with
/// more than 64 KiB held.
#[test]
fn r1_commands_of_many_words_are_taken_in_pieces_of_any_size() {
    let keys: Vec<String> = (0..5_000).map(|i| format!("key{i:07}")).collect();
    let words: Vec<&[u8]> = [&b"DEL"[..]].into_iter().chain(keys.iter().map(String::as_bytes)).collect();
    let many = command(&words);
    let value = vec![b'v'; 100_000];
    let long = command(&[b"SET", b"k", &value, b"EX", b"10"]);
    for bytes in [&many, &long] {
        assert!(bytes.len() > INPUT_BYTES);
        let pieces = (INPUT_BYTES - 40..INPUT_BYTES + 40).chain([1_000, 1_460, 10_007, bytes.len()]);
        for piece in pieces {
            let mut peer = Peer::new();
            assert!(peer.send(bytes, piece), "in pieces of {piece}");
            assert!(peer.conversation.has_question(), "in pieces of {piece}");
        }
        // And with something before it, so that what is held begins anywhere.
        for before in 1..40 {
            let mut peer = Peer::new();
            assert!(peer.send(&[&vec![b'\n'; before][..], bytes].concat(), INPUT_BYTES), "behind {before}");
            assert!(peer.conversation.has_question(), "behind {before}");
        }
    }
}

/// R5, H4: what is over a limit is read away and answered with an error, and the connection goes on. Little of it is held.
#[test]
fn h4_what_is_over_a_limit_is_an_error_reply() {
    let value = vec![b'v'; 4 << 20];
    let half = &value[..WORD_BYTES_MAX / 2 + (40 << 10)];
    let keys: Vec<String> = (0..WORDS_MAX).map(|i| i.to_string()).collect();
    let words: Vec<&[u8]> = [&b"DEL"[..]].into_iter().chain(keys.iter().map(String::as_bytes)).collect();
    let cases = [
        command(&[b"SET", b"k", &value]),
        command(&[b"SET", b"k", &value[..=WORD_BYTES_MAX]]),
        command(&[b"MSET", b"k", half, b"l", half]),
        command(&words),
    ];
    for bytes in &cases {
        for piece in [1_460, INPUT_BYTES, bytes.len()] {
            let mut peer = Peer::new();
            assert!(peer.send(bytes, piece));
            let text = String::from_utf8_lossy(&peer.output).into_owned();
            assert!(text.starts_with("-ERR ") && text.ends_with("\r\n"), "{text}");
            assert!(!peer.conversation.has_ended());
            assert!(peer.held < 4 * COMMAND_BYTES_MAX, "{}", peer.held);
            assert!(peer.send(b"PING\r\n", 7));
            assert!(peer.output.ends_with(b"\r\n+PONG\r\n"));
        }
    }
}

/// What a command's words take counts as held.
#[test]
fn h4_words_count_as_held() {
    let words = vec![&b""[..]; WORDS_MAX];
    let bytes = command(&words);
    let mut peer = Peer::new();
    peer.send(&bytes[..bytes.len() - 10], INPUT_BYTES);
    assert!(peer.conversation.held() > bytes.len() + 8 * WORDS_MAX, "{}", peer.conversation.held());
}

/// H3, R4: what a web page can make a browser send ends the connection before anything in its body is done.
#[test]
fn h3_what_a_browser_sends_ends_the_connection() {
    let set = "SET stolen 1\r\n";
    for head in [
        "POST / HTTP/1.1\r\n\r\n",
        "post / HTTP/1.1\r\n\r\n",
        "PUT / HTTP/1.1\r\nHost: localhost:6379\r\n\r\n",
        "GET / HTTP/1.1\r\nHOST: localhost:6379\r\n\r\n",
    ] {
        let mut peer = Peer::new();
        peer.send(format!("{head}{set}").as_bytes(), 10_000);
        assert!(peer.conversation.has_ended() && !peer.conversation.has_question(), "{head}");
    }
    // The words are commands nowhere else.
    let mut peer = Peer::new();
    assert!(peer.send(&command(&[b"SET", b"POST", b"Host:"]), 100));
    assert!(peer.conversation.has_question());
}

/// A client that caches replies is told to forget each of them, behind the reply: also behind that of a transaction, which
/// comes later than the command.
#[test]
fn who_caches_a_reply_is_told_to_forget_it() {
    const FORGET: &str = ">2\r\n$10\r\ninvalidate\r\n_\r\n";
    let mut peer = Peer::new();
    let mut said = |bytes: &str| {
        peer.output.clear();
        assert!(peer.send(bytes.as_bytes(), 11));
        if peer.conversation.has_question() {
            peer.conversation.question(&mut Vec::new());
            peer.conversation.fail(0, Failure::NothingDone);
            peer.work();
        }
        String::from_utf8_lossy(&peer.output).into_owned()
    };
    // Refused where no such message exists, or every reply would be cached.
    assert!(said("CLIENT TRACKING ON OPTIN\r\n").starts_with("-ERR "));
    assert!(said("HELLO 3\r\nCLIENT TRACKING ON\r\n").contains("\r\n-ERR "));
    assert!(said("CLIENT CACHING YES\r\n").starts_with("-ERR "));
    assert_eq!(said("CLIENT TRACKING ON OPTIN\r\nPING\r\n"), "+OK\r\n+PONG\r\n");
    assert_eq!(
        said("CLIENT CACHING YES\r\nECHO 1\r\nPING\r\n"),
        format!("+OK\r\n$1\r\n1\r\n{FORGET}+PONG\r\n")
    );
    let transaction = said("CLIENT CACHING YES\r\nMULTI\r\nGET k\r\nEXEC\r\n");
    assert!(transaction.starts_with("+OK\r\n+OK\r\n+QUEUED\r\n-TRYAGAIN "), "{transaction}");
    assert!(transaction.ends_with(FORGET), "{transaction}");
    assert_eq!(said("PING\r\n"), "+PONG\r\n");
    // A connection that leaves version 3 no longer caches.
    assert!(said("HELLO 2\r\nCLIENT CACHING YES\r\n").contains("\r\n-ERR "));
}

/// L82: commands that are much shorter than their replies make a connection hold little.
#[test]
fn l82_short_commands_with_long_replies_are_answered_in_parts() {
    let mut peer = Peer::new();
    peer.conversation.receive(&peer.protocol, &b"COMMAND\r\n".repeat(1024));
    let mut last = 1;
    while std::mem::replace(&mut last, peer.output.len()) != peer.output.len() {
        peer.work();
        assert!(peer.held < 1 << 20, "{}", peer.held);
    }
    let head = format!("*{}\r\n*6\r\n", COMMANDS.len()).into_bytes();
    let replies = peer.output.windows(head.len()).filter(|part| *part == head).count();
    assert_eq!(replies, 1024);
    // One command cannot ask for as much either.
    let names = vec![&b"client"[..]; WORDS_MAX - 2];
    peer.send(&command(&[&[&b"COMMAND"[..], b"INFO"], &names[..]].concat()), INPUT_BYTES);
    assert!(peer.output.ends_with(b"-ERR too many names: at most 1024\r\n"));
}
