//! MOUNT version 3: how a client gets its first handle [RFC1813, appendix I].
#![allow(missing_docs, reason = "fields and variants are those of the RFC")]

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use quorate_service::Stop;

use super::{Face, Fh, HANDLE_BYTES_MAX, Stat};
use crate::error::OpError;
use crate::rpc::xdr::{self, Decoded, Opaque, Reader, Xdr, XdrError, put_len, xdr_enum, xdr_struct};
use crate::settings::{Export, Network};

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

impl From<Stat> for MountStat {
    /// The numbers are those of NFS.
    fn from(stat: Stat) -> Self {
        Self::from_number(stat as u32).unwrap_or(Self::ServerFault)
    }
}

/// A call of MOUNT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MountCall<'a> {
    Null,
    Mnt(Path<'a>),
    Dump,
    Umnt(Path<'a>),
    UmntAll,
    Export,
}

impl<'a> MountCall<'a> {
    /// Decodes the arguments of a procedure, which take up all of `args`.
    pub(super) fn decode(procedure: Procedure, args: &'a [u8]) -> Decoded<Self> {
        let none = |call| xdr::decode(args).map(|()| call);
        match procedure {
            Procedure::Null => none(Self::Null),
            Procedure::Mnt => xdr::decode(args).map(Self::Mnt),
            Procedure::Dump => none(Self::Dump),
            Procedure::Umnt => xdr::decode(args).map(Self::Umnt),
            Procedure::UmntAll => none(Self::UmntAll),
            Procedure::Export => none(Self::Export),
        }
    }

    /// Returns the procedure.
    pub(super) fn procedure(&self) -> Procedure {
        match self {
            Self::Null => Procedure::Null,
            Self::Mnt(_) => Procedure::Mnt,
            Self::Dump => Procedure::Dump,
            Self::Umnt(_) => Procedure::Umnt,
            Self::UmntAll => Procedure::UmntAll,
            Self::Export => Procedure::Export,
        }
    }

    /// Returns whether it changes nothing.
    pub(super) fn reads(&self) -> bool {
        matches!(self, Self::Null | Self::Dump | Self::Export)
    }

    /// Executes the call and appends its result.
    pub(super) fn answer(&self, face: &mut Face<'_, '_, '_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        match self {
            Self::Null => Ok(()),
            Self::Mnt(path) => face.mnt(path, out),
            Self::Dump => face.dump(out),
            Self::Umnt(path) => face.op.unmount(path.0),
            Self::UmntAll => face.op.unmount_all(),
            Self::Export => {
                face.export(out);
                Ok(())
            }
        }
    }
}

impl Face<'_, '_, '_> {
    fn mnt(&mut self, path: &Path<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        match self.op.mount(path.0) {
            Ok(handle) => {
                MountReply::Done { handle: Opaque(&handle), flavors: FLAVORS.to_vec() }.encode(out);
            }
            Err(OpError::Refused(why)) => MountReply::Failed(Stat::from(why).into()).encode(out),
            Err(OpError::Stop(stop)) => return Err(stop),
        }
        Ok(())
    }

    fn dump(&self, out: &mut Vec<u8>) -> Result<(), Stop> {
        self.op.mounts(|address, export| {
            let host = shown(address);
            true.encode(out);
            MountEntry { host: Opaque(host.as_bytes()), dir: Opaque(export.path.as_bytes()) }.encode(out);
        })?;
        false.encode(out);
        Ok(())
    }

    fn export(&self, out: &mut Vec<u8>) {
        for export in self.op.exports() {
            let groups: Vec<String> = export.networks.iter().map(network).collect();
            let groups: Vec<MountName<'_>> = groups.iter().map(|name| Opaque(name.as_bytes())).collect();
            true.encode(out);
            ExportEntry { dir: Opaque(export.path.as_bytes()), groups }.encode(out);
        }
        false.encode(out);
    }
}

fn shown(address: &[u8; 16]) -> String {
    let address = Ipv6Addr::from(*address);
    address.to_ipv4_mapped().map_or_else(|| format!("{address}"), |v4| format!("{v4}"))
}

fn network(network: &Network) -> String {
    let is_v4 = Ipv6Addr::from(network.address).to_ipv4_mapped().is_some() && network.bits >= 96;
    let bits = if is_v4 { network.bits - 96 } else { network.bits };
    format!("{}/{bits}", shown(&network.address))
}
