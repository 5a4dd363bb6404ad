//! MOUNT version 3: how a client gets its first handle [RFC1813, appendix I].
#![allow(missing_docs, reason = "fields and variants are those of the RFC")]

use alloc::vec::Vec;

use crate::nfs3::{Fh, HANDLE_BYTES_MAX};
use crate::rpc::xdr::{Decoded, Opaque, Reader, Xdr, XdrError, put_len, xdr_enum, xdr_struct};
use crate::settings::Export;

/// The program's number.
pub const PROGRAM: u32 = 100_005;
/// Its version.
pub const VERSION: u32 = 3;
/// Maximum length of a path, in bytes.
pub const PATH_BYTES_MAX: usize = 1024;
const _: () = assert!(Export::PATH_BYTES_MAX <= PATH_BYTES_MAX, "every export can be mounted");
/// Maximum length of the name of a machine or group, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// The accepted flavours: `AUTH_SYS`.
pub const FLAVORS: [u32; 1] = [1];

/// The path of a directory.
pub type Path<'a> = Opaque<'a, PATH_BYTES_MAX>;
/// The name of a machine or of a group of machines.
pub type MountName<'a> = Opaque<'a, NAME_BYTES_MAX>;

xdr_enum! {
    /// A procedure of the program.
    pub enum Procedure {
        Null = 0,
        Mnt = 1,
        Dump = 2,
        Umnt = 3,
        UmntAll = 4,
        Export = 5,
    }

    /// How a mount failed.
    pub enum MountStat {
        Perm = 1,
        NoEnt = 2,
        Io = 5,
        Access = 13,
        NotDir = 20,
        Inval = 22,
        NameTooLong = 63,
        NotSupp = 10004,
        ServerFault = 10006,
    }
}

xdr_struct! {
    /// A mount that a client has reported.
    pub struct MountEntry<'a> {
        pub host: MountName<'a>,
        pub dir: Path<'a>,
    }

    /// A directory that can be mounted, with its groups.
    pub struct ExportEntry<'a> {
        pub dir: Path<'a>,
        pub groups: Vec<MountName<'a>>,
    }
}

/// The result of MNT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountReply<'a> {
    Done { handle: Fh<'a>, flavors: Vec<u32> },
    Failed(MountStat),
}

impl<'a> Xdr<'a> for MountReply<'a> {
    fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let stat = r.u32()?;
        if stat != 0 {
            return MountStat::from_number(stat).map(Self::Failed).ok_or(XdrError::Invalid);
        }
        let handle = Opaque(r.opaque(HANDLE_BYTES_MAX)?);
        let count = usize::try_from(r.u32()?).unwrap_or(usize::MAX);
        if count > r.rest().len() / 4 {
            return Err(XdrError::TooLong);
        }
        let flavors = (0..count).map(|_| r.u32()).collect::<Decoded<_>>()?;
        Ok(Self::Done { handle, flavors })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Done { handle, flavors } => {
                0_u32.encode(out);
                handle.encode(out);
                put_len(out, flavors.len());
                for flavor in flavors {
                    flavor.encode(out);
                }
            }
            Self::Failed(stat) => stat.encode(out),
        }
    }
}
