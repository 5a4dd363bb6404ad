//! READLINK, READ, WRITE, COMMIT.
#![allow(missing_docs, reason = "fields and variants are those of the RFC")]

use alloc::vec::Vec;

use quorate_service::Stop;

use super::{Attr, Face, Fh, Name, NfsResult, StableHow, TRANSFER_BYTES_MAX, Wcc, WriteVerf, settle};
use crate::op::read::Reading;
use crate::rpc::xdr::{Opaque, Xdr, pad, xdr_struct};

xdr_struct! {
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

    pub struct CommitArgs<'a> {
        pub file: Fh<'a>,
        pub offset: u64,
        pub count: u32,
    }

    pub struct ReadLinkOk<'a> {
        pub attributes: Option<Attr>,
        pub target: Name<'a>,
    }

    pub struct ReadOk<'a> {
        pub attributes: Option<Attr>,
        pub count: u32,
        pub eof: bool,
        pub data: Opaque<'a, TRANSFER_BYTES_MAX>,
    }

    pub struct WriteOk {
        pub wcc: Wcc,
        pub count: u32,
        pub committed: StableHow,
        pub verf: WriteVerf,
    }

    pub struct CommitOk {
        pub wcc: Wcc,
        pub verf: WriteVerf,
    }
}

impl Face<'_, '_, '_> {
    pub(super) fn readlink(&mut self, fh: &Fh<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let target = self.op.read_link(fh.0);
        let attributes = self.post(fh)?;
        let done = target
            .as_ref()
            .map(|target| ReadLinkOk { attributes: attributes.clone(), target: Opaque(target) as Name<'_> });
        settle(done.map_err(|error| *error), || Ok(attributes.clone()))?.encode(out);
        Ok(())
    }

    /// The data is copied directly from its pages to the reply.
    pub(super) fn read(&mut self, args: &ReadArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let asked = usize::try_from(args.count).unwrap_or(usize::MAX).min(TRANSFER_BYTES_MAX);
        let reading = self.op.start_reading(args.file.0, args.offset, asked);
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
                self.op.read_data(&reading, out)?;
                pad(out, count);
            }
            Err(failed) => NfsResult::<(), _>::Err(failed).encode(out),
        }
        Ok(())
    }

    pub(super) fn write(&mut self, args: &WriteArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let before = self.before(&args.file)?;
        let count = usize::try_from(args.count).unwrap_or(usize::MAX);
        let done = self.op.write(args.file.0, args.offset, count, args.data.0);
        let wcc = self.wcc(&args.file, before)?;
        let done = done.map(|count| WriteOk {
            wcc: wcc.clone(),
            count,
            committed: StableHow::FileSync,
            verf: self.write_verf(),
        });
        settle(done, || Ok(wcc))?.encode(out);
        Ok(())
    }

    /// Nothing to do: every WRITE is stable when it is answered.
    pub(super) fn commit(&mut self, args: &CommitArgs<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let wcc = self.wcc(&args.file, self.before(&args.file)?)?;
        let done =
            self.op.check_file(args.file.0).map(|()| CommitOk { wcc: wcc.clone(), verf: self.write_verf() });
        settle(done, || Ok(wcc.clone()))?.encode(out);
        Ok(())
    }

    /// The write verifier. It is constant, because acknowledged data is replicated, and is not lost with a machine.
    fn write_verf(&self) -> WriteVerf {
        self.op.volume_id().to_be_bytes()
    }
}
