//! Remote procedure calls: the head of a call and of a reply [RFC 5531].
//!
//! A call names its program, version and procedure, and the user. `AUTH_SYS` is a claim without proof: the sender of the
//! call is trusted for the numbers in it.

use alloc::vec::Vec;

pub mod record;
pub mod xdr;

use crate::rpc::xdr::{Decoded, Opaque, Reader, Xdr, XdrError, xdr_struct};

/// The RPC version.
pub const RPC_VERSION: u32 = 2;
/// Maximum length of the body of a credential or verifier, in bytes.
pub const AUTH_BYTES_MAX: usize = 400;
/// Maximum number of groups in an `AUTH_SYS` credential, in addition to the first.
pub const GROUPS_MAX: usize = 16;
/// Maximum length of the head of a call, in bytes: six numbers, two authenticators.
pub const CALL_HEAD_BYTES_MAX: usize = 24 + 2 * (8 + AUTH_BYTES_MAX);

const CALL: u32 = 0;
const REPLY: u32 = 1;
const MSG_ACCEPTED: u32 = 0;
const MSG_DENIED: u32 = 1;
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;

/// The claimed identity of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential<'a> {
    /// Anonymous.
    None,
    /// A user with groups on a machine.
    Sys(AuthSys<'a>),
    /// An unknown flavour.
    Other(u32),
    /// The body does not match its flavour.
    Malformed,
}

/// The body of an `AUTH_SYS` credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthSys<'a> {
    /// A number that the client chooses.
    pub stamp: u32,
    /// The caller's machine.
    pub machine: Opaque<'a, 255>,
    /// The user.
    pub uid: u32,
    /// The first group.
    pub gid: u32,
    /// Further groups, at most [`GROUPS_MAX`].
    pub gids: Vec<u32>,
}

impl<'a> Xdr<'a> for AuthSys<'a> {
    fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let (stamp, machine) = (r.u32()?, Opaque::decode(r)?);
        let (uid, gid, count) = (r.u32()?, r.u32()?, r.u32()?);
        if usize::try_from(count).is_ok_and(|count| count <= GROUPS_MAX) {
            let gids = (0..count).map(|_| r.u32()).collect::<Decoded<_>>()?;
            Ok(Self { stamp, machine, uid, gid, gids })
        } else {
            Err(XdrError::TooLong)
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.stamp.encode(out);
        self.machine.encode(out);
        self.uid.encode(out);
        self.gid.encode(out);
        crate::rpc::xdr::put_len(out, self.gids.len());
        numbers(&self.gids, out);
    }
}

xdr_struct! {
    /// A credential or a verifier in its encoding.
    pub struct OpaqueAuth<'a> {
        /// Its flavour.
        pub flavor: u32,
        /// Its body.
        pub body: Opaque<'a, AUTH_BYTES_MAX>,
    }
}

impl<'a> OpaqueAuth<'a> {
    /// The empty authenticator.
    pub const NONE: Self = Self { flavor: AUTH_NONE, body: Opaque(&[]) };

    /// Returns an authenticator with an [`AuthSys`] as its body.
    pub fn sys(body: &'a [u8]) -> Self {
        Self { flavor: AUTH_SYS, body: Opaque(body) }
    }

    /// Decodes it.
    pub fn credential(&self) -> Credential<'a> {
        match self.flavor {
            AUTH_NONE => Credential::None,
            AUTH_SYS => crate::rpc::xdr::decode(self.body.0).map_or(Credential::Malformed, Credential::Sys),
            other => Credential::Other(other),
        }
    }
}

/// Says whether a message says that it is a call, or is too short to say.
pub(crate) fn is_call(message: &[u8]) -> bool {
    message.get(4..8).is_none_or(|direction| direction == CALL.to_be_bytes())
}

/// The head of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallHead<'a> {
    /// The client's number for the call, which its reply repeats.
    pub xid: u32,
    /// The RPC version: [`RPC_VERSION`], unless the caller uses another one.
    pub rpc_version: u32,
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// Its procedure.
    pub procedure: u32,
    /// The credential.
    pub credential: OpaqueAuth<'a>,
    /// The verifier, which `AUTH_SYS` does not have.
    pub verifier: OpaqueAuth<'a>,
}

impl<'a> Xdr<'a> for CallHead<'a> {
    /// After a head of another RPC version nothing can be decoded: program, version and procedure are zero then, and
    /// the credential is empty.
    fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let (xid, direction, rpc_version) = (r.u32()?, r.u32()?, r.u32()?);
        if direction != CALL {
            return Err(XdrError::Invalid);
        }
        let mut head = Self::new(xid, 0, 0, 0);
        head.rpc_version = rpc_version;
        if rpc_version == RPC_VERSION {
            (head.program, head.version, head.procedure) = (r.u32()?, r.u32()?, r.u32()?);
            head.credential = OpaqueAuth::decode(r)?;
            head.verifier = OpaqueAuth::decode(r)?;
        }
        Ok(head)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let head = [self.xid, CALL, self.rpc_version, self.program, self.version, self.procedure];
        numbers(&head, out);
        self.credential.encode(out);
        self.verifier.encode(out);
    }
}

impl CallHead<'_> {
    /// Returns the head of an anonymous call.
    pub fn new(xid: u32, program: u32, version: u32, procedure: u32) -> Self {
        Self {
            xid,
            rpc_version: RPC_VERSION,
            program,
            version,
            procedure,
            credential: OpaqueAuth::NONE,
            verifier: OpaqueAuth::NONE,
        }
    }
}

/// The RPC status of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The procedure's result follows.
    Success,
    /// There is no such program.
    ProgUnavail,
    /// The program has other versions: the lowest and the highest.
    ProgMismatch(u32, u32),
    /// The program has no such procedure.
    ProcUnavail,
    /// The arguments do not match the procedure.
    GarbageArgs,
    /// It failed for reasons that the procedure has no status for.
    SystemErr,
    /// The call has another RPC version than these.
    RpcMismatch(u32, u32),
    /// The credential is not accepted.
    AuthError(AuthStat),
}

/// Why a credential is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthStat {
    /// It cannot be decoded.
    BadCred,
    /// Its flavour is too weak.
    TooWeak,
}

impl AuthStat {
    fn number(self) -> u32 {
        match self {
            Self::BadCred => 1,
            Self::TooWeak => 5,
        }
    }
}

/// The head of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHead {
    /// The number of the call.
    pub xid: u32,
    /// The status.
    pub status: Status,
}

impl Xdr<'_> for ReplyHead {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        let (xid, direction, stat) = (r.u32()?, r.u32()?, r.u32()?);
        if direction != REPLY {
            return Err(XdrError::Invalid);
        }
        let status = match stat {
            MSG_ACCEPTED => {
                OpaqueAuth::decode(r)?;
                match r.u32()? {
                    0 => Status::Success,
                    1 => Status::ProgUnavail,
                    2 => Status::ProgMismatch(r.u32()?, r.u32()?),
                    3 => Status::ProcUnavail,
                    4 => Status::GarbageArgs,
                    5 => Status::SystemErr,
                    _ => return Err(XdrError::Invalid),
                }
            }
            MSG_DENIED => match (r.u32()?, r.u32()?) {
                (0, low) => Status::RpcMismatch(low, r.u32()?),
                (1, 1) => Status::AuthError(AuthStat::BadCred),
                (1, 5) => Status::AuthError(AuthStat::TooWeak),
                _ => return Err(XdrError::Invalid),
            },
            _ => return Err(XdrError::Invalid),
        };
        Ok(Self { xid, status })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        self.xid.encode(out);
        REPLY.encode(out);
        let accepted = match self.status {
            Status::Success => 0,
            Status::ProgUnavail => 1,
            Status::ProgMismatch(..) => 2,
            Status::ProcUnavail => 3,
            Status::GarbageArgs => 4,
            Status::SystemErr => 5,
            Status::RpcMismatch(low, high) => {
                return numbers(&[MSG_DENIED, 0, low, high], out);
            }
            Status::AuthError(stat) => {
                return numbers(&[MSG_DENIED, 1, stat.number()], out);
            }
        };
        MSG_ACCEPTED.encode(out);
        OpaqueAuth::NONE.encode(out);
        u32::encode(&accepted, out);
        if let Status::ProgMismatch(low, high) = self.status {
            low.encode(out);
            high.encode(out);
        }
    }
}

fn numbers(numbers: &[u32], out: &mut Vec<u8>) {
    for number in numbers {
        number.encode(out);
    }
}

/// Bytes of the head of a reply that succeeded.
pub const SUCCESS_HEAD_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::xdr::{decode, encode};

    /// The bytes of a call from a kernel: GETATTR without a credential.
    #[test]
    fn a_call_as_on_the_wire() {
        let head = CallHead::new(0x1234_5678, 100_003, 3, 1);
        let bytes = encode(&head);
        assert_eq!(bytes[..12], [0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(bytes[12..24], [0, 1, 0x86, 0xa3, 0, 0, 0, 3, 0, 0, 0, 1]);
        assert_eq!(bytes[24..], [0; 16]);
        assert_eq!(decode(&bytes), Ok(head));
    }

    #[test]
    fn auth_sys_has_sixteen_groups_at_most() {
        let mut auth =
            AuthSys { stamp: 7, machine: Opaque(b"host"), uid: 1, gid: 2, gids: (0..16).collect() };
        assert_eq!(decode(&encode(&auth)), Ok(auth.clone()));
        auth.gids.push(16);
        assert_eq!(decode::<AuthSys<'_>>(&encode(&auth)), Err(XdrError::TooLong));
        let body = encode(&auth);
        assert_eq!(OpaqueAuth::sys(&body).credential(), Credential::Malformed);
        assert_eq!(OpaqueAuth { flavor: 6, body: Opaque(&[]) }.credential(), Credential::Other(6));
    }

    #[test]
    fn every_reply_head_has_its_encoding() {
        for status in [
            Status::Success,
            Status::ProgUnavail,
            Status::ProgMismatch(3, 3),
            Status::ProcUnavail,
            Status::GarbageArgs,
            Status::SystemErr,
            Status::RpcMismatch(2, 2),
            Status::AuthError(AuthStat::BadCred),
            Status::AuthError(AuthStat::TooWeak),
        ] {
            let head = ReplyHead { xid: 9, status };
            assert_eq!(decode(&encode(&head)), Ok(head));
        }
        assert_eq!(encode(&ReplyHead { xid: 9, status: Status::Success }).len(), SUCCESS_HEAD_BYTES);
    }
}
