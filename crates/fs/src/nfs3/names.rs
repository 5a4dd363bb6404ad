//! LOOKUP, REMOVE, RMDIR, RENAME, LINK.
#![allow(missing_docs, reason = "fields and variants are those of the RFC")]

use alloc::vec::Vec;

use quorate_service::Stop;

use super::{Attr, DirOp, Face, Fh, Wcc, settle};
use crate::error::Done;
use crate::op::Op;
use crate::op::rename::Place;
use crate::rpc::xdr::{Opaque, Xdr, xdr_struct};

xdr_struct! {
    pub struct RenameArgs<'a> {
        pub from: DirOp<'a>,
        pub to: DirOp<'a>,
    }

    pub struct LinkArgs<'a> {
        pub file: Fh<'a>,
        pub link: DirOp<'a>,
    }

    pub struct LookupOk<'a> {
        pub object: Fh<'a>,
        pub attributes: Option<Attr>,
        pub dir: Option<Attr>,
    }

    #[derive(Default)]
    pub struct RenameWcc {
        pub from: Wcc,
        pub to: Wcc,
    }

    #[derive(Default)]
    pub struct LinkWcc {
        pub attributes: Option<Attr>,
        pub wcc: Wcc,
    }
}

impl Face<'_, '_, '_> {
    pub(super) fn lookup(&mut self, args: &DirOp<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let found = self.op.look_up(args.dir.0, args.name.0);
        let dir = self.post(&args.dir)?;
        let done = found.as_ref().map(|(handle, attributes)| LookupOk {
            object: Opaque(handle),
            attributes: Some(attributes.into()),
            dir: dir.clone(),
        });
        settle(done.map_err(|error| *error), || Ok(dir.clone()))?.encode(out);
        Ok(())
    }

    pub(super) fn remove(&mut self, args: &DirOp<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        self.removing(args, out, |op| op.remove_file(args.dir.0, args.name.0))
    }

    pub(super) fn rmdir(&mut self, args: &DirOp<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        self.removing(args, out, |op| op.remove_dir(args.dir.0, args.name.0))
    }

    fn removing(
        &mut self,
        args: &DirOp<'_>,
        out: &mut Vec<u8>,
        remove: impl FnOnce(&mut Op<'_, '_, '_>) -> Done<()>,
    ) -> Result<(), Stop> {
        let before = self.before(&args.dir)?;
        let done = remove(&mut self.op);
        let wcc = self.wcc(&args.dir, before)?;
        settle(done.map(|()| wcc.clone()), || Ok(wcc))?.encode(out);
        Ok(())
    }

    pub(super) fn rename(&mut self, args: &RenameArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let before = (self.before(&args.from.dir)?, self.before(&args.to.dir)?);
        let [from, to] = [&args.from, &args.to].map(|place| Place { dir: place.dir.0, name: place.name.0 });
        let done = self.op.rename(from, to);
        let from = self.wcc(&args.from.dir, before.0)?;
        let wcc = RenameWcc { from, to: self.wcc(&args.to.dir, before.1)? };
        settle(done.map(|()| wcc.clone()), || Ok(wcc))?.encode(out);
        Ok(())
    }

    pub(super) fn link(&mut self, args: &LinkArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let before = self.before(&args.link.dir)?;
        let done = self.op.add_link(args.file.0, args.link.dir.0, args.link.name.0);
        let wcc = LinkWcc { attributes: self.post(&args.file)?, wcc: self.wcc(&args.link.dir, before)? };
        settle(done.map(|()| wcc.clone()), || Ok(wcc))?.encode(out);
        Ok(())
    }
}
