//! How long the service takes for a request, as its driver measures it, and how many requests a batch may have, so that
//! no replica is at work on one batch for long (PR-7).
//!
//! A replica that executes neither hears the others nor answers them. A batch with many slow operations would keep all
//! replicas silent for longer than a time-out, and a view change would undo it and execute it again.

/// Of what was observed, one part in this many gives way to each new batch.
const FORGOTTEN_PART: u64 = 8;
/// The estimate of a batch's time falls by one part in this many of the difference.
const FALL_PART: u64 = 64;

/// What executions take.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Time and requests of the last batches, the newest counting most.
    time_ns: u64,
    requests: u64,
    /// The time for a request of the last batch.
    last_ns: u64,
    /// What one batch takes: rises at once, falls slowly.
    batch_ns: u64,
}

impl Pace {
    /// Notes that a batch of `requests` took `took_ns`.
    pub(crate) fn note(&mut self, requests: usize, took_ns: u64) {
        let requests = u64::try_from(requests).unwrap_or(u64::MAX).max(1);
        // Sums, not a mean of means: a small batch during which the process waited for a processor says little.
        self.time_ns = (self.time_ns - self.time_ns / FORGOTTEN_PART).saturating_add(took_ns);
        self.requests = (self.requests - self.requests / FORGOTTEN_PART).saturating_add(requests);
        self.last_ns = took_ns / requests;
        let fall = self.batch_ns.saturating_sub(took_ns) / FALL_PART;
        self.batch_ns = (self.batch_ns - fall).max(took_ns);
    }

    /// Returns how many requests a batch may have so that it takes no longer than `within_ns`; at least one.
    pub(crate) fn requests_within(&self, within_ns: u64) -> usize {
        // The last batch counts alone, too: when operations become slow, that shows in one batch.
        let each_ns = (self.time_ns / self.requests.max(1)).max(self.last_ns);
        let most = within_ns.checked_div(each_ns).unwrap_or(u64::MAX).max(1);
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// Returns what one batch takes.
    pub(crate) fn batch_ns(&self) -> u64 {
        self.batch_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn slow_operations_make_small_batches() {
        let mut pace = Pace::default();
        assert_eq!(pace.requests_within(50 * MS), usize::MAX, "nothing is known");
        (0..100).for_each(|_| pace.note(1000, 5 * MS));
        assert_eq!(pace.requests_within(50 * MS), 10_000);
        // They become slow: the first batch shows it.
        pace.note(1, 60 * MS);
        assert_eq!(pace.requests_within(50 * MS), 1, "never less");
        assert_eq!(pace.batch_ns(), 60 * MS);
        pace.note(10, 20 * MS);
        assert_eq!(pace.requests_within(50 * MS), 25);
        (0..100).for_each(|_| pace.note(1000, 5 * MS));
        assert!((9_000..=10_000).contains(&pace.requests_within(50 * MS)), "and it is forgotten");
        assert!(pace.batch_ns() < 20 * MS);
    }

    /// One batch for which the process did not get a processor is not what requests take.
    #[test]
    fn one_hiccup_is_forgotten_with_the_next_batch() {
        let mut pace = Pace::default();
        (0..100).for_each(|_| pace.note(50, MS / 4));
        pace.note(1, 10 * MS);
        pace.note(50, MS / 4);
        assert!(pace.requests_within(50 * MS) > 1_000);
    }
}
