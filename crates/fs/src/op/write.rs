//! Writing data.

use super::attributes::drop_privileges;
use super::{Node, Op};
use crate::error::{Done, Why};
use crate::op::caller::WRITE;
use crate::types::FileKind;

impl Op<'_, '_, '_> {
    /// Writes the first `count` bytes of what was sent, as far as there is space, and returns the number of bytes.
    pub(crate) fn write(&mut self, file: &[u8], offset: u64, count: usize, sent: &[u8]) -> Done<u32> {
        let Node { number, mut inode, caller, .. } = self.file_to_write(file)?;
        let data = sent.get(..count).ok_or(Why::Inval)?;
        if data.is_empty() {
            return Ok(0);
        }
        let limit = self.volume.settings().file_bytes_max;
        let within = usize::try_from(limit.saturating_sub(offset)).unwrap_or(usize::MAX);
        let data = &data[..data.len().min(within)];
        if data.is_empty() {
            return Err(Why::FBig.into());
        }
        let fits = self.volume.room(number, &inode, offset, data.len())?;
        if fits == 0 {
            return Err(Why::NoSpc.into());
        }
        // Fewer bytes than were sent is an answer: the client sends the rest, and is told then [RFC1813, on WRITE].
        let fits = self.volume.quota_room(number, &inode, offset, fits)?;
        if fits == 0 {
            return Err(Why::DQuot.into());
        }
        let now = self.volume.tick()?;
        self.volume.write(number, &mut inode, offset, &data[..fits])?;
        (inode.mtime, inode.ctime) = (now, now);
        if !caller.is_root() {
            drop_privileges(&mut inode);
        }
        self.volume.put_inode(number, &inode)?;
        Ok(u32::try_from(fits).unwrap_or(u32::MAX))
    }

    fn file_to_write(&self, file: &[u8]) -> Done<Node<'_>> {
        let node = self.node(file)?;
        node.check_writable()?;
        match node.inode.kind {
            FileKind::Reg => {}
            FileKind::Dir => return Err(Why::IsDir.into()),
            FileKind::Blk | FileKind::Chr | FileKind::Lnk | FileKind::Sock | FileKind::Fifo => {
                return Err(Why::Inval.into());
            }
        }
        node.check_or_owner(WRITE)?;
        Ok(node)
    }

    /// Checks that a handle is of a file with data.
    pub(crate) fn check_file(&self, file: &[u8]) -> Done<()> {
        match self.node(file)?.inode.kind {
            FileKind::Reg => Ok(()),
            FileKind::Dir => Err(Why::IsDir.into()),
            FileKind::Blk | FileKind::Chr | FileKind::Lnk | FileKind::Sock | FileKind::Fifo => {
                Err(Why::Inval.into())
            }
        }
    }
}
