//! LOOKUP, READLINK, READ.

use alloc::vec::Vec;

use quorate_service::Stop;

use super::{Node, Run, check_name, settle};
use crate::caller::{EXECUTE, READ};
use crate::inode::Kind;
use crate::nfs3::{Attr, DirOp, Fh, LookupOk, Name, Outcome, ReadArgs, ReadLinkOk, Stat, TRANSFER_BYTES_MAX};
use crate::trouble::Done;
use crate::volume::ROOT;
use crate::xdr::{Opaque, Xdr, pad};

/// The data that READ returns.
struct Reading<'s> {
    node: Node<'s>,
    count: usize,
    eof: bool,
}

impl<'s> Run<'_, 's, '_> {
    /// Appends the result of LOOKUP.
    pub(crate) fn lookup(&self, args: &DirOp<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let found = self.look_up(args);
        let dir = self.post(&args.dir)?;
        let done = match &found {
            Ok((handle, attributes)) => Ok(LookupOk {
                object: Opaque(handle),
                attributes: Some(attributes.clone()),
                dir: dir.clone(),
            }),
            Err(trouble) => Err(*trouble),
        };
        settle(done, || Ok(dir))?.encode(out);
        Ok(())
    }

    fn look_up(&self, args: &DirOp<'_>) -> Done<([u8; 24], Attr)> {
        let dir = self.node(&args.dir)?;
        dir.check_dir()?;
        dir.check(EXECUTE)?;
        let number = match args.name.0 {
            b"." => dir.number,
            b".." => self.parent(&dir)?,
            name => {
                check_name(name, Stat::Inval)?;
                self.volume.find(dir.number, name)?.ok_or(Stat::NoEnt)?.inode
            }
        };
        let inode = self.volume.known_inode(number)?;
        Ok((self.handle(&dir, number, &inode), self.attr(number, &inode)))
    }

    /// Returns the parent of a directory. An export's own directory is its own parent, so no path leaves an export.
    pub(super) fn parent(&self, dir: &Node<'_>) -> Done<u64> {
        let is_top = dir.number == ROOT || self.export_root(dir.export)? == Some(dir.number);
        Ok(if is_top { dir.number } else { dir.inode.parent })
    }

    /// Appends the result of READLINK.
    pub(crate) fn readlink(&mut self, fh: &Fh<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let target = self.read_link(fh);
        let attributes = self.post(fh)?;
        let done = match &target {
            Ok(target) => {
                Ok(ReadLinkOk { attributes: attributes.clone(), target: Opaque(target) as Name<'_> })
            }
            Err(trouble) => Err(*trouble),
        };
        settle(done, || Ok(attributes))?.encode(out);
        Ok(())
    }

    fn read_link(&mut self, fh: &Fh<'_>) -> Done<Vec<u8>> {
        let node = self.node(fh)?;
        if node.inode.kind != Kind::Lnk {
            return Err(Stat::Inval.into());
        }
        let mut target = Vec::new();
        let len = usize::try_from(node.inode.size).unwrap_or(usize::MAX);
        if len > crate::nfs3::NAME_BYTES_MAX {
            return Err(Stop::Corrupt.into());
        }
        self.volume.read(node.number, &node.inode, 0, len, &mut target)?;
        self.accessed(&node)?;
        Ok(target)
    }

    /// Appends the result of READ. The data is copied directly from its pages to the reply.
    pub(crate) fn read(&mut self, args: &ReadArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let reading = self.start_reading(args);
        let attributes = self.post(&args.file)?;
        match settle(reading, || Ok(attributes.clone()))? {
            Ok(Reading { node, count, eof }) => {
                let len = u32::try_from(count).unwrap_or(u32::MAX);
                (0_u32).encode(out);
                attributes.encode(out);
                (len, eof).0.encode(out);
                eof.encode(out);
                len.encode(out);
                if count > 0 {
                    self.volume.read(node.number, &node.inode, args.offset, count, out)?;
                }
                pad(out, count);
            }
            Err(failed) => Outcome::<(), _>::Err(failed).encode(out),
        }
        Ok(())
    }

    fn start_reading(&mut self, args: &ReadArgs<'_>) -> Done<Reading<'s>> {
        let node = self.node(&args.file)?;
        match node.inode.kind {
            Kind::Reg => {}
            Kind::Dir => return Err(Stat::IsDir.into()),
            Kind::Blk | Kind::Chr | Kind::Lnk | Kind::Sock | Kind::Fifo => return Err(Stat::Inval.into()),
        }
        // A program is read to be executed: execute permission is enough.
        node.check_or_owner(READ).or_else(|trouble| node.check(EXECUTE).map_err(|_| trouble))?;
        let left = usize::try_from(node.inode.size.saturating_sub(args.offset)).unwrap_or(usize::MAX);
        let asked = usize::try_from(args.count).unwrap_or(usize::MAX).min(TRANSFER_BYTES_MAX);
        let count = left.min(asked);
        if count > 0 {
            self.accessed(&node)?;
        }
        Ok(Reading { node, count, eof: count == left })
    }
}
