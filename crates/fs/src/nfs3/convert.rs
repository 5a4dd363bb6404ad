//! Values of NFS version 3 from those of the operations, and back.

use crate::error::Why;
use crate::nfs3::{self, Attr, FileType, NfsTime, SetAttr, SpecData, Stat, WccAttr};
use crate::rpc::AuthSys;
use crate::types::{Attributes, Device, FileKind, SetAttributes, TimeChange, User};

impl<'a> From<&'a AuthSys<'_>> for User<'a> {
    fn from(auth: &'a AuthSys<'_>) -> Self {
        Self { uid: auth.uid, gid: auth.gid, gids: &auth.gids }
    }
}

impl From<FileKind> for FileType {
    fn from(kind: FileKind) -> Self {
        match kind {
            FileKind::Reg => Self::Reg,
            FileKind::Dir => Self::Dir,
            FileKind::Blk => Self::Blk,
            FileKind::Chr => Self::Chr,
            FileKind::Lnk => Self::Lnk,
            FileKind::Sock => Self::Sock,
            FileKind::Fifo => Self::Fifo,
        }
    }
}

impl From<FileType> for FileKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::Reg => Self::Reg,
            FileType::Dir => Self::Dir,
            FileType::Blk => Self::Blk,
            FileType::Chr => Self::Chr,
            FileType::Lnk => Self::Lnk,
            FileType::Sock => Self::Sock,
            FileType::Fifo => Self::Fifo,
        }
    }
}

impl From<SpecData> for Device {
    fn from(numbers: SpecData) -> Self {
        Self { major: numbers.major, minor: numbers.minor }
    }
}

impl From<&Attributes> for Attr {
    fn from(of: &Attributes) -> Self {
        Self {
            kind: of.kind.into(),
            mode: u32::from(of.mode),
            nlink: of.links,
            uid: of.uid,
            gid: of.gid,
            size: of.size,
            used: of.used,
            rdev: SpecData { major: of.device.major, minor: of.device.minor },
            fsid: of.volume,
            fileid: of.number,
            atime: NfsTime::of(of.atime),
            mtime: NfsTime::of(of.mtime),
            ctime: NfsTime::of(of.ctime),
        }
    }
}

impl From<&Attributes> for WccAttr {
    fn from(of: &Attributes) -> Self {
        Self { size: of.size, mtime: NfsTime::of(of.mtime), ctime: NfsTime::of(of.ctime) }
    }
}

impl From<&SetAttr> for SetAttributes {
    fn from(set: &SetAttr) -> Self {
        let SetAttr { mode, uid, gid, size, .. } = *set;
        Self { mode, uid, gid, size, atime: set.atime.into(), mtime: set.mtime.into() }
    }
}

impl From<nfs3::SetTime> for TimeChange {
    fn from(set: nfs3::SetTime) -> Self {
        match set {
            nfs3::SetTime::Keep => Self::Keep,
            nfs3::SetTime::Server => Self::Now,
            nfs3::SetTime::Client(time) => Self::To(time.ns()),
        }
    }
}

impl From<Why> for Stat {
    fn from(why: Why) -> Self {
        match why {
            Why::Perm => Self::Perm,
            Why::NoEnt => Self::NoEnt,
            Why::Access => Self::Access,
            Why::Exist => Self::Exist,
            Why::XDev => Self::XDev,
            Why::NotDir => Self::NotDir,
            Why::IsDir => Self::IsDir,
            Why::Inval => Self::Inval,
            Why::FBig => Self::FBig,
            Why::NoSpc => Self::NoSpc,
            Why::RoFs => Self::RoFs,
            Why::MLink => Self::MLink,
            Why::NameTooLong => Self::NameTooLong,
            Why::NotEmpty => Self::NotEmpty,
            Why::DQuot => Self::DQuot,
            Why::Stale => Self::Stale,
            Why::BadHandle => Self::BadHandle,
            Why::NotSync => Self::NotSync,
            Why::BadCookie => Self::BadCookie,
            Why::TooSmall => Self::TooSmall,
            Why::BadType => Self::BadType,
        }
    }
}
