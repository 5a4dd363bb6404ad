//! The settings of an executor, with the rules they obey.

use quorate_wire::message::{PAGE_BYTES_MAX, RESULT_BYTES_MAX};

use crate::replies::layout::Layout;

/// The settings of an executor. Those marked "replicated" are the same at all replicas: the digest
/// of the state depends on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a page, a power of two from 512 to 65536. Replicated.
    pub page_bytes: usize,
    /// Maximum number of pages of the state, those of the replies included. Replicated.
    pub pages_max: u32,
    /// The most client lanes with an entry (`MAX_CLIENTS`). Replicated.
    pub clients_max: u32,
    /// The most lanes with an entry that one client has, all others being refused or, if they were not used for
    /// long, forgotten. Never more than half the table. Replicated.
    pub lanes_max: u32,
    /// The longest result that is kept for its client; of longer ones only the digest is
    /// (`RESULT_CACHE`), in bytes. Replicated.
    pub result_bytes_max: usize,
    /// Maximum number of checkpoints held at a time. A process sets `L / K + 32`: more than the window needs, so that
    /// checkpoints can pass while the image of one is copied. At the bound, the oldest checkpoint is discarded.
    pub checkpoints_max: usize,
    /// The most unused page buffers kept for later.
    pub pool_pages_max: usize,
    /// Larger than any number this replica has put on a FETCH before, or they would be taken for
    /// replays (ST-3). The time of day at the start, in nanoseconds, serves.
    pub first_rid: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            page_bytes: 4096,
            pages_max: 1 << 24,
            clients_max: 65_536,
            lanes_max: 256,
            result_bytes_max: 64 << 10,
            checkpoints_max: 4,
            pool_pages_max: 8192,
            first_rid: 1,
        }
    }
}

/// A setting that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionsError {
    /// The key.
    pub key: &'static str,
    /// The value it has.
    pub value: usize,
    /// The rule it breaks.
    pub rule: &'static str,
}

impl core::fmt::Display for OptionsError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} = {}: {}", self.key, self.value, self.rule)
    }
}

impl core::error::Error for OptionsError {}

/// The fewest pages a service has: enough for its own tables.
const SERVICE_PAGES_MIN: u32 = 64;

impl Options {
    /// Checks every rule.
    ///
    /// # Errors
    ///
    /// The first broken rule, with its key and value.
    pub fn check(&self) -> Result<(), OptionsError> {
        let rule = |holds: bool, key: &'static str, value: usize, rule: &'static str| {
            if holds { Ok(()) } else { Err(OptionsError { key, value, rule }) }
        };
        let clients_max = usize::try_from(self.clients_max).unwrap_or(usize::MAX);
        rule(
            self.page_bytes.is_power_of_two() && (512..=PAGE_BYTES_MAX).contains(&self.page_bytes),
            "page_bytes",
            self.page_bytes,
            "a power of two from 512 to 65536 bytes",
        )?;
        rule(
            (1..=65_536).contains(&clients_max),
            "clients_max",
            clients_max,
            "from 1 to 65536 client lanes",
        )?;
        let lanes_max = usize::try_from(self.lanes_max).unwrap_or(usize::MAX);
        rule((1..=65_536).contains(&lanes_max), "lanes_max", lanes_max, "from 1 to 65536 lanes of a client")?;
        rule(
            self.result_bytes_max <= RESULT_BYTES_MAX,
            "result_bytes_max",
            self.result_bytes_max,
            "at most the longest result",
        )?;
        let pages_max = usize::try_from(self.pages_max).unwrap_or(usize::MAX);
        let room = self.layout().and_then(|layout| layout.pages().checked_add(SERVICE_PAGES_MIN));
        rule(
            room.is_some_and(|room| room <= self.pages_max),
            "pages_max",
            pages_max,
            "room for the replies of clients_max lanes, result_bytes_max each, and 64 pages for the service",
        )?;
        rule(self.checkpoints_max >= 2, "checkpoints_max", self.checkpoints_max, "at least 2 checkpoints")
    }

    /// Returns where the replies are; none if there is no room for them.
    pub(crate) fn layout(&self) -> Option<Layout> {
        Layout::new(self.page_bytes, self.clients_max, self.result_bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_setting_is_refused_with_its_key_and_rule() {
        let good = Options::default();
        assert_eq!(good.check(), Ok(()));
        let bad = [
            ("page_bytes", Options { page_bytes: 1000, ..good.clone() }),
            ("page_bytes", Options { page_bytes: 256, ..good.clone() }),
            ("clients_max", Options { clients_max: 0, ..good.clone() }),
            ("lanes_max", Options { lanes_max: 0, ..good.clone() }),
            ("result_bytes_max", Options { result_bytes_max: 4 << 20, ..good.clone() }),
            ("pages_max", Options { pages_max: 1 << 20, ..good.clone() }),
            ("checkpoints_max", Options { checkpoints_max: 1, ..good.clone() }),
        ];
        for (key, options) in bad {
            assert_eq!(options.check().unwrap_err().key, key);
        }
    }
}
