//! The arguments of the procedures.
#![allow(missing_docs, reason = "fields and variants are those of the RFC")]

use alloc::vec::Vec;

use super::{
    CookieVerf, CreateVerf, DirOp, Fh, FileType, Name, NfsTime, SetAttr, SpecData, StableHow,
    TRANSFER_BYTES_MAX,
};
use crate::rpc::xdr::{Decoded, Opaque, Reader, Xdr, XdrError, xdr_enum, xdr_struct};

xdr_enum! {
    /// A procedure of the program.
    pub enum Procedure {
        Null = 0,
        GetAttr = 1,
        SetAttr = 2,
        Lookup = 3,
        Access = 4,
        ReadLink = 5,
        Read = 6,
        Write = 7,
        Create = 8,
        MkDir = 9,
        SymLink = 10,
        MkNod = 11,
        Remove = 12,
        RmDir = 13,
        Rename = 14,
        Link = 15,
        ReadDir = 16,
        ReadDirPlus = 17,
        FsStat = 18,
        FsInfo = 19,
        PathConf = 20,
        Commit = 21,
    }
}

xdr_struct! {
    pub struct SetAttrArgs<'a> {
        pub object: Fh<'a>,
        pub attributes: SetAttr,
        pub guard: Option<NfsTime>,
    }

    pub struct AccessArgs<'a> {
        pub object: Fh<'a>,
        pub access: u32,
    }

    pub struct ReadArgs<'a> {
        pub file: Fh<'a>,
        pub offset: u64,
        pub count: u32,
    }

    pub struct WriteArgs<'a> {
        pub file: Fh<'a>,
        pub offset: u64,
        pub count: u32,
        pub stable: StableHow,
        pub data: Opaque<'a, TRANSFER_BYTES_MAX>,
    }

    pub struct CreateArgs<'a> {
        pub place: DirOp<'a>,
        pub how: CreateHow,
    }

    pub struct MkDirArgs<'a> {
        pub place: DirOp<'a>,
        pub attributes: SetAttr,
    }

    pub struct SymLinkArgs<'a> {
        pub place: DirOp<'a>,
        pub attributes: SetAttr,
        pub target: Name<'a>,
    }

    pub struct MkNodArgs<'a> {
        pub place: DirOp<'a>,
        pub what: MkNodData,
    }

    pub struct RenameArgs<'a> {
        pub from: DirOp<'a>,
        pub to: DirOp<'a>,
    }

    pub struct LinkArgs<'a> {
        pub file: Fh<'a>,
        pub link: DirOp<'a>,
    }

    pub struct ReadDirArgs<'a> {
        pub dir: Fh<'a>,
        pub cookie: u64,
        pub verf: CookieVerf,
        pub count: u32,
    }

    pub struct ReadDirPlusArgs<'a> {
        pub dir: Fh<'a>,
        pub cookie: u64,
        pub verf: CookieVerf,
        pub dircount: u32,
        pub maxcount: u32,
    }

    pub struct CommitArgs<'a> {
        pub file: Fh<'a>,
        pub offset: u64,
        pub count: u32,
    }
}

/// How a file is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateHow {
    Unchecked(SetAttr),
    Guarded(SetAttr),
    Exclusive(CreateVerf),
}

impl Xdr<'_> for CreateHow {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        match r.u32()? {
            0 => Ok(Self::Unchecked(SetAttr::decode(r)?)),
            1 => Ok(Self::Guarded(SetAttr::decode(r)?)),
            2 => Ok(Self::Exclusive(r.array()?)),
            _ => Err(XdrError::Invalid),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Unchecked(attributes) => {
                0_u32.encode(out);
                attributes.encode(out);
            }
            Self::Guarded(attributes) => {
                1_u32.encode(out);
                attributes.encode(out);
            }
            Self::Exclusive(verf) => {
                2_u32.encode(out);
                verf.encode(out);
            }
        }
    }
}

/// The object that MKNOD creates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MkNodData {
    Device(FileType, SetAttr, SpecData),
    Pipe(FileType, SetAttr),
    /// A type that other procedures create.
    Other(FileType),
}

impl Xdr<'_> for MkNodData {
    fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        let kind = FileType::decode(r)?;
        Ok(match kind {
            FileType::Chr | FileType::Blk => Self::Device(kind, SetAttr::decode(r)?, SpecData::decode(r)?),
            FileType::Sock | FileType::Fifo => Self::Pipe(kind, SetAttr::decode(r)?),
            FileType::Reg | FileType::Dir | FileType::Lnk => Self::Other(kind),
        })
    }

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Device(kind, attributes, rdev) => {
                kind.encode(out);
                attributes.encode(out);
                rdev.encode(out);
            }
            Self::Pipe(kind, attributes) => {
                kind.encode(out);
                attributes.encode(out);
            }
            Self::Other(kind) => kind.encode(out),
        }
    }
}

macro_rules! calls {
    ($($name:ident($args:ty),)*) => {
        /// A call: a procedure with its arguments.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Call<'a> {
            $($name($args),)*
        }

        impl<'a> Call<'a> {
            /// Decodes the arguments of a procedure, which take up all of `bytes`.
            ///
            /// # Errors
            ///
            /// They are not arguments of this procedure.
            pub fn decode(procedure: Procedure, bytes: &'a [u8]) -> Decoded<Self> {
                match procedure {
                    $(Procedure::$name => crate::rpc::xdr::decode(bytes).map(Self::$name),)*
                }
            }

            /// Appends the arguments.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$name(args) => args.encode(out),)*
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

calls! {
    Null(()),
    GetAttr(Fh<'a>),
    SetAttr(SetAttrArgs<'a>),
    Lookup(DirOp<'a>),
    Access(AccessArgs<'a>),
    ReadLink(Fh<'a>),
    Read(ReadArgs<'a>),
    Write(WriteArgs<'a>),
    Create(CreateArgs<'a>),
    MkDir(MkDirArgs<'a>),
    SymLink(SymLinkArgs<'a>),
    MkNod(MkNodArgs<'a>),
    Remove(DirOp<'a>),
    RmDir(DirOp<'a>),
    Rename(RenameArgs<'a>),
    Link(LinkArgs<'a>),
    ReadDir(ReadDirArgs<'a>),
    ReadDirPlus(ReadDirPlusArgs<'a>),
    FsStat(Fh<'a>),
    FsInfo(Fh<'a>),
    PathConf(Fh<'a>),
    Commit(CommitArgs<'a>),
}
