//! The procedures: one row for each, with its number, the kind of its operation, its arguments, its result, and the
//! method that answers it.
#![allow(missing_docs, reason = "fields and variants are those of the RFC")]

use alloc::vec::Vec;

use quorate_service::Stop;

use super::{
    AccessArgs, AccessOk, Attr, CommitArgs, CommitOk, CreateArgs, CreateOk, DirOp, Face, Fh, FsInfoOk,
    FsStatOk, LinkArgs, LinkWcc, LookupOk, MkDirArgs, MkNodArgs, NfsResult, PathConfOk, ReadArgs,
    ReadDirArgs, ReadDirOk, ReadDirPlusArgs, ReadDirPlusOk, ReadLinkOk, ReadOk, RenameArgs, RenameWcc,
    SetAttrArgs, Stat, SymLinkArgs, Wcc, WriteArgs, WriteOk,
};
use crate::rpc::xdr::{Decoded, Xdr, xdr_enum};
use crate::types::OpKind;

/// A result that a gateway can make without the service.
trait Fail: Sized {
    /// Returns the result with the status `stat` and no attributes; none if the procedure cannot fail.
    fn failed(stat: Stat) -> Option<Self>;
}

impl Fail for () {
    fn failed(_: Stat) -> Option<Self> {
        None
    }
}

impl<T, F: Default> Fail for NfsResult<T, F> {
    fn failed(stat: Stat) -> Option<Self> {
        Some(Err((stat, F::default())))
    }
}

macro_rules! procedures {
    ($($name:ident = $number:literal, $kind:ident: $args:ty => $result:ty $(, $answer:ident)?;)*) => {
        xdr_enum! {
            /// A procedure of the program.
            pub enum Procedure {
                $($name = $number,)*
            }
        }

        impl Procedure {
            /// Returns the kind of its operation.
            pub const fn kind(self) -> OpKind {
                match self {
                    $(Self::$name => OpKind::$kind,)*
                }
            }
        }

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

            /// Executes the call and appends its result.
            pub(super) fn answer(&self, face: &mut Face<'_, '_, '_>, out: &mut Vec<u8>) -> Result<(), Stop> {
                match self {
                    $(Self::$name(args) => {
                        let _ = args;
                        $(face.$answer(args, out)?;)?
                    })*
                }
                Ok(())
            }
        }

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

            /// Returns the result with the status `stat` and no attributes; none for NULL, which cannot fail. A gateway
            /// uses it if the service does not answer.
            pub fn failed(procedure: Procedure, stat: Stat) -> Option<Self> {
                match procedure {
                    $(Procedure::$name => <$result>::failed(stat).map(Self::$name),)*
                }
            }
        }
    };
}

procedures! {
    Null = 0, Null: () => ();
    GetAttr = 1, GetAttributes: Fh<'a> => NfsResult<Attr, ()>, getattr;
    SetAttr = 2, SetAttributes: SetAttrArgs<'a> => NfsResult<Wcc, Wcc>, setattr;
    Lookup = 3, LookUp: DirOp<'a> => NfsResult<LookupOk<'a>, Option<Attr>>, lookup;
    Access = 4, Rights: AccessArgs<'a> => NfsResult<AccessOk, Option<Attr>>, access;
    ReadLink = 5, ReadLink: Fh<'a> => NfsResult<ReadLinkOk<'a>, Option<Attr>>, readlink;
    Read = 6, Read: ReadArgs<'a> => NfsResult<ReadOk<'a>, Option<Attr>>, read;
    Write = 7, Write: WriteArgs<'a> => NfsResult<WriteOk, Wcc>, write;
    Create = 8, CreateFile: CreateArgs<'a> => NfsResult<CreateOk<'a>, Wcc>, create;
    MkDir = 9, CreateDir: MkDirArgs<'a> => NfsResult<CreateOk<'a>, Wcc>, mkdir;
    SymLink = 10, CreateSymlink: SymLinkArgs<'a> => NfsResult<CreateOk<'a>, Wcc>, symlink;
    MkNod = 11, CreateNode: MkNodArgs<'a> => NfsResult<CreateOk<'a>, Wcc>, mknod;
    Remove = 12, RemoveFile: DirOp<'a> => NfsResult<Wcc, Wcc>, remove;
    RmDir = 13, RemoveDir: DirOp<'a> => NfsResult<Wcc, Wcc>, rmdir;
    Rename = 14, Rename: RenameArgs<'a> => NfsResult<RenameWcc, RenameWcc>, rename;
    Link = 15, AddLink: LinkArgs<'a> => NfsResult<LinkWcc, LinkWcc>, link;
    ReadDir = 16, List: ReadDirArgs<'a> => NfsResult<ReadDirOk<'a>, Option<Attr>>, readdir;
    ReadDirPlus = 17, ListPlus: ReadDirPlusArgs<'a> => NfsResult<ReadDirPlusOk<'a>, Option<Attr>>, readdirplus;
    FsStat = 18, Fullness: Fh<'a> => NfsResult<FsStatOk, Option<Attr>>, fsstat;
    FsInfo = 19, Limits: Fh<'a> => NfsResult<FsInfoOk, Option<Attr>>, fsinfo;
    PathConf = 20, NameLimits: Fh<'a> => NfsResult<PathConfOk, Option<Attr>>, pathconf;
    Commit = 21, Commit: CommitArgs<'a> => NfsResult<CommitOk, Wcc>, commit;
}
