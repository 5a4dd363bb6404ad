//! The file system as a service: a call in, a reply out [RFC5531, RFC1813].

use alloc::vec::Vec;

use quorate_service::{Context, Service, Stop, View};

use crate::nfs3::mount3::{self, MountCall, MountReply};
use crate::nfs3::operation::Operation;
use crate::nfs3::reply_cache::CallId;
use crate::nfs3::{self, Call, Face, Procedure, Reply, Stat};
use crate::op::Op;
use crate::rpc::xdr::{self, Reader, Xdr};
use crate::rpc::{self, AuthStat, AuthSys, CallHead, Credential, RPC_VERSION, ReplyHead, Status};
use crate::settings::{Atime, Settings, SettingsError};
use crate::volume::Volume;
use crate::volume::later::{Later, LaterKind};
use crate::volume::redo::redo;

/// The file system.
#[derive(Clone, Debug)]
pub struct Fs {
    settings: Settings,
}

/// A call of one of the two programs.
pub(super) enum AnyCall<'a> {
    Nfs(Call<'a>),
    Mount(MountCall<'a>),
}

/// A procedure of one of the two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnyProcedure {
    Nfs(Procedure),
    Mount(mount3::Procedure),
}

/// What a gateway needs to know of a valid call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Examined {
    /// Its number.
    pub(super) xid: u32,
    pub(super) procedure: AnyProcedure,
    /// Whether it may be served without ordering.
    pub(super) read_only: bool,
}

impl AnyProcedure {
    /// Appends the reply to a call that fails with `stat`, or for a reason that the procedure has no status for.
    pub(super) fn fail(self, xid: u32, stat: Option<Stat>, out: &mut Vec<u8>) {
        match (self, stat) {
            (Self::Nfs(procedure), Some(stat)) => {
                ReplyHead { xid, status: Status::Success }.encode(out);
                if let Some(failed) = Reply::failed(procedure, stat) {
                    failed.encode(out);
                }
            }
            (Self::Mount(mount3::Procedure::Mnt), Some(stat)) => {
                ReplyHead { xid, status: Status::Success }.encode(out);
                MountReply::Failed(stat.into()).encode(out);
            }
            (Self::Nfs(_), None) | (Self::Mount(_), _) => {
                ReplyHead { xid, status: Status::SystemErr }.encode(out);
            }
        }
    }
}

impl<'a> AnyCall<'a> {
    /// Decodes the arguments of a call, or returns why it is invalid.
    fn decode(head: &CallHead<'_>, args: &'a [u8]) -> Result<Self, Status> {
        if head.program == nfs3::PROGRAM {
            let procedure = Procedure::from_number(head.procedure).ok_or(Status::ProcUnavail)?;
            return Call::decode(procedure, args).map(Self::Nfs).map_err(|_| Status::GarbageArgs);
        }
        let procedure = mount3::Procedure::from_number(head.procedure).ok_or(Status::ProcUnavail)?;
        MountCall::decode(procedure, args).map(Self::Mount).map_err(|_| Status::GarbageArgs)
    }

    fn procedure(&self) -> AnyProcedure {
        match self {
            Self::Nfs(call) => AnyProcedure::Nfs(call.procedure()),
            Self::Mount(call) => AnyProcedure::Mount(call.procedure()),
        }
    }

    /// Returns whether a client makes such calls before it acts for a user: all of MOUNT, and those on the root at
    /// mount time.
    fn needs_no_credential(&self) -> bool {
        match self {
            Self::Nfs(call) => {
                matches!(call, Call::Null(()) | Call::GetAttr(_) | Call::FsInfo(_) | Call::PathConf(_))
            }
            Self::Mount(_) => true,
        }
    }
}

/// A decoded call.
pub(super) struct Request<'a> {
    head: CallHead<'a>,
    auth: Option<AuthSys<'a>>,
    pub(super) call: AnyCall<'a>,
}

impl Fs {
    /// Returns a file system with these settings.
    ///
    /// # Errors
    ///
    /// A rule that they break.
    pub fn new(settings: Settings) -> Result<Self, SettingsError> {
        settings.check()?;
        Ok(Self { settings })
    }

    /// Returns the settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the reply to a call that needs no state: it is invalid, or not for this service. The reply is empty if
    /// there is no caller to answer.
    pub fn immediate(&self, call: &[u8]) -> Option<Vec<u8>> {
        self.examine(call).err()
    }

    /// Returns what a gateway needs to know of a call, or the reply of [`Self::immediate`].
    pub(super) fn examine(&self, call: &[u8]) -> Result<Examined, Vec<u8>> {
        match self.understand(call) {
            Ok(request) => Ok(Examined {
                xid: request.head.xid,
                procedure: request.call.procedure(),
                read_only: self.is_read(&request.call),
            }),
            Err(reply) => Err(reply.map(|reply| xdr::encode(&reply)).unwrap_or_default()),
        }
    }

    /// Returns whether a call may be served without ordering.
    fn is_read(&self, call: &AnyCall<'_>) -> bool {
        match call {
            AnyCall::Nfs(call) => {
                let kind = call.procedure().kind();
                // Strict access times: every read of content changes the state.
                self.settings.read_only.has(kind)
                    && kind.reads()
                    && !(kind.reads_content() && self.settings.atime == Atime::Strict)
            }
            AnyCall::Mount(call) => call.reads(),
        }
    }

    /// Decodes a call. An invalid one gets its answer here, independently of the state.
    pub(super) fn understand<'a>(&self, call: &'a [u8]) -> Result<Request<'a>, Option<ReplyHead>> {
        let mut r = Reader::new(call);
        let head = CallHead::decode(&mut r).map_err(|_| {
            // Without a number there is nobody to answer, and an answer is not answered.
            let xid = xdr::decode(call.get(..4).unwrap_or_default()).ok()?;
            if !rpc::is_call(call) {
                return None;
            }
            Some(ReplyHead { xid, status: Status::GarbageArgs })
        })?;
        let refuse = |status| Some(ReplyHead { xid: head.xid, status });
        if head.rpc_version != RPC_VERSION {
            return Err(refuse(Status::RpcMismatch(RPC_VERSION, RPC_VERSION)));
        }
        let version = match head.program {
            nfs3::PROGRAM => nfs3::VERSION,
            mount3::PROGRAM => mount3::VERSION,
            _ => return Err(refuse(Status::ProgUnavail)),
        };
        if head.version != version {
            return Err(refuse(Status::ProgMismatch(version, version)));
        }
        let call = AnyCall::decode(&head, r.rest()).map_err(refuse)?;
        let auth = match head.credential.credential() {
            Credential::Sys(auth) => Some(auth),
            Credential::None if self.settings.auth_none || call.needs_no_credential() => None,
            Credential::Malformed => return Err(refuse(Status::AuthError(AuthStat::BadCred))),
            Credential::None | Credential::Other(_) => {
                if !matches!(call, AnyCall::Nfs(Call::Null(())) | AnyCall::Mount(MountCall::Null)) {
                    return Err(refuse(Status::AuthError(AuthStat::TooWeak)));
                }
                None
            }
        };
        Ok(Request { head, auth, call })
    }

    fn answer(
        &self,
        cx: Context,
        operation: &Operation<'_>,
        request: &Request<'_>,
        state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let mut volume = Volume::open(&self.settings, &cx, state)?;
        let changes = match &request.call {
            AnyCall::Nfs(call) => !call.procedure().kind().reads(),
            // A call of MOUNT that comes again changes nothing more.
            AnyCall::Mount(_) => false,
        };
        let id = changes.then(|| {
            let body = operation.call.get(4..).unwrap_or_default();
            CallId::new(operation.address, request.head.xid, request.head.procedure, body)
        });
        if volume.is_on_cells() {
            if matches!(request.call, AnyCall::Mount(_)) {
                volume.needs_pages()?;
            }
            let id = id.as_ref().map(CallId::encode).unwrap_or_default();
            volume.postpone(LaterKind::Begin, &[&id]);
        } else if let Some(id) = &id {
            if cx.read_only {
                return Err(Stop::NeedsOrder);
            }
            if id.repeat(&volume, out)? {
                return Ok(());
            }
        }
        ReplyHead { xid: request.head.xid, status: Status::Success }.encode(out);
        let user = request.auth.as_ref().map(Into::into);
        let mut face = Face { op: Op::new(&mut volume, operation.address, user) };
        match &request.call {
            AnyCall::Nfs(call) => call.answer(&mut face, out)?,
            AnyCall::Mount(call) => call.answer(&mut face, out)?,
        }
        id.map_or(Ok(()), |id| id.keep(&mut volume, out))
    }
}

impl Service for Fs {
    fn redo(&self, cx: Context, change: &[u8], state: &mut View<'_>) -> Result<bool, Stop> {
        let later = Later::decode(change)?;
        let mut volume = Volume::resume(&self.settings, &cx, state)?;
        match later.kind {
            LaterKind::Begin if !volume.is_in_time()? => Ok(false),
            LaterKind::Begin if later.bytes.is_empty() => Ok(true),
            LaterKind::Begin => Ok(!CallId::decode(later.bytes)?.0.repeat(&volume, &mut Vec::new())?),
            LaterKind::Keep => {
                let (id, reply) = CallId::decode(later.bytes)?;
                id.keep(&mut volume, reply).map(|()| true)
            }
            LaterKind::Tick
            | LaterKind::Charge
            | LaterKind::Write
            | LaterKind::Free
            | LaterKind::Clear
            | LaterKind::Space
            | LaterKind::Inodes
            | LaterKind::Quota
            | LaterKind::Room
            | LaterKind::QuotaRoom => redo(&mut volume, &later),
        }
    }

    fn is_read_only(&self, operation: &[u8]) -> bool {
        let Some(operation) = Operation::decode(operation) else { return true };
        self.understand(operation.call).map_or(true, |request| self.is_read(&request.call))
    }

    fn execute(
        &self,
        cx: Context,
        operation: &[u8],
        state: &mut View<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        // Bytes that are not an operation get no answer: there is no number to put on it.
        let Some(operation) = Operation::decode(operation) else { return Err(Stop::Refused) };
        let request = match self.understand(operation.call) {
            Ok(request) => request,
            Err(reply) => {
                if let Some(reply) = reply {
                    reply.encode(out);
                }
                return Err(Stop::Refused);
            }
        };
        let done = self.answer(cx, &operation, &request, state, out);
        if done == Err(Stop::Refused) {
            // The space that had been seen was not enough: everything is undone.
            out.clear();
            let stat = match request.call {
                AnyCall::Nfs(_) => Some(Stat::NoSpc),
                AnyCall::Mount(_) => None,
            };
            request.call.procedure().fail(request.head.xid, stat, out);
        }
        done
    }
}
