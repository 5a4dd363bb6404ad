//! WRITE, COMMIT.

use quorate_service::Stop;

use super::attributes::drop_privileges;
use super::{Node, Run, settle};
use crate::caller::WRITE;
use crate::inode::Kind;
use crate::nfs3::{CommitArgs, CommitOk, Outcome, StableHow, Stat, Wcc, WriteArgs, WriteOk, WriteVerf};
use crate::trouble::Done;

impl Run<'_, '_, '_> {
    /// The write verifier. It is constant, because acknowledged data is replicated, and is not lost with a machine.
    fn write_verf(&self) -> WriteVerf {
        self.volume.settings.service_id.to_be_bytes()
    }

    pub(crate) fn write(&mut self, args: &WriteArgs<'_>) -> Result<Outcome<WriteOk, Wcc>, Stop> {
        let before = self.before(&args.file)?;
        let done = self.write_data(args);
        let wcc = self.wcc(&args.file, before)?;
        let done = done.map(|count| WriteOk {
            wcc: wcc.clone(),
            count,
            committed: StableHow::FileSync,
            verf: self.write_verf(),
        });
        settle(done, || Ok(wcc))
    }

    /// Writes as much as there is space for, and returns the number of bytes.
    fn write_data(&mut self, args: &WriteArgs<'_>) -> Done<u32> {
        let Node { number, mut inode, caller, .. } = self.file_to_write(args)?;
        let count = usize::try_from(args.count).unwrap_or(usize::MAX);
        let data = args.data.0.get(..count).ok_or(Stat::Inval)?;
        if data.is_empty() {
            return Ok(0);
        }
        let limit = self.volume.settings.file_bytes_max;
        let within = usize::try_from(limit.saturating_sub(args.offset)).unwrap_or(usize::MAX);
        let data = &data[..data.len().min(within)];
        if data.is_empty() {
            return Err(Stat::FBig.into());
        }
        let fits = self.volume.room(number, &inode, args.offset, data.len())?;
        if fits == 0 {
            return Err(Stat::NoSpc.into());
        }
        // Fewer bytes than were sent is an answer: the client sends the rest, and is told then [RFC1813, on WRITE].
        let fits = self.volume.quota_room(number, &inode, args.offset, fits)?;
        if fits == 0 {
            return Err(Stat::DQuot.into());
        }
        let now = self.volume.tick()?;
        self.volume.write(number, &mut inode, args.offset, &data[..fits])?;
        (inode.mtime, inode.ctime) = (now, now);
        if !caller.is_root() {
            drop_privileges(&mut inode);
        }
        self.volume.put_inode(number, &inode)?;
        Ok(u32::try_from(fits).unwrap_or(u32::MAX))
    }

    fn file_to_write(&self, args: &WriteArgs<'_>) -> Done<Node<'_>> {
        let node = self.node(&args.file)?;
        node.check_writable()?;
        match node.inode.kind {
            Kind::Reg => {}
            Kind::Dir => return Err(Stat::IsDir.into()),
            Kind::Blk | Kind::Chr | Kind::Lnk | Kind::Sock | Kind::Fifo => return Err(Stat::Inval.into()),
        }
        node.check_or_owner(WRITE)?;
        Ok(node)
    }

    /// Nothing to do: every WRITE is stable when it is answered.
    pub(crate) fn commit(&self, args: &CommitArgs<'_>) -> Result<Outcome<CommitOk, Wcc>, Stop> {
        let wcc = self.wcc(&args.file, self.before(&args.file)?)?;
        let done = self.node(&args.file).and_then(|node| match node.inode.kind {
            Kind::Reg => Ok(CommitOk { wcc: wcc.clone(), verf: self.write_verf() }),
            Kind::Dir => Err(Stat::IsDir.into()),
            Kind::Blk | Kind::Chr | Kind::Lnk | Kind::Sock | Kind::Fifo => Err(Stat::Inval.into()),
        });
        settle(done, || Ok(wcc.clone()))
    }
}
