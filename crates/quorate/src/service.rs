//! The traits of a typed service, and its adapter to [`quorate_service::Service`].

use std::cell::Cell;
use std::marker::PhantomData;

use quorate_service::{Access, Context, Stop, View};
use quorate_wire::ClientId;

use crate::panics;
use crate::state::{Paged, Pages, State, StateError};
use crate::value::{self, Value};

/// An operation of a service. Derived for enums; `#[read_only]` marks the variants that change nothing.
pub trait Operation: Value {
    /// Returns whether it changes nothing. Such an operation is first executed without ordering, which is faster. If
    /// it does write, it is ordered.
    fn is_read_only(&self) -> bool;
}

/// A deterministic service: equal operations on equal states give equal replies and equal new states.
pub trait Service {
    /// The operations.
    type Operation: Operation;
    /// The replies. If this is a `Result`, an `Err` undoes every write of the call.
    type Reply: Value;

    /// Executes an operation.
    ///
    /// A panic in this function is caught and undone. Every replica answers it as a refusal with the same text. If the
    /// state is full or cannot be read, the call ends in the same way, in the middle of this function. All this needs
    /// `panic = "unwind"`, which is the default of Cargo.
    fn execute(&mut self, operation: &Self::Operation, call: &Call) -> Self::Reply;

    /// Declares the keys that an operation reads and writes, and whether it takes long, for replicas with the setting
    /// `workers`. Two long operations that share no key may be executed at the same time. [`key_of`] makes keys.
    ///
    /// The default declares that each operation may touch anything, and so does a panic in this function. An operation
    /// that adds an entry to a [`Map`] or removes one also writes the map's length, so such operations need a common
    /// key.
    ///
    /// [`Map`]: crate::Map
    fn access(_operation: &Self::Operation, keys: &mut Access) {
        keys.everything();
    }

    /// Checks the invariants of the state. The simulator calls it after each operation.
    ///
    /// # Errors
    ///
    /// A broken invariant.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Returns a key for [`Service::access`]. Equal values have equal keys.
pub fn key_of(value: &impl Value) -> u64 {
    // FNV-1a. Different values may share a key, which only makes operations wait for each other.
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    value::encode(value).iter().fold(0xcbf2_9ce4_8422_2325, fold)
}

/// A service over any storage of its state. Derived with [`State`].
#[doc(hidden)]
pub trait Family: Service + 'static {
    /// The service over these pages.
    type At<'a>: State<'a> + Service<Operation = Self::Operation, Reply = Self::Reply>;
}

/// The inputs of an execution other than the operation and the state.
#[derive(Clone, Debug)]
pub struct Call {
    cx: Context,
    asked_time: Cell<bool>,
}

impl Call {
    pub(crate) fn new(cx: Context) -> Self {
        Self { cx, asked_time: Cell::new(false) }
    }

    /// Returns the calling client.
    pub fn client(&self) -> ClientId {
        self.cx.client
    }

    /// Returns the agreed time, in nanoseconds since 1970. It never goes back. A read that is not ordered gets the
    /// time of the last ordered call.
    pub fn time_ns(&self) -> u64 {
        self.asked_time.set(true);
        self.cx.time_ns
    }

    /// Returns a number that differs in each call, and is the same at every replica. It is not secret, and the primary
    /// can influence it.
    pub fn seed(&self) -> u64 {
        self.asked_time.set(true);
        let mixed = self.cx.time_ns ^ self.cx.seq.0.rotate_left(32) ^ u64::from(self.cx.index);
        value::Dice::new(mixed).below(u64::MAX)
    }

    /// Whether the operation depends on the time, which clients do not know.
    #[cfg(feature = "sim")]
    pub(crate) fn asked_time(&self) -> bool {
        self.asked_time.get()
    }
}

/// An answer of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<R> {
    /// Its reply.
    Reply(R),
    /// The call was refused and undone, with the reason.
    Refused(String),
}

const REPLY: u8 = 0;
const REFUSED: u8 = 1;

impl<R: Value> Answer<R> {
    /// Decodes all of `bytes`.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        match *kind {
            REPLY => value::decode_all(rest).map(Self::Reply),
            REFUSED => value::decode_all(rest).map(Self::Refused),
            _ => None,
        }
    }
}

/// The beginning of the refusal of a call in which the service panicked.
pub(crate) const PANICKED: &str = "the service failed: ";

/// Executes an operation on a state, and catches panics. Appends the answer, and returns whether to undo the writes.
pub(crate) fn perform<'a, F: Family>(
    pages: Pages<'a>,
    operation: &[u8],
    call: &Call,
    out: &mut Vec<u8>,
) -> bool {
    let Some(operation) = value::decode_all::<F::Operation>(operation) else {
        return refuse("not an operation of this service", out);
    };
    let mut state = F::At::<'a>::open(pages);
    match panics::catch(|| state.execute(&operation, call)) {
        Ok(reply) => {
            let (undone, start) = (reply.is_refusal(), out.len());
            out.push(REPLY);
            if !value::encode_within(&reply, out) {
                out.truncate(start);
                return refuse(StateError::TooDeep.text(), out);
            }
            undone
        }
        Err(panic) => {
            if let Some(error) = panic.downcast_ref::<StateError>() {
                return refuse(error.text(), out);
            }
            refuse(&format!("{PANICKED}{}", panics::text(&*panic)), out)
        }
    }
}

/// Appends a refusal. Returns that the writes are undone.
fn refuse(why: &str, out: &mut Vec<u8>) -> bool {
    out.push(REFUSED);
    why.to_owned().encode(out);
    true
}

/// The adapter of a typed service for the replicas.
pub struct Typed<F>(PhantomData<fn() -> F>);

impl<F> Typed<F> {
    /// Returns the service.
    pub fn new() -> Self {
        Self(PhantomData)
    }
}

impl<F> Default for Typed<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F> Clone for Typed<F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for Typed<F> {}

impl<F> std::fmt::Debug for Typed<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(std::any::type_name::<F>())
    }
}

impl<F: Family> quorate_service::Service for Typed<F> {
    fn is_read_only(&self, operation: &[u8]) -> bool {
        value::decode_all::<F::Operation>(operation).is_some_and(|operation| operation.is_read_only())
    }

    fn access(&self, operation: &[u8], keys: &mut Access) {
        // A panic must not stop the replica: any client can send the operation.
        let declare = |operation| panics::catch(|| F::access(&operation, keys)).ok();
        if value::decode_all::<F::Operation>(operation).and_then(declare).is_none() {
            keys.everything();
        }
    }

    fn execute(
        &self,
        cx: Context,
        operation: &[u8],
        state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let paged = Paged::new(state);
        let start = out.len();
        let mut undone = perform::<F>(Pages::new(&paged), operation, &Call::new(cx), out);
        match paged.trouble() {
            None => {}
            Some(StateError::Stop(stop)) => {
                out.truncate(start);
                return Err(stop);
            }
            // Whatever the service has made of it.
            Some(trouble) => {
                out.truncate(start);
                undone = refuse(trouble.text(), out);
            }
        }
        if undone { Err(Stop::Refused) } else { Ok(()) }
    }
}
