//! A client of a typed service.

use std::marker::PhantomData;
use std::path::Path;
use std::time::Duration;

use quorate_node::caller::Options;
use quorate_node::{CallError, Caller, RequestId, Trouble};

use crate::service::{Answer, Family, Operation as _};
use crate::value;

/// Why a call has no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Nothing was done, and why: the call failed in the service and was undone, or never left.
    Refused(String),
    /// No answer came in time. It may have been done, or may be done yet; [`Client::outcome`] tells later.
    Unknown {
        /// Which call.
        request: RequestId,
    },
    /// It was done, but its reply was too long to be kept and got lost on its way.
    ReplyLost,
    /// The outcome of a call that is not known any more.
    Forgotten,
    /// The cluster runs another service.
    OtherService,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(why) => write!(f, "refused: {why}"),
            Self::Unknown { request } => CallError::Unknown { request: *request }.fmt(f),
            Self::ReplyLost => CallError::ResultLost.fmt(f),
            Self::Forgotten => CallError::Forgotten.fmt(f),
            Self::OtherService => f.write_str("the cluster runs another service"),
        }
    }
}

impl std::error::Error for Error {}

impl From<CallError> for Error {
    #[allow(clippy::wildcard_enum_match_arm, reason = "refusals are told by their text")]
    fn from(error: CallError) -> Self {
        match error {
            CallError::Unknown { request } | CallError::Overtaken { request } => Self::Unknown { request },
            CallError::ResultLost => Self::ReplyLost,
            CallError::Forgotten => Self::Forgotten,
            // Nothing was done: too long, too busy, closed, and what may come to be.
            _ => Self::Refused(error.to_string()),
        }
    }
}

/// A client of the service `F`, shared by threads and tasks. Each call is under way in a lane of its own;
/// a reply is one that enough replicas agree on.
#[derive(Debug)]
pub struct Client<F> {
    caller: Caller,
    service: PhantomData<fn() -> F>,
}

impl<F: Family> Client<F> {
    /// Opens the client in `dir`, as `init` made it, with 64 lanes and ten seconds for a call.
    ///
    /// # Errors
    ///
    /// A file is missing, wrong, or can be read by others; a port is taken; another process uses the
    /// identity.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, Trouble> {
        Ok(Self::new(Caller::open(dir.as_ref(), Options::default())?))
    }

    /// Returns the client of this service that calls through `caller`.
    pub fn new(caller: Caller) -> Self {
        Self { caller, service: PhantomData }
    }

    /// Has an operation done, and waits for the reply.
    ///
    /// # Errors
    ///
    /// There is no reply: see [`Error`].
    pub fn call(&self, operation: &F::Operation) -> Result<F::Reply, Error> {
        read::<F>(self.caller.call(&value::encode(operation), operation.is_read_only()))
    }

    /// Has an operation done. It is under way at once, whether or not the future is awaited; any executor
    /// will do.
    pub fn call_async(
        &self,
        operation: &F::Operation,
    ) -> impl Future<Output = Result<F::Reply, Error>> + Send + use<F> {
        let pending = self.caller.submit(value::encode(operation), operation.is_read_only());
        async move { read::<F>(pending.await) }
    }

    /// Returns the reply to a call whose outcome was unknown, waiting for it up to `within`.
    ///
    /// # Errors
    ///
    /// It still is unknown, or not known any more.
    pub fn outcome(&self, request: RequestId, within: Duration) -> Result<F::Reply, Error> {
        read::<F>(self.caller.outcome(request, within))
    }
}

fn read<F: Family>(outcome: Result<Vec<u8>, CallError>) -> Result<F::Reply, Error> {
    match Answer::decode(&outcome?) {
        Some(Answer::Reply(reply)) => Ok(reply),
        Some(Answer::Refused(why)) => Err(Error::Refused(why)),
        None => Err(Error::OtherService),
    }
}
