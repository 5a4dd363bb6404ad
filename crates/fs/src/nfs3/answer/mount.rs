//! The procedures of MOUNT: from a path to the first handle, and the list of reported mounts.
//!
//! A mount is recorded under the client's address and the export, so the list is bounded: at most [`MOUNTS_MAX`].
//! Further mounts are not recorded, because the list is only for information.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::Ipv6Addr;

use quorate_service::Stop;

use crate::error::OpError;
use crate::nfs3::mount3::{ExportEntry, FLAVORS, MountEntry, MountName, MountReply, MountStat, Path};
use crate::op::Op;
use crate::op::read::components;
use crate::rpc::xdr::{Opaque, Xdr};
use crate::settings::{Export, Network};
use crate::volume::MOUNTS_USED_AT;
use crate::volume::bytes::next_of;
use crate::volume::directory::NAME_BYTES_MAX;
use crate::volume::handle::Handle;

/// Maximum number of recorded mounts.
const MOUNTS_MAX: u64 = 4096;

impl Op<'_, '_, '_> {
    /// Appends the result of MNT.
    pub(crate) fn mnt(&mut self, path: &Path<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let found = match self.mount(path.0) {
            Ok(found) => found,
            Err(stat) => {
                MountReply::Failed(stat?).encode(out);
                return Ok(());
            }
        };
        self.note(found.export)?;
        let handle = found.encode(self.volume.settings);
        MountReply::Done { handle: Opaque(&handle), flavors: FLAVORS.to_vec() }.encode(out);
        Ok(())
    }

    /// Finds the directory of a path that is an export, or is below one.
    fn mount(&self, path: &[u8]) -> Result<Handle, Result<MountStat, Stop>> {
        let (index, export) = self.export_of(path).ok_or(Ok(MountStat::Access))?;
        if !export.admits(&self.address) {
            return Err(Ok(MountStat::Access));
        }
        if components(path).any(|name| name.len() > NAME_BYTES_MAX) {
            return Err(Ok(MountStat::NameTooLong));
        }
        let number = self.walk(path).map_err(Err)?.ok_or(Ok(MountStat::NoEnt))?;
        let inode = self.volume.known_inode(number).map_err(Err)?;
        if !inode.is_dir() {
            return Err(Ok(MountStat::NotDir));
        }
        Ok(Handle { inode: number, generation: inode.generation, export: index })
    }

    /// Returns the export that contains a path, if there is one. The longest one decides: a nested export has its own
    /// rules.
    fn export_of(&self, path: &[u8]) -> Option<(u32, &Export)> {
        (0..)
            .zip(&self.volume.settings.exports)
            .filter(|(_, export)| is_within(path, export.path.as_bytes()))
            .max_by_key(|(_, export)| components(export.path.as_bytes()).count())
    }

    /// Records that an export has been mounted.
    fn note(&mut self, export: u32) -> Result<(), Stop> {
        let key = mount_key(&self.address, export);
        let used = self.volume.number(MOUNTS_USED_AT)?;
        let is_noted = self.volume.mounts.get(self.volume.view, &key)?.is_some();
        if is_noted || used >= MOUNTS_MAX || self.volume.available_pages()? == 0 {
            return Ok(());
        }
        match self.volume.mounts.insert(self.volume.view, &key, &[]).map_err(OpError::from) {
            Ok(_) => self.volume.set_number(MOUNTS_USED_AT, used + 1),
            Err(OpError::Stop(stop)) => Err(stop),
            Err(OpError::Refused(_)) => Err(Stop::Refused),
        }
    }

    /// Forgets the mount of a path's export from this address: the one that MNT of that path has recorded.
    pub(crate) fn umnt(&mut self, path: &Path<'_>) -> Result<(), Stop> {
        let Some((index, _)) = self.export_of(path.0) else { return Ok(()) };
        self.forget(index)
    }

    /// Forgets all mounts from this address.
    pub(crate) fn umntall(&mut self) -> Result<(), Stop> {
        (0..).zip(&self.volume.settings.exports).try_for_each(|(index, _)| self.forget(index))
    }

    fn forget(&mut self, export: u32) -> Result<(), Stop> {
        if self.volume.mounts.remove(self.volume.view, &mount_key(&self.address, export))? {
            let used = self.volume.number(MOUNTS_USED_AT)?;
            self.volume.set_number(MOUNTS_USED_AT, used.checked_sub(1).ok_or(Stop::Corrupt)?)?;
        }
        Ok(())
    }

    /// Appends the result of DUMP.
    pub(crate) fn dump(&self, out: &mut Vec<u8>) -> Result<(), Stop> {
        let mut cursor = self.volume.mounts.first(self.volume.view)?;
        while let Some((key, _)) = next_of(&mut cursor, self.volume.view, &[])? {
            let (address, export) = key.split_first_chunk::<16>().ok_or(Stop::Corrupt)?;
            let export = export.first_chunk().map(|index| u32::from_be_bytes(*index)).ok_or(Stop::Corrupt)?;
            let index = usize::try_from(export).unwrap_or(usize::MAX);
            let Some(export) = self.volume.settings.exports.get(index) else { continue };
            let host = shown(address);
            true.encode(out);
            MountEntry { host: Opaque(host.as_bytes()), dir: Opaque(export.path.as_bytes()) }.encode(out);
        }
        false.encode(out);
        Ok(())
    }

    /// Appends the result of EXPORT.
    pub(crate) fn export(&self, out: &mut Vec<u8>) {
        for export in &self.volume.settings.exports {
            let groups: Vec<String> = export.networks.iter().map(network).collect();
            let groups: Vec<MountName<'_>> = groups.iter().map(|name| Opaque(name.as_bytes())).collect();
            true.encode(out);
            ExportEntry { dir: Opaque(export.path.as_bytes()), groups }.encode(out);
        }
        false.encode(out);
    }
}

fn mount_key(address: &[u8; 16], export: u32) -> [u8; 20] {
    let mut key = [0; 20];
    key[..16].copy_from_slice(address);
    key[16..].copy_from_slice(&export.to_be_bytes());
    key
}

/// Returns whether a path is equal to another or below it.
fn is_within(path: &[u8], other: &[u8]) -> bool {
    let mut names = components(path);
    path.first() == Some(&b'/') && components(other).all(|name| names.next() == Some(name))
}

fn shown(address: &[u8; 16]) -> String {
    let address = Ipv6Addr::from(*address);
    address.to_ipv4_mapped().map_or_else(|| format!("{address}"), |v4| format!("{v4}"))
}

fn network(network: &Network) -> String {
    let is_v4 = Ipv6Addr::from(network.address).to_ipv4_mapped().is_some() && network.bits >= 96;
    let bits = if is_v4 { network.bits - 96 } else { network.bits };
    format!("{}/{bits}", shown(&network.address))
}
