//! The services that run in the simulated world, each with its plainest possible double.
//!
//! The double says what every result has to be; it shares the encoding with the service and nothing
//! else.

use std::collections::BTreeMap;

use quorate_service::kv::{Answer, Asked, Command, Failure, Further, Items, Kv, Operation};
use quorate_service::null::{self, Null};
use quorate_service::parallel::{KeyRules, Rules};
use quorate_service::registry;
use quorate_service::{Context, Service, View};

use crate::checker::linearizable::{self, Call, Model};
use crate::describe::Words;
use crate::orders;
use crate::rng::Rng;

/// A request for a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The operation.
    pub operation: Vec<u8>,
    /// Try the read-only path.
    pub read_only: bool,
}

/// A history as the clients saw it: operations and results in their encoding.
pub type History = Vec<Call<Vec<u8>, Vec<u8>>>;

/// A sequential machine that says what the results have to be.
pub trait Double {
    /// Executes the next operation in the agreed order. `cx` has the number of its batch and the agreed time.
    fn execute(&mut self, cx: &Context, operation: &[u8]) -> Vec<u8>;

    /// Answers a read that is not ordered, and changes nothing.
    fn read(&mut self, cx: &Context, operation: &[u8]) -> Vec<u8> {
        self.execute(cx, operation)
    }

    /// Says whether a client may add and remove others.
    fn is_admin(&self, _principal: u64) -> bool {
        false
    }
}

/// A service with everything else that the simulator needs.
pub trait App: Words + Clone + 'static {
    /// The service.
    type Service: Service + Send + 'static;

    /// Returns the service.
    fn service(&self) -> Self::Service;

    /// Returns which of its requests depend on each other.
    fn rules(&self) -> Box<dyn Rules + Send> {
        Box::new(KeyRules::new(self.service()))
    }

    /// Returns its double in the initial state.
    fn double(&self) -> Box<dyn Double>;

    /// Draws an operation. `tag` is new in each, so that no two writes write the same.
    fn draw(&self, rng: &mut Rng, tag: u64) -> Ask;

    /// Draws a write to something that no drawn operation reads: for clients that lie.
    fn draw_apart(&self, rng: &mut Rng, tag: u64) -> Vec<u8>;

    /// Reads an operation as people write it.
    fn parse(&self, text: &str) -> Option<Ask>;

    /// Checks that a history is linearizable (I14). If not, returns when it stopped being so, and its subject.
    fn check(&self, history: &History) -> Result<(), (u64, String)>;

    /// Returns how large its pages have to be, if that is not for the seed to say.
    fn page_bytes(&self) -> Option<usize> {
        None
    }

    /// Looks whether the state of a correct replica is in order, when a run has ended. If not, returns what is wrong.
    fn audit(&self, _state: View<'_>) -> Result<(), String> {
        Ok(())
    }
}

/// The key-value store.
#[derive(Clone, Debug)]
pub struct KvApp {
    /// How many keys there are to fight over.
    pub keys: u64,
    /// Values are now and then this long, in bytes: around the border of separate transmission, and the papers' 4 KB.
    pub long: [usize; 3],
    /// Reads, per million operations.
    pub reads: u32,
    /// How many more keys there are, which are written and read several at a time only.
    pub together: u64,
}

impl Default for KvApp {
    fn default() -> Self {
        Self { keys: 6, long: [200, 255, 4096], reads: 300_000, together: 3 }
    }
}

impl Words for KvApp {
    fn operation(&self, operation: &[u8]) -> String {
        if let Some(order) = orders::order_text(operation) {
            return order;
        }
        let operation = match Asked::decode(operation) {
            Ok(Asked::Operation(operation)) => operation,
            Ok(Asked::Command(command)) => return format!("{command:?}").to_lowercase(),
            Ok(Asked::Further(further)) => return format!("{further:?}").to_lowercase(),
            Ok(Asked::Elements(elements)) => return format!("{elements:?}").to_lowercase(),
            Ok(Asked::List(call)) => return format!("{call:?}").to_lowercase(),
            Err(_) => return "(malformed)".to_owned(),
        };
        match operation {
            Operation::Get { key } => format!("get {}", text(key)),
            Operation::Put { key, value } => format!("put {} {}", text(key), text(value)),
            Operation::Del { key } => format!("del {}", text(key)),
            Operation::Cas { key, expected, value } => {
                let expected = expected.map_or_else(|| "nil".to_owned(), text);
                format!("cas {} {expected} {}", text(key), text(value))
            }
            Operation::Incr { key, by } => format!("incr {} {by}", text(key)),
            Operation::Append { key, suffix } => format!("append {} {}", text(key), text(suffix)),
        }
    }

    fn result(&self, result: &[u8]) -> String {
        if let Some(answer) = orders::answer_text(result) {
            return answer;
        }
        match Answer::decode(result) {
            Ok(Answer::Done) => "ok".to_owned(),
            Ok(Answer::Value(value)) => format!("ok {}", text(value)),
            Ok(Answer::Nil) => "nil".to_owned(),
            Ok(Answer::Many(answers)) => {
                let answers: Vec<String> = answers.iter().map(|answer| self.result(answer)).collect();
                format!("[{}]", answers.join(", "))
            }
            Ok(Answer::Failed(why)) => format!("fail {why:?}").to_lowercase(),
            Err(_) => "(malformed)".to_owned(),
        }
    }
}

/// Shows bytes, long ones by their beginning and length.
fn text(bytes: &[u8]) -> String {
    match bytes.get(..12) {
        Some(head) if bytes.len() > 16 => format!("{}..({})", String::from_utf8_lossy(head), bytes.len()),
        _ => String::from_utf8_lossy(bytes).into_owned(),
    }
}

impl KvApp {
    /// Draws an operation on several keys: one that sets some of them, or reads them all; or one that asks for the time.
    fn draw_together(&self, rng: &mut Rng, tag: u64, value: &[u8]) -> Ask {
        let keys = (0..self.together).map(|key| format!("m{key}"));
        let (mut buffer, mut operation) = (Vec::new(), Vec::new());
        let reads = rng.one_in(2);
        if reads {
            Command::GetMany(Items::keys(keys, &mut buffer)).encode(&mut operation);
        } else {
            // Never none: an operation names a key.
            let some = rng.between(1, self.together);
            let pairs = keys
                .take(usize::try_from(some).unwrap_or(1))
                .flat_map(|key| [key.into_bytes(), value.to_vec()]);
            Command::SetMany(Items::pairs(pairs, &mut buffer)).encode(&mut operation);
        }
        let read_only = reads && !rng.one_in(8);
        if reads && !read_only && tag.is_multiple_of(2) {
            operation.clear();
            Further::Time.encode(&mut operation);
        }
        Ask { operation, read_only }
    }
}

fn encode(operation: &Operation<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    bytes
}

fn answer(answer: &Answer<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    answer.encode(&mut bytes);
    bytes
}

impl App for KvApp {
    type Service = Kv;

    fn service(&self) -> Kv {
        Kv
    }

    fn double(&self) -> Box<dyn Double> {
        Box::new(KvDouble::default())
    }

    fn draw(&self, rng: &mut Rng, tag: u64) -> Ask {
        let key = format!("k{}", rng.below(self.keys));
        let counter = format!("n{}", rng.below(self.keys.div_ceil(3)));
        let value = format!("v{tag}");
        let (key, mut value) = (key.as_bytes(), value.into_bytes());
        if self.together > 0 && rng.one_in(8) {
            return self.draw_together(rng, tag, &value);
        }
        if rng.chance(self.reads) {
            let key = if rng.one_in(4) { counter.as_bytes() } else { key };
            return Ask { operation: encode(&Operation::Get { key }), read_only: !rng.one_in(8) };
        }
        let operation = match rng.below(10) {
            0..=3 => encode(&Operation::Incr { key: counter.as_bytes(), by: 1 }),
            4 => encode(&Operation::Del { key }),
            5 => encode(&Operation::Append { key, suffix: &value }),
            6 => {
                let guess = format!("v{}", tag.saturating_sub(rng.between(1, 6)));
                let expected = (!rng.one_in(3)).then_some(guess.as_bytes());
                encode(&Operation::Cas { key, expected, value: &value })
            }
            _ => {
                if rng.one_in(4) {
                    let long = rng.pick(&self.long).unwrap_or(0);
                    // A few bytes around the border, for what the encoding adds.
                    let len = long.saturating_sub(rng.index(24));
                    value.resize(len.max(value.len()), b'.');
                }
                encode(&Operation::Put { key, value: &value })
            }
        };
        Ask { operation, read_only: false }
    }

    fn draw_apart(&self, rng: &mut Rng, tag: u64) -> Vec<u8> {
        let (key, value) = (format!("false{}", rng.below(3)), format!("v{tag}"));
        encode(&Operation::Put { key: key.as_bytes(), value: value.as_bytes() })
    }

    fn parse(&self, text: &str) -> Option<Ask> {
        if let Some(operation) = orders::parse(text) {
            return Some(Ask { read_only: operation == registry::Table::read(), operation });
        }
        if text == "time" {
            let mut operation = Vec::new();
            Further::Time.encode(&mut operation);
            return Some(Ask { operation, read_only: false });
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let operation = match *words.as_slice() {
            ["get", key] => Operation::Get { key: key.as_bytes() },
            ["put", key, value] => Operation::Put { key: key.as_bytes(), value: value.as_bytes() },
            ["del", key] => Operation::Del { key: key.as_bytes() },
            ["incr", key, by] => Operation::Incr { key: key.as_bytes(), by: by.parse().ok()? },
            ["append", key, suffix] => Operation::Append { key: key.as_bytes(), suffix: suffix.as_bytes() },
            ["cas", key, expected, value] => Operation::Cas {
                key: key.as_bytes(),
                expected: (expected != "nil").then_some(expected.as_bytes()),
                value: value.as_bytes(),
            },
            _ => return None,
        };
        Some(Ask { read_only: matches!(operation, Operation::Get { .. }), operation: encode(&operation) })
    }

    fn check(&self, history: &History) -> Result<(), (u64, String)> {
        let mut by_key: BTreeMap<Vec<u8>, History> = BTreeMap::new();
        for call in history {
            let Ok(operation) = Operation::decode(&call.operation) else { continue };
            by_key.entry(key_of(&operation).to_vec()).or_default().push(call.clone());
        }
        for (key, calls) in &by_key {
            if let Err(time) = linearizable::check::<KvKey>(calls) {
                let seen: Vec<String> = calls
                    .iter()
                    .filter(|call| call.invoked <= time)
                    .map(|call| {
                        let shown = self.operation(&call.operation);
                        match &call.returned {
                            Some((at, result)) => {
                                format!(
                                    "  {:>6} to {at:>6}  {shown} -> {}",
                                    call.invoked,
                                    self.result(result)
                                )
                            }
                            None => format!("  {:>6} to      -  {shown}", call.invoked),
                        }
                    })
                    .collect();
                return Err((time, format!("key {} has no order:\n{}", text(key), seen.join("\n"))));
            }
        }
        Ok(())
    }
}

fn key_of<'a>(operation: &Operation<'a>) -> &'a [u8] {
    match operation {
        Operation::Get { key }
        | Operation::Put { key, .. }
        | Operation::Del { key }
        | Operation::Cas { key, .. }
        | Operation::Incr { key, .. }
        | Operation::Append { key, .. } => key,
    }
}

/// One key of the store as the plainest possible machine: returns its value afterwards and the answer.
fn apply(value: Option<&[u8]>, operation: &Operation<'_>) -> (Option<Vec<u8>>, Vec<u8>) {
    let kept = value.map(<[u8]>::to_vec);
    match operation {
        Operation::Get { .. } => {
            let seen = value.map_or(Answer::Nil, Answer::Value);
            (kept, answer(&seen))
        }
        Operation::Put { value, .. } => (Some(value.to_vec()), answer(&Answer::Done)),
        Operation::Del { .. } => {
            let seen = if value.is_some() { Answer::Done } else { Answer::Nil };
            (None, answer(&seen))
        }
        Operation::Cas { expected, value: new, .. } => {
            if value == *expected {
                (Some(new.to_vec()), answer(&Answer::Done))
            } else {
                (kept, answer(&Answer::Failed(Failure::Mismatch)))
            }
        }
        Operation::Incr { by, .. } => {
            let number = match value {
                None => Some(0),
                Some(bytes) => std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<i64>().ok()),
            };
            let Some(number) = number else {
                return (kept, answer(&Answer::Failed(Failure::NotANumber)));
            };
            let Some(sum) = number.checked_add(*by) else {
                return (kept, answer(&Answer::Failed(Failure::Overflow)));
            };
            let sum = sum.to_string().into_bytes();
            let seen = answer(&Answer::Value(&sum));
            (Some(sum), seen)
        }
        Operation::Append { suffix, .. } => {
            let mut longer = kept.unwrap_or_default();
            longer.extend_from_slice(suffix);
            let len = longer.len().to_string();
            (Some(longer), answer(&Answer::Value(len.as_bytes())))
        }
    }
}

/// One key, for the search.
struct KvKey;

impl Model for KvKey {
    type State = Option<Vec<u8>>;
    type Operation = Vec<u8>;
    type Outcome = Vec<u8>;

    fn apply(state: &Self::State, operation: &Vec<u8>, outcome: Option<&Vec<u8>>) -> Option<Self::State> {
        let operation = Operation::decode(operation).ok()?;
        let (next, seen) = apply(state.as_deref(), &operation);
        outcome.is_none_or(|outcome| *outcome == seen).then_some(next)
    }
}

/// The whole store.
#[derive(Default)]
struct KvDouble {
    map: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl KvDouble {
    /// The commands that are drawn.
    #[allow(clippy::wildcard_enum_match_arm, reason = "the drawn ones are listed")]
    fn command(&mut self, command: &Command<'_>) -> Vec<u8> {
        match command {
            Command::SetMany(items) => {
                let items: Vec<&[u8]> = items.iter().collect();
                for pair in items.chunks_exact(2) {
                    self.map.insert(pair[0].to_vec(), pair[1].to_vec());
                }
                answer(&Answer::Done)
            }
            Command::GetMany(items) => {
                // An answer to many is each behind its length.
                let mut many = vec![4];
                for key in items.iter() {
                    let value = self.map.get(key).map_or(Answer::Nil, |value| Answer::Value(value));
                    let one = answer(&value);
                    many.extend_from_slice(&u32::try_from(one.len()).unwrap_or(0).to_le_bytes());
                    many.extend_from_slice(&one);
                }
                many
            }
            other => unreachable!("nobody draws {other:?}"),
        }
    }
}

impl Double for KvDouble {
    fn execute(&mut self, cx: &Context, operation: &[u8]) -> Vec<u8> {
        let operation = match Asked::decode(operation) {
            Ok(Asked::Operation(operation)) => operation,
            Ok(Asked::Command(command)) => return self.command(&command),
            Ok(Asked::Further(Further::Time)) => {
                return answer(&Answer::Value((cx.time_ns / 1000).to_string().as_bytes()));
            }
            Ok(Asked::Further(further)) => unreachable!("nobody draws {further:?}"),
            Ok(Asked::Elements(elements)) => unreachable!("nobody draws {elements:?}"),
            Ok(Asked::List(call)) => unreachable!("nobody draws {call:?}"),
            Err(_) => return answer(&Answer::Failed(Failure::Malformed)),
        };
        let key = key_of(&operation);
        let (value, seen) = apply(self.map.get(key).map(Vec::as_slice), &operation);
        match value {
            Some(value) => self.map.insert(key.to_vec(), value),
            None => self.map.remove(key),
        };
        seen
    }
}

/// The null service: arguments and results of any size, no state.
#[derive(Clone, Debug)]
pub struct NullApp {
    /// Lengths of arguments to choose from, in bytes.
    pub arguments: Vec<usize>,
    /// Lengths of results to choose from, in bytes.
    pub results: Vec<u32>,
}

impl Default for NullApp {
    fn default() -> Self {
        Self { arguments: vec![8, 254, 255, 256, 257, 4096], results: vec![0, 8, 63, 64, 65, 4096] }
    }
}

impl Words for NullApp {
    fn operation(&self, operation: &[u8]) -> String {
        format!("{} bytes", operation.len())
    }

    fn result(&self, result: &[u8]) -> String {
        format!("{} bytes", result.len())
    }
}

impl App for NullApp {
    type Service = Null;

    fn service(&self) -> Null {
        Null
    }

    fn double(&self) -> Box<dyn Double> {
        Box::new(NullDouble)
    }

    fn draw(&self, rng: &mut Rng, _tag: u64) -> Ask {
        let argument = rng.pick(&self.arguments).unwrap_or(0);
        let result = rng.pick(&self.results).unwrap_or(0);
        let read_only = rng.one_in(4);
        let mut operation = Vec::new();
        null::operation(argument, result, read_only, &mut operation);
        Ask { operation, read_only }
    }

    fn draw_apart(&self, rng: &mut Rng, tag: u64) -> Vec<u8> {
        self.draw(rng, tag).operation
    }

    fn parse(&self, text: &str) -> Option<Ask> {
        let (argument, result) = text.split_once('/')?;
        let mut operation = Vec::new();
        null::operation(argument.parse().ok()?, result.parse().ok()?, false, &mut operation);
        Some(Ask { operation, read_only: false })
    }

    fn check(&self, _history: &History) -> Result<(), (u64, String)> {
        Ok(()) // no state: every order will do
    }
}

struct NullDouble;

impl Double for NullDouble {
    fn execute(&mut self, _cx: &Context, operation: &[u8]) -> Vec<u8> {
        let len = operation.first_chunk::<4>().map_or(0, |len| u32::from_le_bytes(*len));
        vec![0; usize::try_from(len).unwrap_or(0)]
    }
}
