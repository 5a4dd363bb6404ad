//! The results of the procedures: a status, then the data for success or failure.
#![allow(missing_docs, reason = "fields and variants are those of the RFC")]

use alloc::vec::Vec;

use super::{
    Attr, CookieVerf, Fh, Name, NfsTime, Procedure, StableHow, Stat, TRANSFER_BYTES_MAX, Wcc, WriteVerf,
};
use crate::rpc::xdr::{Decoded, Opaque, Reader, Xdr, XdrError, xdr_struct};

/// The result of a procedure: `T`, or a status and `F`.
pub type Outcome<T, F> = Result<T, (Stat, F)>;

const OK: u32 = 0;

impl<'a, T: Xdr<'a>, F: Xdr<'a>> Xdr<'a> for Outcome<T, F> {
    fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        match r.u32()? {
            OK => T::decode(r).map(Ok),
            number => {
                let stat = Stat::from_number(number).ok_or(XdrError::Invalid)?;
                Ok(Err((stat, F::decode(r)?)))
            }
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Ok(done) => {
                OK.encode(out);
                done.encode(out);
            }
            Err((stat, failed)) => {
                stat.encode(out);
                failed.encode(out);
            }
        }
    }
}

xdr_struct! {
    pub struct LookupOk<'a> {
        pub object: Fh<'a>,
        pub attributes: Option<Attr>,
        pub dir: Option<Attr>,
    }

    pub struct AccessOk {
        pub attributes: Option<Attr>,
        pub access: u32,
    }

    pub struct ReadLinkOk<'a> {
        pub attributes: Option<Attr>,
        pub target: Name<'a>,
    }

    pub struct ReadOk<'a> {
        pub attributes: Option<Attr>,
        pub count: u32,
        pub eof: bool,
        pub data: Opaque<'a, TRANSFER_BYTES_MAX>,
    }

    pub struct WriteOk {
        pub wcc: Wcc,
        pub count: u32,
        pub committed: StableHow,
        pub verf: WriteVerf,
    }

    /// Of CREATE, MKDIR, SYMLINK and MKNOD.
    pub struct CreateOk<'a> {
        pub object: Option<Fh<'a>>,
        pub attributes: Option<Attr>,
        pub wcc: Wcc,
    }

    pub struct RenameWcc {
        pub from: Wcc,
        pub to: Wcc,
    }

    pub struct LinkWcc {
        pub attributes: Option<Attr>,
        pub wcc: Wcc,
    }

    pub struct Entry<'a> {
        pub fileid: u64,
        pub name: Name<'a>,
        pub cookie: u64,
    }

    pub struct ReadDirOk<'a> {
        pub dir: Option<Attr>,
        pub verf: CookieVerf,
        pub entries: Vec<Entry<'a>>,
        pub eof: bool,
    }

    pub struct EntryPlus<'a> {
        pub fileid: u64,
        pub name: Name<'a>,
        pub cookie: u64,
        pub attributes: Option<Attr>,
        pub object: Option<Fh<'a>>,
    }

    pub struct ReadDirPlusOk<'a> {
        pub dir: Option<Attr>,
        pub verf: CookieVerf,
        pub entries: Vec<EntryPlus<'a>>,
        pub eof: bool,
    }

    pub struct FsStatOk {
        pub attributes: Option<Attr>,
        pub tbytes: u64,
        pub fbytes: u64,
        pub abytes: u64,
        pub tfiles: u64,
        pub ffiles: u64,
        pub afiles: u64,
        pub invarsec: u32,
    }

    pub struct FsInfoOk {
        pub attributes: Option<Attr>,
        pub rtmax: u32,
        pub rtpref: u32,
        pub rtmult: u32,
        pub wtmax: u32,
        pub wtpref: u32,
        pub wtmult: u32,
        pub dtpref: u32,
        pub maxfilesize: u64,
        pub time_delta: NfsTime,
        pub properties: u32,
    }

    pub struct PathConfOk {
        pub attributes: Option<Attr>,
        pub linkmax: u32,
        pub name_max: u32,
        pub no_trunc: bool,
        pub chown_restricted: bool,
        pub case_insensitive: bool,
        pub case_preserving: bool,
    }

    pub struct CommitOk {
        pub wcc: Wcc,
        pub verf: WriteVerf,
    }
}

macro_rules! replies {
    ($($name:ident($result:ty),)*) => {
        /// The result of a procedure.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Reply<'a> {
            $($name($result),)*
        }

        impl<'a> Reply<'a> {
            /// Decodes the result of a procedure, which takes up all of `bytes`.
            ///
            /// # Errors
            ///
            /// It is not a result of this procedure.
            pub fn decode(procedure: Procedure, bytes: &'a [u8]) -> Decoded<Self> {
                match procedure {
                    $(Procedure::$name => crate::rpc::xdr::decode(bytes).map(Self::$name),)*
                }
            }

            /// Appends the result.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$name(result) => result.encode(out),)*
                }
            }

            /// Returns the procedure.
            pub fn procedure(&self) -> Procedure {
                match self {
                    $(Self::$name(_) => Procedure::$name,)*
                }
            }
        }
    };
}

replies! {
    Null(()),
    GetAttr(Outcome<Attr, ()>),
    SetAttr(Outcome<Wcc, Wcc>),
    Lookup(Outcome<LookupOk<'a>, Option<Attr>>),
    Access(Outcome<AccessOk, Option<Attr>>),
    ReadLink(Outcome<ReadLinkOk<'a>, Option<Attr>>),
    Read(Outcome<ReadOk<'a>, Option<Attr>>),
    Write(Outcome<WriteOk, Wcc>),
    Create(Outcome<CreateOk<'a>, Wcc>),
    MkDir(Outcome<CreateOk<'a>, Wcc>),
    SymLink(Outcome<CreateOk<'a>, Wcc>),
    MkNod(Outcome<CreateOk<'a>, Wcc>),
    Remove(Outcome<Wcc, Wcc>),
    RmDir(Outcome<Wcc, Wcc>),
    Rename(Outcome<RenameWcc, RenameWcc>),
    Link(Outcome<LinkWcc, LinkWcc>),
    ReadDir(Outcome<ReadDirOk<'a>, Option<Attr>>),
    ReadDirPlus(Outcome<ReadDirPlusOk<'a>, Option<Attr>>),
    FsStat(Outcome<FsStatOk, Option<Attr>>),
    FsInfo(Outcome<FsInfoOk, Option<Attr>>),
    PathConf(Outcome<PathConfOk, Option<Attr>>),
    Commit(Outcome<CommitOk, Wcc>),
}

impl Reply<'_> {
    /// Returns the result with the status `stat` and no attributes; none for NULL, which cannot fail. A gateway uses
    /// it if the service does not answer.
    pub fn failed(procedure: Procedure, stat: Stat) -> Option<Self> {
        let wcc = Wcc::default;
        Some(match procedure {
            Procedure::Null => return None,
            Procedure::GetAttr => Self::GetAttr(Err((stat, ()))),
            Procedure::SetAttr => Self::SetAttr(Err((stat, wcc()))),
            Procedure::Lookup => Self::Lookup(Err((stat, None))),
            Procedure::Access => Self::Access(Err((stat, None))),
            Procedure::ReadLink => Self::ReadLink(Err((stat, None))),
            Procedure::Read => Self::Read(Err((stat, None))),
            Procedure::Write => Self::Write(Err((stat, wcc()))),
            Procedure::Create => Self::Create(Err((stat, wcc()))),
            Procedure::MkDir => Self::MkDir(Err((stat, wcc()))),
            Procedure::SymLink => Self::SymLink(Err((stat, wcc()))),
            Procedure::MkNod => Self::MkNod(Err((stat, wcc()))),
            Procedure::Remove => Self::Remove(Err((stat, wcc()))),
            Procedure::RmDir => Self::RmDir(Err((stat, wcc()))),
            Procedure::Rename => Self::Rename(Err((stat, RenameWcc { from: wcc(), to: wcc() }))),
            Procedure::Link => Self::Link(Err((stat, LinkWcc { attributes: None, wcc: wcc() }))),
            Procedure::ReadDir => Self::ReadDir(Err((stat, None))),
            Procedure::ReadDirPlus => Self::ReadDirPlus(Err((stat, None))),
            Procedure::FsStat => Self::FsStat(Err((stat, None))),
            Procedure::FsInfo => Self::FsInfo(Err((stat, None))),
            Procedure::PathConf => Self::PathConf(Err((stat, None))),
            Procedure::Commit => Self::Commit(Err((stat, wcc()))),
        })
    }
}
