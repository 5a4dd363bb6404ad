//! A gateway without sockets, in front of a key-value service in memory: for tests.

use std::sync::Mutex;

use quorate_pbft::Config;
use quorate_service::kv::Kv;
use quorate_service::{Executor, Options};
use quorate_wire::{Batch, ClientId, Cluster, ClusterId, Replies, SeqNum, Timestamp};

use super::command::parse;
use super::cursors::Cursors;
use super::decode::Decoder;
use super::pack::{Asks, Pack, Then};
use super::reply::Facts;
use super::scripts::Scripts;
use super::session::{Parsed, Session};
use crate::front::Requests;

/// A gateway without sockets: what a connection would be told.
pub(super) struct Desk {
    executor: Executor<Kv>,
    session: Session,
    decoder: Decoder,
    pub(super) time_ns: u64,
    timestamp: u64,
    /// Packs of commands are tried without ordering first.
    reads: bool,
    cursors: Mutex<Cursors>,
    scripts: Mutex<Scripts>,
}

impl Desk {
    /// Returns one that tries packs of commands without ordering first, or not.
    pub(super) fn reading(reads: bool) -> Self {
        Self { reads, ..Self::new() }
    }

    pub(super) fn new() -> Self {
        let domains = Config::new(Cluster::tolerating(1).unwrap(), ClusterId([1; 32])).domains();
        let options =
            Options { clients_max: 16, pages_max: 1 << 16, result_bytes_max: 1 << 16, ..Options::default() };
        Self {
            executor: Executor::new(Kv, domains, options),
            session: Session { id: 3, admitted: true, ..Session::default() },
            decoder: Decoder::default(),
            time_ns: 1_700_000_000_000_000_000,
            timestamp: 0,
            reads: true,
            cursors: Mutex::default(),
            scripts: Mutex::default(),
        }
    }

    /// Returns the replies to commands that are sent together.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (cursors, scripts) = (std::mem::take(&mut self.cursors), std::mem::take(&mut self.scripts));
        let guesses = Mutex::default();
        let facts = Facts {
            cursors: &cursors,
            guesses: &guesses,
            scripts: &scripts,
            operation_bytes_max: 50_000,
            password: None,
            connections_max: 10,
            connections: 1,
            connections_total: 3,
            commands_total: 1,
            requests: Requests { sent: 7, resent: 2 },
            uptime_s: 0,
        };
        let (mut out, mut rest) = (Vec::new(), bytes);
        while !rest.is_empty() {
            let mut pack = Pack::default();
            while let Some(len) = self.decoder.read(rest).unwrap() {
                let words: Vec<&[u8]> = self.decoder.words(rest).collect();
                let is_exec = words.first().is_some_and(|name| name.eq_ignore_ascii_case(b"EXEC"));
                let (operations, replies) = pack.buffers();
                let at = (operations.len(), replies.len());
                let asks = match parse(&words, &mut self.session, &facts, operations, replies) {
                    Parsed::Ask(form) => Asks::One(form),
                    Parsed::Exec(exec) => Asks::Exec(exec),
                    Parsed::Answered | Parsed::Quit => Asks::Nothing,
                };
                pack.push(at, asks, 50_000);
                rest = &rest[len..];
                // The next one may be EXEC, which is an operation by itself.
                if is_exec || rest.get(..4).is_some_and(|name| name.eq_ignore_ascii_case(b"EXEC")) {
                    break;
                }
            }
            self.run(pack, facts, &mut out);
        }
        (self.cursors, self.scripts) = (cursors, scripts);
        out
    }

    /// Has a pack done, and appends the replies.
    fn run(&mut self, mut pack: Pack, facts: Facts<'_>, out: &mut Vec<u8>) {
        let mut operation = Vec::new();
        while let Some(read_only) = pack.question(&mut operation) {
            let mut answer = self.ask(&operation, read_only && self.reads);
            let mut then = pack.answer(&answer, &facts, &mut self.session, out);
            if then == Then::AskOrdered {
                answer = self.ask(&operation, false);
                then = pack.answer(&answer, &facts, &mut self.session, out);
            }
            assert_ne!(then, Then::AskOrdered);
            if then == Then::Finished {
                return;
            }
        }
        pack.known(out);
    }

    /// Has an operation done, ordered or not.
    fn ask(&mut self, operation: &[u8], read_only: bool) -> Vec<u8> {
        let client = ClientId::new(1, 0);
        self.timestamp += 1;
        let (timestamp, mut out) = (Timestamp(self.timestamp), Vec::new());
        if read_only {
            self.executor
                .read((client, timestamp, &quorate_wire::Digest::ZERO), operation, &mut out)
                .unwrap();
            return out;
        }
        let domains = Config::new(Cluster::tolerating(1).unwrap(), ClusterId([1; 32])).domains();
        let mut batch = Batch::default();
        batch.push_operation(&domains, client, timestamp, operation);
        batch.seal(&domains, &self.time_ns.to_le_bytes());
        let (seq, mut replies) = (self.executor.last_executed().next(), Replies::new());
        self.executor.execute(seq, &batch, false, &mut replies).unwrap();
        let _: SeqNum = seq;
        replies.iter().next().unwrap().result.unwrap_or(&[]).to_vec()
    }
}
