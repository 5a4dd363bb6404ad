//! GETATTR, SETATTR, ACCESS.
#![allow(missing_docs, reason = "fields and variants are those of the RFC")]

use alloc::vec::Vec;

use quorate_service::Stop;

use super::{Attr, Face, Fh, NfsTime, SetAttr, settle};
use crate::rpc::xdr::{Xdr, xdr_struct};
use crate::types::{FileKind, Rights};

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

    pub struct AccessOk {
        pub attributes: Option<Attr>,
        pub access: u32,
    }
}

/// The rights in ACCESS.
const ACCESS_READ: u32 = 1;
const ACCESS_LOOKUP: u32 = 2;
const ACCESS_MODIFY: u32 = 4;
const ACCESS_EXTEND: u32 = 8;
const ACCESS_DELETE: u32 = 16;
const ACCESS_EXECUTE: u32 = 32;

impl Face<'_, '_, '_> {
    pub(super) fn getattr(&mut self, fh: &Fh<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        settle(self.op.get_attributes(fh.0).map(|of| Attr::from(&of)), || Ok(()))?.encode(out);
        Ok(())
    }

    pub(super) fn setattr(&mut self, args: &SetAttrArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let before = self.before(&args.object)?;
        // "If the guard's ctime is not the object's, nothing is changed."
        let is_expected = |ctime| args.guard.is_none_or(|guard| guard == NfsTime::of(ctime));
        let done = self.op.set_attributes(args.object.0, &(&args.attributes).into(), is_expected);
        let wcc = self.wcc(&args.object, before)?;
        settle(done.map(|()| wcc.clone()), || Ok(wcc.clone()))?.encode(out);
        Ok(())
    }

    pub(super) fn access(&mut self, args: &AccessArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let done = self.op.rights(args.object.0).map(|(rights, attributes)| AccessOk {
            attributes: Some(Attr::from(&attributes)),
            access: args.access & granted(rights, attributes.kind == FileKind::Dir),
        });
        settle(done, || self.post(&args.object))?.encode(out);
        Ok(())
    }
}

/// Returns the rights of a caller in the format of ACCESS.
fn granted(rights: Rights, is_dir: bool) -> u32 {
    let mut granted = 0;
    if rights.read {
        granted |= ACCESS_READ;
    }
    if rights.execute {
        granted |= if is_dir { ACCESS_LOOKUP } else { ACCESS_EXECUTE };
    }
    if rights.write {
        granted |= ACCESS_MODIFY | ACCESS_EXTEND;
        if is_dir {
            granted |= ACCESS_DELETE;
        }
    }
    granted
}
