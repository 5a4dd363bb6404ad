//! Names, the targets of symbolic links, and data.

use alloc::vec::Vec;

use quorate_service::Stop;

use super::{Made, Node, Op, check_name};
use crate::error::{Done, Why};
use crate::op::caller::{EXECUTE, READ};
use crate::settings::Export;
use crate::types::FileKind;
use crate::volume::ROOT;

/// The longest target that can be in the state, in bytes.
const TARGET_BYTES_MAX: usize = 4096;

/// Data that is going to be read.
pub(crate) struct Reading<'s> {
    node: Node<'s>,
    offset: u64,
    /// How many bytes there are to read.
    pub(crate) count: usize,
    /// Whether the file ends behind them.
    pub(crate) eof: bool,
}

impl<'s> Op<'_, 's, '_> {
    /// Looks a name up.
    pub(crate) fn look_up(&self, dir: &[u8], name: &[u8]) -> Done<Made> {
        let dir = self.node(dir)?;
        dir.check_dir()?;
        dir.check(EXECUTE)?;
        let number = match name {
            b"." => dir.number,
            b".." => self.parent(&dir)?,
            name => {
                check_name(name, Why::Inval)?;
                self.volume.find(dir.number, name)?.ok_or(Why::NoEnt)?.inode
            }
        };
        let inode = self.volume.known_inode(number)?;
        Ok((self.handle(&dir, number, &inode), self.attributes(number, &inode)))
    }

    /// Returns the parent of a directory. An export's own directory is its own parent, so no path leaves an export.
    pub(super) fn parent(&self, dir: &Node<'_>) -> Done<u64> {
        let is_top = dir.number == ROOT || self.export_root(dir.export)? == Some(dir.number);
        Ok(if is_top { dir.number } else { dir.inode.parent })
    }

    /// Returns the directory of an export, if it exists.
    fn export_root(&self, export: &Export) -> Done<Option<u64>> {
        Ok(self.walk(export.path.as_bytes())?)
    }

    /// Returns the inode of a path from the root, if there is one.
    pub(super) fn walk(&self, path: &[u8]) -> Result<Option<u64>, Stop> {
        let mut number = ROOT;
        for name in components(path) {
            match self.volume.find(number, name)? {
                Some(found) => number = found.inode,
                None => return Ok(None),
            }
        }
        Ok(Some(number))
    }

    /// Returns the target of a symbolic link.
    pub(crate) fn read_link(&mut self, link: &[u8]) -> Done<Vec<u8>> {
        let node = self.node(link)?;
        if node.inode.kind != FileKind::Lnk {
            return Err(Why::Inval.into());
        }
        let mut target = Vec::new();
        let len = usize::try_from(node.inode.size).unwrap_or(usize::MAX);
        if len > TARGET_BYTES_MAX {
            return Err(Stop::Corrupt.into());
        }
        self.volume.read(node.number, &node.inode, 0, len, &mut target)?;
        self.accessed(&node)?;
        Ok(target)
    }

    /// Checks that at most `count` bytes of a file can be read.
    pub(crate) fn start_reading(&mut self, file: &[u8], offset: u64, count: usize) -> Done<Reading<'s>> {
        let node = self.node(file)?;
        match node.inode.kind {
            FileKind::Reg => {}
            FileKind::Dir => return Err(Why::IsDir.into()),
            FileKind::Blk | FileKind::Chr | FileKind::Lnk | FileKind::Sock | FileKind::Fifo => {
                return Err(Why::Inval.into());
            }
        }
        // A program is read to be executed: execute permission is enough.
        node.check_or_owner(READ).or_else(|error| node.check(EXECUTE).map_err(|_| error))?;
        let left = usize::try_from(node.inode.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = left.min(count);
        if count > 0 {
            self.accessed(&node)?;
        }
        Ok(Reading { node, offset, count, eof: count == left })
    }

    /// Appends the data, which is copied from its pages once.
    pub(crate) fn read_data(&self, reading: &Reading<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let Reading { node, offset, count, .. } = reading;
        if *count > 0 {
            self.volume.read(node.number, &node.inode, *offset, *count, out)?;
        }
        Ok(())
    }
}

/// Returns the names in a path.
pub(super) fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}
