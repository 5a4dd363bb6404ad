//! File handles. They are derived only from the state, so they are the same at all replicas and after every restart.

use crate::settings::Settings;

/// The bytes of a handle.
pub(crate) const HANDLE_BYTES: usize = 24;

/// A handle: `service id 8 | inode 8 | generation 4 | export 4`, big-endian.
///
/// Inode numbers are never reused. The generation is the time at which the inode was created: if a service was set
/// back to an older state, its new files are not mistaken for lost ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) inode: u64,
    pub(crate) generation: u32,
    /// The index of the export that the client uses.
    pub(crate) export: u32,
}

impl Handle {
    /// Returns the handle in `bytes`; none if they are not a handle of this service.
    pub(crate) fn decode(settings: &Settings, bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HANDLE_BYTES] = bytes.try_into().ok()?;
        let (service, rest) = bytes.split_first_chunk()?;
        let (inode, rest) = rest.split_first_chunk()?;
        let (generation, rest) = rest.split_first_chunk()?;
        let export = rest.first_chunk()?;
        (u64::from_be_bytes(*service) == settings.service_id).then_some(Self {
            inode: u64::from_be_bytes(*inode),
            generation: u32::from_be_bytes(*generation),
            export: u32::from_be_bytes(*export),
        })
    }

    /// Returns the handle's bytes.
    pub(crate) fn encode(self, settings: &Settings) -> [u8; HANDLE_BYTES] {
        let mut bytes = [0; HANDLE_BYTES];
        bytes[..8].copy_from_slice(&settings.service_id.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.inode.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.generation.to_be_bytes());
        bytes[20..].copy_from_slice(&self.export.to_be_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_of_one_service() {
        let (ours, other) = (Settings::default(), Settings { service_id: 2, ..Settings::default() });
        let handle = Handle { inode: 1 << 40, generation: 7, export: 3 };
        let bytes = handle.encode(&ours);
        assert_eq!(Handle::decode(&ours, &bytes), Some(handle));
        assert_eq!(Handle::decode(&other, &bytes), None);
        assert_eq!(Handle::decode(&ours, &bytes[1..]), None);
        assert_eq!(Handle::decode(&ours, &[]), None);
    }
}
