//! The commands of one connection that are executed together, as one operation of the cluster.
//!
//! Redis executes the commands of a connection in order. Requests in different lanes have no order, and a lane has
//! one request in progress (CL-1). So the commands that a connection has sent when a lane becomes free form a single
//! operation, which the service executes one by one: the order is kept, and a pipeline of commands costs one request.

use std::ops::Range;

use quorate_service::kv::{Answer, Asked, Command, Failure, Items};

use super::encode;
use super::reply::{Facts, Form, Shape, reply};
use super::session::Session;
use super::transaction::{Exec, Queued};

/// Maximum number of commands of a pack.
pub(super) const COMMANDS_MAX: usize = 1024;
/// Maximum bytes of operations and known replies in a pack. The reply of its last command may be beyond it.
pub(super) const PACK_BYTES_MAX: usize = 24 << 10;
/// Commands that use or change what is watched. They wait for the marks of each WATCH before them.
const AFTER_WATCH: &[&str] = &["WATCH", "UNWATCH", "MULTI", "DISCARD", "RESET"];

/// A command of a pack.
#[derive(Clone, Debug)]
enum Part {
    /// The reply is known.
    Known(Range<usize>),
    /// The cluster executes it.
    Asked(Range<usize>, Form),
    /// The cluster executes a transaction.
    Exec(Range<usize>, Exec),
}

/// What a command asks of the cluster.
#[derive(Clone, Debug)]
pub(super) enum Asks {
    /// Nothing: its reply is known.
    Nothing,
    /// An operation.
    One(Form),
    /// A transaction.
    Exec(Exec),
}

/// See the module. Never more than [`COMMANDS_MAX`] commands.
#[derive(Debug, Default)]
pub(super) struct Pack {
    parts: Vec<Part>,
    /// The first command without a reply.
    next: usize,
    operations: Vec<u8>,
    replies: Vec<u8>,
    /// The number of operations in the last request to the cluster.
    asked: usize,
    /// Whether there is a WATCH in it.
    has_watch: bool,
}

/// The result of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Every command has its reply.
    Finished,
    /// The rest must be sent to the cluster.
    AskOn,
    /// The same must be sent again, as an ordered operation.
    AskOrdered,
}

impl Pack {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns whether another command, of this length, fits into this pack.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        let held = self.operations.len() + self.replies.len();
        self.parts.is_empty() || (self.parts.len() < COMMANDS_MAX && held + bytes <= PACK_BYTES_MAX)
    }

    /// Returns whether a command with this name has to wait until this pack is answered.
    pub(super) fn holds_up(&self, name: &[u8]) -> bool {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        // A transaction is an operation by itself.
        (is("EXEC") && !self.is_empty()) || (self.has_watch && AFTER_WATCH.iter().any(|other| is(other)))
    }

    /// Returns the buffers for a command's operation and its reply; [`Self::push`] follows.
    pub(super) fn buffers(&mut self) -> (&mut Vec<u8>, &mut Vec<u8>) {
        (&mut self.operations, &mut self.replies)
    }

    /// Adds a command whose operation or reply was just appended at these offsets. Refuses an operation that is too
    /// long.
    pub(super) fn push(&mut self, (operation, known): (usize, usize), asks: Asks, max: usize) {
        let end = self.operations.len();
        self.has_watch |= matches!(asks, Asks::One(Form { shape: Shape::Watch, .. }));
        let part = match asks {
            Asks::One(form) if end - operation <= max => Part::Asked(operation..end, form),
            Asks::Exec(exec) if end - operation <= max => Part::Exec(operation..end, exec),
            Asks::One(_) | Asks::Exec(..) => {
                self.operations.truncate(operation);
                encode::error(
                    &mut self.replies,
                    format!("ERR the command is longer than {max} bytes").as_bytes(),
                );
                Part::Known(known..self.replies.len())
            }
            Asks::Nothing => Part::Known(known..self.replies.len()),
        };
        self.parts.push(part);
    }

    /// Returns whether there are operations for the cluster.
    pub(super) fn asks(&self) -> bool {
        let rest = self.parts.get(self.next..).unwrap_or(&[]);
        rest.iter().any(|part| !matches!(part, Part::Known(_)))
    }

    /// Writes the request for the cluster to `operation`, and returns whether it is read-only; none if there is none.
    pub(super) fn question(&mut self, operation: &mut Vec<u8>) -> Option<bool> {
        operation.clear();
        let rest = self.parts.get(self.next..).unwrap_or(&[]);
        let operations = rest.iter().filter_map(|part| match part {
            Part::Known(_) => None,
            Part::Asked(range, _) | Part::Exec(range, ..) => self.operations.get(range.clone()),
        });
        self.asked = operations.clone().count();
        match self.asked {
            0 => return None,
            1 => operations.for_each(|bytes| operation.extend_from_slice(bytes)),
            _ => {
                let mut buffer = Vec::new();
                Command::Many(Items::operations(operations, &mut buffer)).encode(operation);
            }
        }
        Some(Asked::decode(operation).is_ok_and(|asked| asked.is_read_only()))
    }

    /// Takes the answer to the request, and appends the resulting replies.
    pub(super) fn answer(
        &mut self,
        answer: &[u8],
        facts: &Facts<'_>,
        session: &mut Session,
        out: &mut Vec<u8>,
    ) -> Then {
        match Answer::decode(answer) {
            Ok(Answer::Failed(Failure::NeedsOrder)) => return Then::AskOrdered,
            Ok(Answer::Many(answers)) if self.asked > 1 => {
                for answer in answers.iter() {
                    self.known(out);
                    self.one(answer, facts, session, out);
                }
                self.known(out);
            }
            // One answer for each operation, or one refusal for all.
            _ => {
                for _ in 0..self.asked {
                    self.known(out);
                    self.one(answer, facts, session, out);
                }
                self.known(out);
            }
        }
        if self.next < self.parts.len() { Then::AskOn } else { Then::Finished }
    }

    /// Appends an error for every command that waits for the cluster, and the known replies.
    pub(super) fn fail(&mut self, text: &str, session: &mut Session, out: &mut Vec<u8>) {
        if let Some(Part::Exec(_, exec)) = self.parts.get(self.next) {
            session.database = exec.database_before;
        }
        while let Some(part) = self.parts.get(self.next) {
            match part {
                Part::Known(_) => self.known(out),
                Part::Asked(..) | Part::Exec(..) => {
                    if matches!(part, Part::Asked(_, Form { shape: Shape::Watch, .. })) {
                        session.watched.refuse();
                    }
                    encode::error(out, text.as_bytes());
                    self.next += 1;
                }
            }
        }
    }

    /// Appends the known replies, up to the next command that waits.
    pub(super) fn known(&mut self, out: &mut Vec<u8>) {
        while let Some(Part::Known(range)) = self.parts.get(self.next) {
            out.extend_from_slice(self.replies.get(range.clone()).unwrap_or(&[]));
            self.next += 1;
        }
    }

    fn one(&mut self, answer: &[u8], facts: &Facts<'_>, session: &mut Session, out: &mut Vec<u8>) {
        match self.parts.get(self.next) {
            Some(Part::Asked(range, form)) => {
                if form.shape == Shape::Watch {
                    let mark = match Answer::decode(answer) {
                        Ok(Answer::Value(mark)) => mark.try_into().ok(),
                        _ => None,
                    };
                    match mark.zip(self.operations.get(range.clone())) {
                        Some((mark, operation)) => session.watched.push(mark, operation),
                        None => session.watched.refuse(),
                    }
                }
                reply(answer, *form, facts, out);
            }
            Some(Part::Exec(_, exec)) => {
                if !replies(answer, exec, facts, out) {
                    session.database = exec.database_before;
                }
            }
            Some(Part::Known(_)) | None => return,
        }
        self.next += 1;
    }

    /// Empties the pack, and keeps memory for packs of a usual size.
    pub(super) fn clear(&mut self) {
        self.parts.clear();
        self.next = 0;
        self.asked = 0;
        self.has_watch = false;
        for buffer in [&mut self.operations, &mut self.replies] {
            buffer.clear();
            buffer.shrink_to(PACK_BYTES_MAX);
        }
    }

    /// Returns the number of bytes it holds.
    pub(super) fn held(&self) -> usize {
        self.operations.capacity() + self.replies.capacity() + self.parts.capacity() * size_of::<Part>()
    }
}

/// Appends the replies of a transaction. Returns whether it was executed.
fn replies(answer: &[u8], exec: &Exec, facts: &Facts<'_>, out: &mut Vec<u8>) -> bool {
    let version = exec.version;
    let answers = match Answer::decode(answer) {
        Ok(Answer::Many(answers)) => answers,
        // A key that was watched has changed.
        Ok(Answer::Nil) => {
            encode::no_array(out, version);
            return false;
        }
        _ => {
            reply(answer, Form { shape: Shape::List, name: "exec", version, database: 0 }, facts, out);
            return false;
        }
    };
    encode::array(out, exec.items.len());
    let mut answers = answers.iter();
    for item in &exec.items {
        match item {
            Queued::Known(reply) => out.extend_from_slice(reply),
            Queued::Asked(form) => reply(answers.next().unwrap_or(&[]), *form, facts, out),
        }
    }
    true
}
