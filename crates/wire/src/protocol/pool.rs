//! Memory of batches, for use again.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use crate::protocol::batch::Batch;

/// Batches whose memory is reused when they are no longer shared.
///
/// Holds at most `max` of them; beyond that, new ones are simply allocated.
#[derive(Debug)]
pub struct BatchPool {
    batches: VecDeque<Arc<Batch>>,
    max: usize,
}

impl BatchPool {
    /// Returns an empty pool of at most `max` batches.
    pub fn new(max: usize) -> Self {
        Self { batches: VecDeque::new(), max }
    }

    /// Returns a batch filled in by `fill`: the one handed out longest ago if it has come back,
    /// otherwise a new one.
    pub fn fill<E>(&mut self, fill: impl FnOnce(&mut Batch) -> Result<(), E>) -> Result<Arc<Batch>, E> {
        let mut batch = match self.batches.pop_front() {
            Some(front) if Arc::strong_count(&front) == 1 => front,
            Some(busy) if self.batches.len() + 1 >= self.max => {
                // Full, and its oldest is still in use: forget that one.
                drop(busy);
                Arc::default()
            }
            Some(busy) => {
                self.batches.push_front(busy);
                Arc::default()
            }
            None => Arc::default(),
        };
        let Some(room) = Arc::get_mut(&mut batch) else { unreachable!("just seen to be the only holder") };
        room.clear();
        let filled = fill(room);
        if batch.may_wait() {
            self.batches.push_back(batch.clone());
        }
        filled.map(|()| batch)
    }
}
