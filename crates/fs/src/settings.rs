//! The settings of a file system. They are the same at all replicas, like the state.

use alloc::string::String;
use alloc::vec::Vec;

use crate::types::OpKinds;

/// The settings of a file system, all of them replicated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A unique id of this file system: part of its handles, its `fsid` and its write verifier.
    pub service_id: u64,
    /// The exports: at least one, at most [`Settings::EXPORTS_MAX`].
    pub exports: Vec<Export>,
    /// When reading updates the access time.
    pub atime: Atime,
    /// The operations that may be served without ordering, as far as they change nothing.
    pub read_only: OpKinds,
    /// Whether calls without a credential are answered, as calls of the anonymous user.
    pub auth_none: bool,
    /// Maximum bytes of data and tables, in whole pages; if the state has fewer pages, all of those. It is not part
    /// of the state's layout: it can be raised, or lowered below the present use.
    pub capacity_bytes: u64,
    /// Maximum number of inodes.
    pub inodes_max: u64,
    /// Maximum number of links to an inode.
    pub links_max: u32,
    /// Maximum size of a file, in bytes.
    pub file_bytes_max: u64,
    /// The quota of each user except root.
    pub quota: Quota,
    /// Pages of the reply cache, each with the replies of some calls.
    pub reply_pages: u32,
}

/// The quota of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Maximum bytes of data, in whole pages. Inline data is not counted.
    pub bytes_max: u64,
    /// Maximum number of inodes.
    pub inodes_max: u64,
}

impl Quota {
    /// There is no limit.
    pub const NONE: Self = Self { bytes_max: u64::MAX, inodes_max: u64::MAX };
}

/// An exported directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its path, from the root of the file system: `/` or `/a/b`.
    pub path: String,
    /// Whether it is read-only.
    pub read_only: bool,
    /// Which users are squashed.
    pub squash: Squash,
    /// The user that they become.
    pub anonymous_uid: u32,
    /// The group that they become.
    pub anonymous_gid: u32,
    /// The networks from which it can be mounted and used; none: any address. At most [`Settings::NETWORKS_MAX`].
    pub networks: Vec<Network>,
}

/// Which users are squashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    /// None.
    Nobody,
    /// User 0 and group 0 become the anonymous ones.
    Root,
    /// Everyone becomes the anonymous user.
    Everyone,
}

/// The addresses with a common prefix. Addresses have 16 bytes; IPv4 addresses are mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// An address.
    pub address: [u8; 16],
    /// The length of the prefix in bits, at most 128.
    pub bits: u8,
}

/// When reading updates the access time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atime {
    /// Always, as in the paper's file system: every read is ordered.
    Strict,
    /// If it is not later than the last change, or is a day old: only such reads are ordered.
    Relatime,
    /// Never.
    None,
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
    /// Maximum length of a path, in bytes.
    pub const PATH_BYTES_MAX: usize = 1024;

    /// Returns the export of a directory with the defaults of `exportfs`, but writable: root is squashed.
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
            read_only: OpKinds::ALL,
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
    /// Maximum size of any file, in bytes.
    pub const FILE_BYTES_MAX: u64 = 16 << 40;
    /// Minimum capacity, in bytes: some pages more than are reserved for tables.
    pub const CAPACITY_BYTES_MIN: u64 = 1 << 20;
    /// Minimum quota of a user, in bytes: a page.
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
            let is_path = export.path.starts_with('/') && export.path.len() <= Export::PATH_BYTES_MAX;
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
}
