//! CREATE, MKDIR, SYMLINK, MKNOD.
#![allow(missing_docs, reason = "fields and variants are those of the RFC")]

use alloc::vec::Vec;

use quorate_service::Stop;

use super::{Attr, CreateVerf, DirOp, Face, Fh, FileType, Name, SetAttr, SpecData, Wcc, settle};
use crate::error::{Done, Why};
use crate::op::{Made, Op};
use crate::rpc::xdr::{Decoded, Opaque, Reader, Xdr, XdrError, xdr_struct};
use crate::types::{self, Device};

xdr_struct! {
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

    /// Of CREATE, MKDIR, SYMLINK and MKNOD.
    pub struct CreateOk<'a> {
        pub object: Option<Fh<'a>>,
        pub attributes: Option<Attr>,
        pub wcc: Wcc,
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

impl From<&CreateHow> for types::Creation {
    fn from(how: &CreateHow) -> Self {
        match how {
            CreateHow::Unchecked(attributes) => Self::Unchecked(attributes.into()),
            CreateHow::Guarded(attributes) => Self::Guarded(attributes.into()),
            CreateHow::Exclusive(verf) => Self::Exclusive(*verf),
        }
    }
}

impl Face<'_, '_, '_> {
    pub(super) fn create(&mut self, args: &CreateArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        self.making(&args.place, out, |op, dir, name| op.create_file(dir, name, &(&args.how).into()))
    }

    pub(super) fn mkdir(&mut self, args: &MkDirArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        self.making(&args.place, out, |op, dir, name| op.create_dir(dir, name, &(&args.attributes).into()))
    }

    pub(super) fn symlink(&mut self, args: &SymLinkArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        self.making(&args.place, out, |op, dir, name| {
            op.create_symlink(dir, name, &(&args.attributes).into(), args.target.0)
        })
    }

    pub(super) fn mknod(&mut self, args: &MkNodArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        self.making(&args.place, out, |op, dir, name| {
            let (kind, attributes, device) = match &args.what {
                MkNodData::Device(kind, attributes, rdev) => (*kind, attributes, (*rdev).into()),
                MkNodData::Pipe(kind, attributes) => (*kind, attributes, Device::default()),
                MkNodData::Other(_) => return Err(Why::BadType.into()),
            };
            op.create_node(dir, name, (kind.into(), device), &attributes.into())
        })
    }

    fn making(
        &mut self,
        place: &DirOp<'_>,
        out: &mut Vec<u8>,
        build: impl FnOnce(&mut Op<'_, '_, '_>, &[u8], &[u8]) -> Done<Made>,
    ) -> Result<(), Stop> {
        let before = self.before(&place.dir)?;
        let made = build(&mut self.op, place.dir.0, place.name.0);
        let wcc = self.wcc(&place.dir, before)?;
        let done = made.as_ref().map(|(handle, attributes)| CreateOk {
            object: Some(Opaque(handle)),
            attributes: Some(attributes.into()),
            wcc: wcc.clone(),
        });
        settle(done.map_err(|error| *error), || Ok(wcc.clone()))?.encode(out);
        Ok(())
    }
}
