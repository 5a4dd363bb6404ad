//! NFS version 3 as a face of the operations [RFC 1813]: calls become operations, and what they return becomes results.
//!
//! Attributes before and after come from the same step as the change.

use alloc::vec::Vec;

use quorate_service::Stop;

use crate::error::{Done, OpError, Why};
use crate::nfs3::mount3;
use crate::nfs3::{
    AccessArgs, AccessOk, Attr, Call, CommitArgs, CommitOk, CreateOk, DirOp, Fh, FsInfoOk, FsStatOk,
    LinkArgs, LinkWcc, LookupOk, MkNodArgs, MkNodData, Name, NfsTime, Outcome, PathConfOk, ReadArgs,
    ReadLinkOk, RenameArgs, RenameWcc, SetAttrArgs, StableHow, TRANSFER_BYTES_MAX, Wcc, WccAttr, WriteArgs,
    WriteOk, WriteVerf,
};
use crate::op::read::Reading;
use crate::op::rename::Place;
use crate::op::{Made, Op};
use crate::rpc::xdr::{Opaque, Xdr, pad};
use crate::types::{Device, Kind, Rights};
use crate::volume::directory::NAME_BYTES_MAX;

mod convert;
mod list;
mod mount;

/// A call of MOUNT.
pub(crate) enum Mount<'a> {
    Null,
    Mnt(mount3::Path<'a>),
    Dump,
    Umnt(mount3::Path<'a>),
    UmntAll,
    Export,
}

/// The rights in ACCESS.
const ACCESS_READ: u32 = 1;
const ACCESS_LOOKUP: u32 = 2;
const ACCESS_MODIFY: u32 = 4;
const ACCESS_EXTEND: u32 = 8;
const ACCESS_DELETE: u32 = 16;
const ACCESS_EXECUTE: u32 = 32;

/// The properties of the file system: hard links, symbolic links, uniform answers to PATHCONF, and times that can be
/// set.
const PROPERTIES: u32 = 0x01 | 0x02 | 0x08 | 0x10;
/// The recommended size of READDIR, in bytes.
const DIR_BYTES_PREFERRED: u32 = 64 << 10;

impl Op<'_, '_, '_> {
    /// Executes a call of NFS and appends its result.
    pub(crate) fn nfs(&mut self, call: &Call<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        match call {
            Call::Null(()) => {}
            Call::GetAttr(fh) => {
                settle(self.get_attributes(fh.0).map(|of| Attr::from(&of)), || Ok(()))?.encode(out);
            }
            Call::SetAttr(args) => self.setattr(args)?.encode(out),
            Call::Lookup(args) => self.lookup(args, out)?,
            Call::Access(args) => self.access(args)?.encode(out),
            Call::ReadLink(fh) => self.readlink(fh, out)?,
            Call::Read(args) => self.read(args, out)?,
            Call::Write(args) => self.write_call(args)?.encode(out),
            Call::Create(args) => {
                self.making(&args.place, out, |op, dir, name| {
                    op.create_file(dir, name, &(&args.how).into())
                })?;
            }
            Call::MkDir(args) => {
                self.making(&args.place, out, |op, dir, name| {
                    op.create_dir(dir, name, &(&args.attributes).into())
                })?;
            }
            Call::SymLink(args) => self.making(&args.place, out, |op, dir, name| {
                op.create_symlink(dir, name, &(&args.attributes).into(), args.target.0)
            })?,
            Call::MkNod(args) => self.making(&args.place, out, |op, dir, name| op.mknod(dir, name, args))?,
            Call::Remove(args) => {
                self.removing(args, |op| op.remove_file(args.dir.0, args.name.0))?.encode(out);
            }
            Call::RmDir(args) => {
                self.removing(args, |op| op.remove_dir(args.dir.0, args.name.0))?.encode(out);
            }
            Call::Rename(args) => self.rename_call(args)?.encode(out),
            Call::Link(args) => self.link(args)?.encode(out),
            Call::ReadDir(args) => self.readdir(args, out)?,
            Call::ReadDirPlus(args) => self.readdirplus(args, out)?,
            Call::FsStat(fh) => self.fsstat(fh)?.encode(out),
            Call::FsInfo(fh) => self.fsinfo(fh)?.encode(out),
            Call::PathConf(fh) => self.pathconf(fh)?.encode(out),
            Call::Commit(args) => self.commit(args)?.encode(out),
        }
        Ok(())
    }

    /// Executes a call of MOUNT and appends its result.
    pub(crate) fn mount_program(&mut self, mount: &Mount<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        match mount {
            Mount::Null => Ok(()),
            Mount::Mnt(path) => self.mnt(path, out),
            Mount::Dump => self.dump(out),
            Mount::Umnt(path) => self.umnt(path),
            Mount::UmntAll => self.umntall(),
            Mount::Export => {
                self.export(out);
                Ok(())
            }
        }
    }

    /// Returns the present attributes of a handle; none if it is stale.
    fn post(&self, fh: &Fh<'_>) -> Result<Option<Attr>, Stop> {
        Ok(self.current(fh.0)?.as_ref().map(Attr::from))
    }

    /// Returns the attributes of a handle before a change.
    fn before(&self, fh: &Fh<'_>) -> Result<Option<WccAttr>, Stop> {
        Ok(self.current(fh.0)?.as_ref().map(WccAttr::from))
    }

    /// Returns the attributes of a handle before and after a change.
    fn wcc(&self, fh: &Fh<'_>, before: Option<WccAttr>) -> Result<Wcc, Stop> {
        Ok(Wcc { before, after: self.post(fh)? })
    }

    fn setattr(&mut self, args: &SetAttrArgs<'_>) -> Result<Outcome<Wcc, Wcc>, Stop> {
        let before = self.before(&args.object)?;
        // "If the guard's ctime is not the object's, nothing is changed."
        let is_expected = |ctime| args.guard.is_none_or(|guard| guard == NfsTime::of(ctime));
        let done = self.set_attributes(args.object.0, &(&args.attributes).into(), is_expected);
        let wcc = self.wcc(&args.object, before)?;
        settle(done.map(|()| wcc.clone()), || Ok(wcc.clone()))
    }

    fn access(&self, args: &AccessArgs<'_>) -> Result<Outcome<AccessOk, Option<Attr>>, Stop> {
        let done = self.rights(args.object.0).map(|(rights, attributes)| AccessOk {
            attributes: Some(Attr::from(&attributes)),
            access: args.access & granted(rights, attributes.kind == Kind::Dir),
        });
        settle(done, || self.post(&args.object))
    }

    /// Appends the result of LOOKUP.
    fn lookup(&self, args: &DirOp<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let found = self.look_up(args.dir.0, args.name.0);
        let dir = self.post(&args.dir)?;
        let done = found.as_ref().map(|(handle, attributes)| LookupOk {
            object: Opaque(handle),
            attributes: Some(attributes.into()),
            dir: dir.clone(),
        });
        settle(done.map_err(|error| *error), || Ok(dir.clone()))?.encode(out);
        Ok(())
    }

    /// Appends the result of READLINK.
    fn readlink(&mut self, fh: &Fh<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let target = self.read_link(fh.0);
        let attributes = self.post(fh)?;
        let done = target
            .as_ref()
            .map(|target| ReadLinkOk { attributes: attributes.clone(), target: Opaque(target) as Name<'_> });
        settle(done.map_err(|error| *error), || Ok(attributes.clone()))?.encode(out);
        Ok(())
    }

    /// Appends the result of READ. The data is copied directly from its pages to the reply.
    fn read(&mut self, args: &ReadArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let asked = usize::try_from(args.count).unwrap_or(usize::MAX).min(TRANSFER_BYTES_MAX);
        let reading = self.start_reading(args.file.0, args.offset, asked);
        let attributes = self.post(&args.file)?;
        match settle(reading, || Ok(attributes.clone()))? {
            Ok(reading) => {
                let Reading { count, eof, .. } = reading;
                let len = u32::try_from(count).unwrap_or(u32::MAX);
                (0_u32).encode(out);
                attributes.encode(out);
                len.encode(out);
                eof.encode(out);
                len.encode(out);
                self.read_data(&reading, out)?;
                pad(out, count);
            }
            Err(failed) => Outcome::<(), _>::Err(failed).encode(out),
        }
        Ok(())
    }

    /// The write verifier. It is constant, because acknowledged data is replicated, and is not lost with a machine.
    fn write_verf(&self) -> WriteVerf {
        self.volume.settings.service_id.to_be_bytes()
    }

    fn write_call(&mut self, args: &WriteArgs<'_>) -> Result<Outcome<WriteOk, Wcc>, Stop> {
        let before = self.before(&args.file)?;
        let count = usize::try_from(args.count).unwrap_or(usize::MAX);
        let done = self.write(args.file.0, args.offset, count, args.data.0);
        let wcc = self.wcc(&args.file, before)?;
        let done = done.map(|count| WriteOk {
            wcc: wcc.clone(),
            count,
            committed: StableHow::FileSync,
            verf: self.write_verf(),
        });
        settle(done, || Ok(wcc))
    }

    /// Nothing to do: every WRITE is stable when it is answered.
    fn commit(&self, args: &CommitArgs<'_>) -> Result<Outcome<CommitOk, Wcc>, Stop> {
        let wcc = self.wcc(&args.file, self.before(&args.file)?)?;
        let done =
            self.check_file(args.file.0).map(|()| CommitOk { wcc: wcc.clone(), verf: self.write_verf() });
        settle(done, || Ok(wcc.clone()))
    }

    fn mknod(&mut self, dir: &[u8], name: &[u8], args: &MkNodArgs<'_>) -> Done<Made> {
        let (kind, attributes, device) = match &args.what {
            MkNodData::Device(kind, attributes, rdev) => (*kind, attributes, (*rdev).into()),
            MkNodData::Pipe(kind, attributes) => (*kind, attributes, Device::default()),
            MkNodData::Other(_) => return Err(Why::BadType.into()),
        };
        self.create_node(dir, name, (kind.into(), device), &attributes.into())
    }

    /// Appends the result of a procedure that creates an object.
    fn making(
        &mut self,
        place: &DirOp<'_>,
        out: &mut Vec<u8>,
        build: impl FnOnce(&mut Self, &[u8], &[u8]) -> Done<Made>,
    ) -> Result<(), Stop> {
        let before = self.before(&place.dir)?;
        let made = build(self, place.dir.0, place.name.0);
        let wcc = self.wcc(&place.dir, before)?;
        let done = made.as_ref().map(|(handle, attributes)| CreateOk {
            object: Some(Opaque(handle)),
            attributes: Some(attributes.into()),
            wcc: wcc.clone(),
        });
        settle(done.map_err(|error| *error), || Ok(wcc.clone()))?.encode(out);
        Ok(())
    }

    fn link(&mut self, args: &LinkArgs<'_>) -> Result<Outcome<LinkWcc, LinkWcc>, Stop> {
        let before = self.before(&args.link.dir)?;
        let done = self.add_link(args.file.0, args.link.dir.0, args.link.name.0);
        let wcc = LinkWcc { attributes: self.post(&args.file)?, wcc: self.wcc(&args.link.dir, before)? };
        settle(done.map(|()| wcc.clone()), || Ok(wcc))
    }

    fn removing(
        &mut self,
        args: &DirOp<'_>,
        remove: impl FnOnce(&mut Self) -> Done<()>,
    ) -> Result<Outcome<Wcc, Wcc>, Stop> {
        let before = self.before(&args.dir)?;
        let done = remove(self);
        let wcc = self.wcc(&args.dir, before)?;
        settle(done.map(|()| wcc.clone()), || Ok(wcc))
    }

    fn rename_call(&mut self, args: &RenameArgs<'_>) -> Result<Outcome<RenameWcc, RenameWcc>, Stop> {
        let before = (self.before(&args.from.dir)?, self.before(&args.to.dir)?);
        let [from, to] = [&args.from, &args.to].map(|place| Place { dir: place.dir.0, name: place.name.0 });
        let done = self.rename(from, to);
        let from = self.wcc(&args.from.dir, before.0)?;
        let wcc = RenameWcc { from, to: self.wcc(&args.to.dir, before.1)? };
        settle(done.map(|()| wcc.clone()), || Ok(wcc))
    }

    fn fsstat(&self, fh: &Fh<'_>) -> Result<Outcome<FsStatOk, Option<Attr>>, Stop> {
        let done = self.fullness(fh.0).map(|(full, attributes)| FsStatOk {
            attributes: Some(Attr::from(&attributes)),
            tbytes: full.bytes,
            fbytes: full.bytes_free,
            abytes: full.bytes_available,
            tfiles: full.files,
            ffiles: full.files_free,
            afiles: full.files_available,
            invarsec: 0,
        });
        settle(done, || self.post(fh))
    }

    fn fsinfo(&self, fh: &Fh<'_>) -> Result<Outcome<FsInfoOk, Option<Attr>>, Stop> {
        let transfer = u32::try_from(TRANSFER_BYTES_MAX).unwrap_or(u32::MAX);
        let unit = u32::try_from(self.volume.page_bytes()).unwrap_or(u32::MAX);
        let done = self.get_attributes(fh.0).map(|attributes| FsInfoOk {
            attributes: Some(Attr::from(&attributes)),
            rtmax: transfer,
            rtpref: transfer,
            rtmult: unit,
            wtmax: transfer,
            wtpref: transfer,
            wtmult: unit,
            dtpref: DIR_BYTES_PREFERRED,
            maxfilesize: self.volume.settings.file_bytes_max,
            time_delta: NfsTime { seconds: 0, nseconds: 1 },
            properties: PROPERTIES,
        });
        settle(done, || self.post(fh))
    }

    fn pathconf(&self, fh: &Fh<'_>) -> Result<Outcome<PathConfOk, Option<Attr>>, Stop> {
        let done = self.get_attributes(fh.0).map(|attributes| PathConfOk {
            attributes: Some(Attr::from(&attributes)),
            linkmax: self.volume.settings.links_max,
            name_max: u32::try_from(NAME_BYTES_MAX).unwrap_or(u32::MAX),
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        });
        settle(done, || self.post(fh))
    }
}

/// Makes the result of a procedure from that of an operation; `failed` returns what the result has if it failed.
fn settle<T, F>(done: Done<T>, failed: impl FnOnce() -> Result<F, Stop>) -> Result<Outcome<T, F>, Stop> {
    match done {
        Ok(done) => Ok(Ok(done)),
        Err(OpError::Refused(why)) => Ok(Err((why.into(), failed()?))),
        Err(OpError::Stop(stop)) => Err(stop),
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
