//! One connection of the door: what it has sent, what is done for it, what it has yet to take.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

use super::command::{Parsed, parse};
use super::decode::Decoder;
use super::encode;
use super::pack::Pack;
use super::reply::Facts;
use super::session::Session;

/// Input that is read ahead, in bytes, unless one command needs more.
pub(super) const INPUT_BYTES: usize = 64 << 10;
/// A connection with so many bytes to take gets no more done.
pub(super) const OUTPUT_BYTES: usize = 256 << 10;

/// What is being done for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing.
    Idle,
    /// Its pack waits for a lane.
    Waiting,
    /// A lane has its pack; and whether that only reads.
    Asked { lane: u16, read_only: bool },
}

/// See the module. Holds one command and [`INPUT_BYTES`] of input, one pack, and [`OUTPUT_BYTES`] and the
/// replies of one pack of output.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    session: Session,
    decoder: Decoder,
    input: Vec<u8>,
    /// Bytes of the input that are done with.
    taken: usize,
    /// The length of a command that was read and did not fit into the pack.
    ready: Option<usize>,
    output: Vec<u8>,
    sent: usize,
    pub(super) pack: Pack,
    pub(super) state: State,
    /// When the pack was complete, in nanoseconds of the monotonic clock.
    pub(super) asked_at: u64,
    /// When bytes moved last.
    pub(super) moved_at: u64,
    /// The other side sends no more.
    is_last: bool,
    /// Nothing more is done: it ends once the output is taken.
    ends: bool,
    /// Commands read.
    pub(super) commands: u64,
    /// What was counted of [`Self::held`].
    pub(super) counted: usize,
    /// What the poller was told to look for: to read, to write.
    pub(super) interest: (bool, bool),
}

impl Connection {
    pub(super) fn new(stream: TcpStream, id: u64, admitted: bool, now_ns: u64) -> Self {
        Self {
            stream,
            session: Session { id, name: Vec::new(), admitted },
            decoder: Decoder::default(),
            input: Vec::new(),
            taken: 0,
            ready: None,
            output: Vec::new(),
            sent: 0,
            pack: Pack::default(),
            state: State::Idle,
            asked_at: 0,
            moved_at: now_ns,
            is_last: false,
            ends: false,
            commands: 0,
            counted: 0,
            interest: (true, false),
        }
    }

    /// Says whether more input is wanted.
    pub(super) fn wants_input(&self) -> bool {
        !self.ends
            && !self.is_last
            && self.pending() <= OUTPUT_BYTES
            && self.input.len() - self.taken < INPUT_BYTES.max(self.decoder.wants())
    }

    /// Returns how many bytes it has yet to take.
    pub(super) fn pending(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Says whether the other side is in the middle of something: a command that is not whole, or replies
    /// that it does not take.
    pub(super) fn is_stalled(&self) -> bool {
        self.pending() > 0
            || (self.state == State::Idle && self.ready.is_none() && self.input.len() > self.taken)
    }

    /// Says whether it needs more than a usual share of memory.
    pub(super) fn is_large(&self) -> bool {
        self.input.len() - self.taken >= INPUT_BYTES
    }

    /// Returns how many bytes are held.
    pub(super) fn held(&self) -> usize {
        self.input.capacity() + self.output.capacity() + self.pack.held()
    }

    /// Reads what is there, as much as `buffer` holds. Says whether the connection lives.
    pub(super) fn read(&mut self, buffer: &mut [u8], now_ns: u64) -> bool {
        match self.stream.read(buffer) {
            Ok(0) => {
                self.is_last = true;
                true
            }
            Ok(len) => {
                if self.taken > 0 {
                    self.input.drain(..self.taken);
                    self.taken = 0;
                }
                self.input.extend_from_slice(buffer.get(..len).unwrap_or(&[]));
                self.moved_at = now_ns;
                true
            }
            Err(error) => is_passing(&error),
        }
    }

    /// Writes what is to be written, as far as it is taken. Says whether the connection lives.
    pub(super) fn write(&mut self, now_ns: u64) -> bool {
        while self.sent < self.output.len() {
            match self.stream.write(self.output.get(self.sent..).unwrap_or(&[])) {
                Ok(0) => return false,
                Ok(len) => {
                    self.sent += len;
                    self.moved_at = now_ns;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        if self.sent == self.output.len() {
            self.output.clear();
            self.output.shrink_to(INPUT_BYTES);
            self.sent = 0;
        }
        !(self.ends && self.output.is_empty() && self.state == State::Idle && self.pack.is_empty())
    }

    /// Makes a pack of the commands that are there. The caller has seen that nothing is being done.
    /// Operations may have so many bytes.
    pub(super) fn pack(&mut self, facts: &Facts<'_>, operation_bytes_max: usize) {
        while !self.ends {
            let bytes = self.input.get(self.taken..).unwrap_or(&[]);
            let len = match self.ready.take() {
                Some(len) => len,
                None => match self.decoder.read(bytes) {
                    Ok(Some(len)) => len,
                    Ok(None) => {
                        self.ends = self.is_last;
                        break;
                    }
                    Err(error) => {
                        let (operations, replies) = self.pack.buffers();
                        let at = (operations.len(), replies.len());
                        encode::error(replies, format!("ERR {}", error.text()).as_bytes());
                        self.pack.push(at, None, operation_bytes_max);
                        self.ends = true;
                        break;
                    }
                },
            };
            if !self.pack.has_room(len) {
                self.ready = Some(len);
                break;
            }
            self.taken += len;
            let words: Vec<&[u8]> = self.decoder.words(bytes).collect();
            if words.is_empty() {
                continue;
            }
            self.commands += 1;
            let (operations, replies) = self.pack.buffers();
            let at = (operations.len(), replies.len());
            let parsed = parse(&words, &mut self.session, facts, operations, replies);
            let shape = match parsed {
                Parsed::Ask(shape) => Some(shape),
                Parsed::Answered => None,
                Parsed::Quit => {
                    self.ends = true;
                    None
                }
            };
            self.pack.push(at, shape, operation_bytes_max);
        }
        if self.taken == self.input.len() {
            self.input.clear();
            self.input.shrink_to(INPUT_BYTES);
            self.taken = 0;
        }
    }

    /// Returns the pack and where its replies go.
    pub(super) fn parts(&mut self) -> (&mut Pack, &mut Vec<u8>) {
        (&mut self.pack, &mut self.output)
    }

    /// Says why the connection ends, and ends it.
    pub(super) fn refuse(&mut self, text: &str) {
        encode::error(&mut self.output, text.as_bytes());
        self.ends = true;
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
