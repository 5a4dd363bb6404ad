//! A client of a typed service.

use std::marker::PhantomData;
use std::path::Path;
use std::time::Duration;

use quorate_node::caller::CallerOptions;
use quorate_node::{CallError, Caller, NodeError, RequestId};

use crate::service::{Answer, Family, Operation as _};
use crate::value;

/// Why a call has no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Nothing was changed, with the reason: the service refused and undid the call, or it was never sent.
    Refused(String),
    /// The call timed out, and may or may not take effect; [`Client::outcome`] tells later.
    Unknown {
        /// The call.
        request: RequestId,
    },
    /// The call took effect, but its reply was too long to be stored and was lost on its way.
    ReplyLost,
    /// The outcome of the call is no longer known.
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
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "all other errors are refusals, described by their text"
    )]
    fn from(error: CallError) -> Self {
        match error {
            CallError::Unknown { request } | CallError::Overtaken { request } => Self::Unknown { request },
            CallError::ResultLost => Self::ReplyLost,
            CallError::Forgotten => Self::Forgotten,
            // Nothing was changed: too long, overloaded, closed, and future variants.
            _ => Self::Refused(error.to_string()),
        }
    }
}

/// A client of the service `F`, shared by threads and tasks. Each call uses its own lane. A reply is accepted when
/// enough replicas agree on it.
#[derive(Debug)]
pub struct Client<F> {
    caller: Caller,
    service: PhantomData<fn() -> F>,
}

impl<F: Family> Client<F> {
    /// Opens the client in `dir`, made by `init`, with 64 lanes and a deadline of ten seconds.
    ///
    /// # Errors
    ///
    /// A file is missing, invalid, or accessible to other users; a port is taken; another process uses this client.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, NodeError> {
        Ok(Self::new(Caller::open(dir.as_ref(), CallerOptions::default())?))
    }

    /// Returns the client of this service that calls through `caller`.
    pub fn new(caller: Caller) -> Self {
        Self { caller, service: PhantomData }
    }

    /// Runs an operation, and waits for the reply.
    ///
    /// # Errors
    ///
    /// There is no reply: see [`Error`].
    pub fn call(&self, operation: &F::Operation) -> Result<F::Reply, Error> {
        read::<F>(self.caller.call(&value::encode(operation), operation.is_read_only()))
    }

    /// Runs an operation. It starts immediately, even if the future is never awaited. Works with any executor.
    pub fn call_async(
        &self,
        operation: &F::Operation,
    ) -> impl Future<Output = Result<F::Reply, Error>> + Send + use<F> {
        let pending = self.caller.submit(value::encode(operation), operation.is_read_only());
        async move { read::<F>(pending.await) }
    }

    /// Returns the reply to a call whose outcome was unknown, after waiting for up to `within`.
    ///
    /// # Errors
    ///
    /// The outcome is still unknown, or no longer known.
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
