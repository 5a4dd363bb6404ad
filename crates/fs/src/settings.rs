//! The settings of a file system. They are the same at all replicas, like the state.

use alloc::string::String;
use alloc::vec::Vec;

use crate::nfs3::Procedure;

/// The settings of a file system, all of them replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Names this file system among all: part of its handles, its `fsid` and its write verifier.
    pub service_id: u64,
    /// What can be mounted, at least one and at most [`Settings::EXPORTS_MAX`].
    pub exports: Vec<Export>,
    /// When reading changes the time of last access.
    pub atime: Atime,
    /// The procedures that may go the short way, as far as they change nothing.
    pub read_only: Procedures,
    /// Calls without a credential are answered, as those of the anonymous user.
    pub auth_none: bool,
    /// Maximum number of bytes that data and tables may fill, in whole pages; if the state has fewer, all of those. It is no part
    /// of the state's layout: a file system may be given more, or less than it has filled.
    pub capacity_bytes: u64,
    /// Maximum number of inodes.
    pub inodes_max: u64,
    /// Maximum number of links to an inode.
    pub links_max: u32,
    /// The largest file, in bytes.
    pub file_bytes_max: u64,
    /// What each user other than root may own.
    pub quota: Quota,
    /// Pages of the reply cache, each with the replies of some calls.
    pub reply_pages: u32,
}

/// What a user may own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Maximum number of bytes of data, in whole pages. What is so short that it stands next to its inode is not counted.
    pub bytes_max: u64,
    /// Maximum number of inodes.
    pub inodes_max: u64,
}

impl Quota {
    /// There is no limit.
    pub const NONE: Self = Self { bytes_max: u64::MAX, inodes_max: u64::MAX };
}

/// A directory that can be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its path, from the root of the file system: `/` or `/a/b`.
    pub path: String,
    /// Nothing can be changed through it.
    pub read_only: bool,
    /// Whose numbers are not believed.
    pub squash: Squash,
    /// The user that the others become.
    pub anonymous_uid: u32,
    /// The group that the others become.
    pub anonymous_gid: u32,
    /// From where it can be mounted and used; nothing: from everywhere. At most
    /// [`Settings::NETWORKS_MAX`].
    pub networks: Vec<Network>,
}

/// Whose numbers are not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// Everyone is believed.
    Nobody,
    /// User 0 and group 0 become the anonymous ones.
    Root,
    /// Everyone becomes the anonymous user.
    Everyone,
}

/// The addresses that begin as one of them does. Addresses have 16 bytes; one of version 4 is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// An address.
    pub address: [u8; 16],
    /// How many of its bits count, at most 128.
    pub bits: u8,
}

/// When reading changes the time of last access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atime {
    /// Each time, as in the paper's file system: every read is ordered.
    Strict,
    /// If it is not later than the last change, or a day old: only then a read is ordered.
    Relatime,
    /// Never.
    None,
}

/// A set of procedures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Procedures(u32);

impl Procedures {
    /// No procedure.
    pub const NONE: Self = Self(0);

    /// Returns the set of these procedures.
    pub fn of(procedures: &[Procedure]) -> Self {
        Self(procedures.iter().fold(0, |bits, procedure| bits | 1 << (*procedure as u32)))
    }

    /// Returns whether a procedure is among them.
    pub fn has(self, procedure: Procedure) -> bool {
        self.0 >> (procedure as u32) & 1 == 1
    }

    /// Returns those that change nothing, except an access time.
    pub fn reading() -> Self {
        use Procedure::{
            Access, FsInfo, FsStat, GetAttr, Lookup, Null, PathConf, Read, ReadDir, ReadDirPlus, ReadLink,
        };
        Self::of(&[
            Null,
            GetAttr,
            Lookup,
            Access,
            ReadLink,
            Read,
            ReadDir,
            ReadDirPlus,
            FsStat,
            FsInfo,
            PathConf,
        ])
    }
}

impl Network {
    /// Returns whether an address is in the network.
    pub fn has(&self, address: &[u8; 16]) -> bool {
        let shift = 128_u32.saturating_sub(u32::from(self.bits));
        let differ = u128::from_be_bytes(self.address) ^ u128::from_be_bytes(*address);
        differ.checked_shr(shift).unwrap_or(0) == 0
    }
}

impl Export {
    /// Returns the export of a directory as `exportfs` has it without options, but writable: root is
    /// squashed.
    pub fn of(path: &str) -> Self {
        Self {
            path: path.into(),
            read_only: false,
            squash: Squash::Root,
            anonymous_uid: 65_534,
            anonymous_gid: 65_534,
            networks: Vec::new(),
        }
    }

    /// Returns whether it may be used from an address.
    pub fn admits(&self, address: &[u8; 16]) -> bool {
        self.networks.is_empty() || self.networks.iter().any(|network| network.has(address))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            service_id: 1,
            exports: alloc::vec![Export::of("/")],
            atime: Atime::Relatime,
            read_only: Procedures::reading(),
            auth_none: false,
            capacity_bytes: 64 << 30,
            inodes_max: 1 << 32,
            links_max: 1 << 24,
            file_bytes_max: 16 << 40,
            quota: Quota::NONE,
            reply_pages: 1024,
        }
    }
}

/// A setting that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingsError {
    /// The key.
    pub key: &'static str,
    /// The rule it breaks.
    pub rule: &'static str,
}

impl core::fmt::Display for SettingsError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}: {}", self.key, self.rule)
    }
}

impl core::error::Error for SettingsError {}

impl Settings {
    /// Maximum number of exports.
    pub const EXPORTS_MAX: usize = 64;
    /// Maximum number of networks of an export.
    pub const NETWORKS_MAX: usize = 64;
    /// The largest file that there can be, in bytes.
    pub const FILE_BYTES_MAX: u64 = 16 << 40;
    /// The least capacity, in bytes: some pages more than are kept for tables.
    pub const CAPACITY_BYTES_MIN: u64 = 1 << 20;
    /// The least that a user may have, in bytes: a page.
    pub const QUOTA_BYTES_MIN: u64 = 4 << 10;

    /// Checks every rule.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), SettingsError> {
        let rule = |holds: bool, key, rule| if holds { Ok(()) } else { Err(SettingsError { key, rule }) };
        rule((1..=Self::EXPORTS_MAX).contains(&self.exports.len()), "exports", "from 1 to 64 directories")?;
        for export in &self.exports {
            let is_path = export.path.starts_with('/') && export.path.len() <= crate::mount3::PATH_BYTES_MAX;
            rule(is_path, "exports.path", "starts with / and has at most 1024 bytes")?;
            rule(export.networks.len() <= Self::NETWORKS_MAX, "exports.networks", "at most 64")?;
            rule(export.networks.iter().all(|n| n.bits <= 128), "exports.networks", "at most 128 bits")?;
        }
        rule(self.capacity_bytes >= Self::CAPACITY_BYTES_MIN, "capacity", "at least 1 MiB")?;
        rule(self.quota.bytes_max >= Self::QUOTA_BYTES_MIN, "quota_bytes", "at least 4 KiB, a page")?;
        rule(self.quota.inodes_max >= 1, "quota_inodes", "at least 1")?;
        rule(self.inodes_max >= 1, "inodes_max", "at least the root's")?;
        rule((2..=i32::MAX.unsigned_abs()).contains(&self.links_max), "links_max", "from 2 to 2^31 - 1")?;
        rule(self.file_bytes_max <= Self::FILE_BYTES_MAX, "file_bytes_max", "at most 16 TiB")?;
        rule((1..=1 << 20).contains(&self.reply_pages), "reply_pages", "from 1 to 2^20 pages")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_the_beginning_of_its_addresses() {
        let v4 = |a, b, c, d| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d];
        let network = Network { address: v4(10, 1, 0, 0), bits: 96 + 16 };
        assert!(network.has(&v4(10, 1, 255, 3)) && !network.has(&v4(10, 2, 0, 0)));
        assert!(Network { address: [7; 16], bits: 0 }.has(&v4(1, 2, 3, 4)));
        assert!(!Network { address: v4(1, 2, 3, 4), bits: 128 }.has(&v4(1, 2, 3, 5)));
    }

    #[test]
    fn settings_obey_their_rules() {
        assert_eq!(Settings::default().check(), Ok(()));
        let none = Settings { exports: Vec::new(), ..Settings::default() };
        assert_eq!(none.check().unwrap_err().key, "exports");
        let relative = Settings { exports: alloc::vec![Export::of("a")], ..Settings::default() };
        assert_eq!(relative.check().unwrap_err().key, "exports.path");
        let links = Settings { links_max: 1, ..Settings::default() };
        assert_eq!(links.check().unwrap_err().key, "links_max");
        for (quota, key) in [
            (Quota { bytes_max: 4095, ..Quota::NONE }, "quota_bytes"),
            (Quota { inodes_max: 0, ..Quota::NONE }, "quota_inodes"),
        ] {
            assert_eq!(Settings { quota, ..Settings::default() }.check().unwrap_err().key, key);
        }
        let small = Settings { capacity_bytes: (1 << 20) - 1, ..Settings::default() };
        assert_eq!(small.check().unwrap_err().key, "capacity");
    }

    #[test]
    fn a_set_has_what_it_was_made_of() {
        let set = Procedures::of(&[Procedure::GetAttr, Procedure::Commit]);
        let has: Vec<_> = Procedure::ALL.iter().filter(|p| set.has(**p)).collect();
        assert_eq!(has, [&Procedure::GetAttr, &Procedure::Commit]);
        assert!(!Procedures::reading().has(Procedure::Write));
    }
}
