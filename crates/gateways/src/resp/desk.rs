//! A gateway without sockets, in front of a key-value service in memory: for tests.

use quorate_pbft::Config;
use quorate_service::kv::Kv;
use quorate_service::{Executor, Options};
use quorate_wire::{Batch, ClientId, Cluster, ClusterId, Replies, SeqNum, Timestamp};

use super::conversation::{Protocol, RespConversation};
use crate::front::{Conversation, Counts, Ends, INPUT_BYTES, Progress, Requests};

/// A gateway without sockets: what a connection would be told.
pub(super) struct Desk {
    executor: Executor<Kv>,
    conversation: RespConversation,
    protocol: Protocol,
    counts: Counts,
    pub(super) time_ns: u64,
    timestamp: u64,
    /// Packs of commands are tried without ordering first.
    reads: bool,
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
        let protocol = Protocol { connections_max: 10, operation_bytes_max: 50_000, ..Protocol::default() };
        let mut counts = Counts::default();
        (counts.connections, counts.connections_total) = (1, 3);
        counts.requests = Requests { sent: 7, resent: 2 };
        let peer = std::net::SocketAddr::from(([127, 0, 0, 1], 5000));
        Self {
            executor: Executor::new(Kv, domains, options),
            conversation: RespConversation::open(&protocol, Ends { peer, own: peer }, 3),
            protocol,
            counts,
            time_ns: 1_700_000_000_000_000_000,
            timestamp: 0,
            reads: true,
        }
    }

    /// Returns the replies to commands that are sent together.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Vec<u8> {
        let (mut out, mut operation) = (Vec::new(), Vec::new());
        for part in bytes.chunks(INPUT_BYTES) {
            assert!(self.conversation.wants_input());
            self.conversation.receive(&self.protocol, part);
            loop {
                let progress = self.conversation.work(&self.protocol, &mut self.counts);
                out.extend_from_slice(self.conversation.output());
                self.conversation.sent(self.conversation.output().len());
                if let Some(question) = self.conversation.question(&mut operation) {
                    let answer = self.ask(&operation, question.read_only && self.reads);
                    self.conversation.answer(&self.protocol, question.ticket, &answer, &self.counts);
                } else if progress == Progress::Rest {
                    break;
                }
            }
        }
        out
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
