//! FSSTAT, FSINFO, PATHCONF.
#![allow(missing_docs, reason = "fields and variants are those of the RFC")]

use alloc::vec::Vec;

use quorate_service::Stop;

use super::{Attr, Face, Fh, NfsTime, TRANSFER_BYTES_MAX, settle};
use crate::rpc::xdr::{Xdr, xdr_struct};

xdr_struct! {
    pub struct FsStatOk {
        pub attributes: Option<Attr>,
        pub tbytes: u64,
        pub fbytes: u64,
        pub abytes: u64,
        pub tfiles: u64,
        pub ffiles: u64,
        pub afiles: u64,
        pub invarsec: u32,
    }

    pub struct FsInfoOk {
        pub attributes: Option<Attr>,
        pub rtmax: u32,
        pub rtpref: u32,
        pub rtmult: u32,
        pub wtmax: u32,
        pub wtpref: u32,
        pub wtmult: u32,
        pub dtpref: u32,
        pub maxfilesize: u64,
        pub time_delta: NfsTime,
        pub properties: u32,
    }

    pub struct PathConfOk {
        pub attributes: Option<Attr>,
        pub linkmax: u32,
        pub name_max: u32,
        pub no_trunc: bool,
        pub chown_restricted: bool,
        pub case_insensitive: bool,
        pub case_preserving: bool,
    }
}

/// The properties of the file system: hard links, symbolic links, uniform answers to PATHCONF, and times that can be
/// set.
const PROPERTIES: u32 = 0x01 | 0x02 | 0x08 | 0x10;
/// The recommended size of READDIR, in bytes.
const DIR_BYTES_PREFERRED: u32 = 64 << 10;

impl Face<'_, '_, '_> {
    pub(super) fn fsstat(&mut self, fh: &Fh<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let done = self.op.fullness(fh.0).map(|(full, attributes)| FsStatOk {
            attributes: Some(Attr::from(&attributes)),
            tbytes: full.bytes,
            fbytes: full.bytes_free,
            abytes: full.bytes_available,
            tfiles: full.files,
            ffiles: full.files_free,
            afiles: full.files_available,
            invarsec: 0,
        });
        settle(done, || self.post(fh))?.encode(out);
        Ok(())
    }

    pub(super) fn fsinfo(&mut self, fh: &Fh<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let transfer = u32::try_from(TRANSFER_BYTES_MAX).unwrap_or(u32::MAX);
        let done = self.op.limits(fh.0).map(|(limits, attributes)| {
            let unit = u32::try_from(limits.page_bytes).unwrap_or(u32::MAX);
            FsInfoOk {
                attributes: Some(Attr::from(&attributes)),
                rtmax: transfer,
                rtpref: transfer,
                rtmult: unit,
                wtmax: transfer,
                wtpref: transfer,
                wtmult: unit,
                dtpref: DIR_BYTES_PREFERRED,
                maxfilesize: limits.file_bytes_max,
                time_delta: NfsTime { seconds: 0, nseconds: 1 },
                properties: PROPERTIES,
            }
        });
        settle(done, || self.post(fh))?.encode(out);
        Ok(())
    }

    pub(super) fn pathconf(&mut self, fh: &Fh<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let done = self.op.limits(fh.0).map(|(limits, attributes)| PathConfOk {
            attributes: Some(Attr::from(&attributes)),
            linkmax: limits.links_max,
            name_max: u32::try_from(limits.name_bytes_max).unwrap_or(u32::MAX),
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        });
        settle(done, || self.post(fh))?.encode(out);
        Ok(())
    }
}
