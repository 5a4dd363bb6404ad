//! One connection of the gateway: its input, its operation in progress, its pending output.

use std::sync::Mutex;

use super::command::parse;
use super::cursors::Cursors;
use super::decode::Decoder;
use super::encode;
use super::guesses::Guesses;
use super::pack::{Asks, Pack, Then};
use super::reply::Facts;
use super::scripts::Scripts;
use super::session::{Caching, Parsed, Session};
use crate::front::{Conversation, Counts, Ends, Failure, Goes, INPUT_BYTES, Progress, Question, Refused};

/// A connection with this much pending output gets no further operations.
const OUTPUT_BYTES: usize = 256 << 10;

/// How long a connection has to be unused before another one may take its place, in nanoseconds; and one with a
/// transaction that is not finished.
const IDLE_NS: u64 = 10_000_000_000;
const QUEUE_IDLE_NS: u64 = 60_000_000_000;

/// Commands that may take effect have timed out.
const UNKNOWN: &str = "UNKNOWN no answer from the cluster in time: it may have been done or may be done yet";
/// The error where replicas keep no further last reply of a client.
const NO_LANE: &str =
    "TRYAGAIN refused, table full: no last replies are kept for more lanes; nothing was done";
/// The error where the cluster has removed the gateway.
const NOT_ALLOWED: &str = "NOPERM the gateway's client may not do this, or was removed";
/// Nothing was done.
const NOTHING_DONE: &str = "TRYAGAIN no answer from the cluster in time: nothing was done";
/// Nothing was done either: it is read away.
const TOO_LONG: &[u8] =
    b"ERR command too long: a word has at most 1 MiB, a command 65537 words and little more than 1 MiB in all";
const RESULT_LOST: &str = "UNKNOWN the answer was too long to be kept and got lost: it may have been done";

/// The operation of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing.
    Idle,
    /// Its pack waits for a lane; and whether it was found to need ordering.
    Waiting { ordered: bool },
    /// A lane has its pack.
    Asked,
}

/// The data shared by all connections of a gateway.
#[derive(Debug, Default)]
pub struct Protocol {
    /// The cursors of SCAN.
    pub(super) cursors: Mutex<Cursors>,
    /// The scripts that clients have sent.
    pub(super) scripts: Mutex<Scripts>,
    /// The wrong passwords of late.
    pub(super) guesses: Mutex<Guesses>,
    /// The password for AUTH, if there is one.
    pub(super) password: Option<Vec<u8>>,
    /// Maximum number of connections.
    pub(super) connections_max: usize,
    /// Maximum number of bytes of an operation.
    pub(super) operation_bytes_max: usize,
}

/// See the module. Holds one command and 64 KiB of input, one pack, and 256 KiB plus the replies of one pack of
/// output.
#[derive(Debug)]
pub struct RespConversation {
    session: Session,
    decoder: Decoder,
    input: Vec<u8>,
    /// Bytes of the input that are finished.
    taken: usize,
    /// The length of a parsed command that did not fit into the pack.
    ready: Option<usize>,
    output: Vec<u8>,
    /// Bytes of the output that the client has taken.
    gone: usize,
    pack: Pack,
    state: State,
    /// The other side sends nothing more.
    is_last: bool,
    /// Nothing more is done: it ends once the output is taken.
    ends: bool,
}

impl Conversation for RespConversation {
    type Protocol = Protocol;

    fn open(protocol: &Protocol, ends: Ends, id: u64) -> Self {
        Self {
            session: Session {
                id,
                ends: Some(ends),
                admitted: protocol.password.is_none(),
                ..Session::default()
            },
            decoder: Decoder::default(),
            input: Vec::new(),
            taken: 0,
            ready: None,
            output: Vec::new(),
            gone: 0,
            pack: Pack::default(),
            state: State::Idle,
            is_last: false,
            ends: false,
        }
    }

    fn refuse(&mut self, why: Refused) {
        let text = match why {
            Refused::Connections => "ERR max number of clients reached",
            Refused::Memory => "ERR out of memory at the gateway: try again, or send less at a time",
        };
        encode::error(&mut self.output, text.as_bytes());
        self.ends = true;
    }

    fn wants_input(&self) -> bool {
        !self.ends
            && !self.is_last
            && self.output().len() <= OUTPUT_BYTES
            && self.input.len() - self.taken < INPUT_BYTES.max(self.decoder.wants())
    }

    fn is_large(&self) -> bool {
        self.input.len() - self.taken >= INPUT_BYTES
    }

    fn receive(&mut self, _protocol: &Protocol, bytes: &[u8]) {
        if self.taken > 0 {
            self.input.drain(..self.taken);
            self.taken = 0;
        }
        self.input.extend_from_slice(bytes);
    }

    fn hang_up(&mut self) {
        self.is_last = true;
    }

    fn work(&mut self, protocol: &Protocol, counts: &mut Counts) -> Progress {
        if self.state != State::Idle || self.output().len() > OUTPUT_BYTES {
            return Progress::Rest;
        }
        counts.commands_total += self.pack(&facts(protocol, counts), protocol.operation_bytes_max);
        if self.pack.is_empty() {
            return Progress::Rest;
        }
        if self.pack.asks() {
            self.state = State::Waiting { ordered: false };
            return Progress::Rest;
        }
        self.pack.known(&mut self.output);
        self.pack.clear();
        Progress::Again
    }

    fn question(&mut self, operation: &mut Vec<u8>) -> Option<Question> {
        let State::Waiting { ordered } = self.state else { return None };
        let read_only = self.pack.question(operation)? && !ordered;
        self.state = State::Asked;
        Some(Question { ticket: 0, read_only, may_give_up: true })
    }

    fn has_question(&self) -> bool {
        matches!(self.state, State::Waiting { .. })
    }

    fn answer(&mut self, protocol: &Protocol, _ticket: u64, result: &[u8], counts: &Counts) {
        let facts = facts(protocol, counts);
        self.state = match self.pack.answer(result, &facts, &mut self.session, &mut self.output) {
            Then::AskOrdered => State::Waiting { ordered: true },
            Then::AskOn => State::Waiting { ordered: false },
            Then::Finished => {
                self.pack.clear();
                State::Idle
            }
        };
    }

    fn fail(&mut self, _ticket: u64, failure: Failure) {
        let text = match failure {
            Failure::NothingDone => NOTHING_DONE,
            Failure::NoLane => NO_LANE,
            Failure::NotAllowed => NOT_ALLOWED,
            Failure::Unknown => UNKNOWN,
            Failure::ResultLost => RESULT_LOST,
        };
        self.pack.fail(text, &mut self.session, &mut self.output);
        self.pack.clear();
        self.state = State::Idle;
    }

    fn output(&self) -> &[u8] {
        self.output.get(self.gone..).unwrap_or(&[])
    }

    fn sent(&mut self, count: usize) {
        self.gone += count;
        if self.gone >= self.output.len() {
            self.output.clear();
            self.output.shrink_to(INPUT_BYTES);
            self.gone = 0;
        }
    }

    fn has_ended(&self) -> bool {
        self.ends && self.state == State::Idle && self.pack.is_empty()
    }

    fn is_stalled(&self) -> bool {
        !self.output().is_empty()
            || (self.state == State::Idle && self.ready.is_none() && self.input.len() > self.taken)
    }

    fn may_go(&self, idle_ns: u64) -> Option<Goes> {
        if !self.session.admitted {
            return Some(Goes::First);
        }
        let least_ns = if self.session.queue.is_some() { QUEUE_IDLE_NS } else { IDLE_NS };
        let waits = self.state != State::Idle || self.is_stalled();
        (idle_ns > least_ns && !waits).then_some(Goes::Idle)
    }

    fn held(&self) -> usize {
        self.input.capacity()
            + self.output.capacity()
            + self.pack.held()
            + self.decoder.held()
            + self.session.held()
    }
}

impl RespConversation {
    /// Makes a pack of the available commands, and returns their number. The caller has checked that no operation is
    /// in progress.
    fn pack(&mut self, facts: &Facts<'_>, operation_bytes_max: usize) -> u64 {
        let mut commands = 0;
        while !self.ends {
            if self.session.caching == Caching::Due {
                self.session.caching = Caching::Optin;
                let (operations, replies) = self.pack.buffers();
                let at = (operations.len(), replies.len());
                encode::forget_all(replies);
                self.pack.push(at, Asks::Nothing, operation_bytes_max);
            }
            let bytes = self.input.get(self.taken..).unwrap_or(&[]);
            let len = match self.ready.take() {
                Some(len) => len,
                None => match self.decoder.read(bytes) {
                    Ok(Some(len)) => len,
                    Ok(None) => {
                        self.taken += self.decoder.let_go();
                        self.ends = self.is_last;
                        break;
                    }
                    Err(error) => {
                        let (operations, replies) = self.pack.buffers();
                        let at = (operations.len(), replies.len());
                        encode::error(replies, format!("ERR {}", error.text()).as_bytes());
                        self.pack.push(at, Asks::Nothing, operation_bytes_max);
                        self.ends = true;
                        break;
                    }
                },
            };
            let first = if self.decoder.is_too_long() { None } else { self.decoder.words(bytes).next() };
            if !self.pack.has_room(len) || first.is_some_and(|name| self.pack.holds_up(name)) {
                self.ready = Some(len);
                break;
            }
            self.taken += len;
            if self.decoder.is_too_long() {
                commands += 1;
                let (operations, replies) = self.pack.buffers();
                let at = (operations.len(), replies.len());
                encode::error(replies, TOO_LONG);
                self.pack.push(at, Asks::Nothing, operation_bytes_max);
                continue;
            }
            let words: Vec<&[u8]> = self.decoder.words(bytes).collect();
            if words.is_empty() {
                continue;
            }
            if is_http(&words) {
                self.pack.clear();
                self.ends = true;
                break;
            }
            commands += 1;
            let (operations, replies) = self.pack.buffers();
            let at = (operations.len(), replies.len());
            let is_cached = self.session.caching == Caching::Next;
            let parsed = parse(&words, &mut self.session, facts, operations, replies);
            if is_cached && self.session.caching == Caching::Next && self.session.queue.is_none() {
                self.session.caching = Caching::Due;
            }
            let asks = match parsed {
                Parsed::Ask(form) => Asks::One(form),
                Parsed::Exec(exec) => Asks::Exec(exec),
                Parsed::Answered => Asks::Nothing,
                Parsed::Quit => {
                    self.ends = true;
                    Asks::Nothing
                }
            };
            let is_exec = matches!(asks, Asks::Exec(_));
            self.pack.push(at, asks, operation_bytes_max);
            if is_exec {
                break;
            }
        }
        if self.taken == self.input.len() {
            self.input.clear();
            self.input.shrink_to(INPUT_BYTES);
            self.taken = 0;
        }
        commands
    }
}

/// Says whether a command is a line of HTTP, as a web page can make a browser send it, with commands in its
/// body: Redis ends such a connection, too.
fn is_http(words: &[&[u8]]) -> bool {
    words
        .first()
        .is_some_and(|word| word.eq_ignore_ascii_case(b"POST") || word.eq_ignore_ascii_case(b"Host:"))
}

fn facts<'a>(protocol: &'a Protocol, counts: &Counts) -> Facts<'a> {
    Facts {
        cursors: &protocol.cursors,
        scripts: &protocol.scripts,
        guesses: &protocol.guesses,
        operation_bytes_max: protocol.operation_bytes_max,
        password: protocol.password.as_deref(),
        connections_max: protocol.connections_max,
        connections: counts.connections,
        connections_total: counts.connections_total,
        commands_total: counts.commands_total,
        requests: counts.requests,
        uptime_s: counts.uptime_s,
    }
}
