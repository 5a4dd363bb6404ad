//! The loop of a replica's process, with slow operations.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

mod cluster;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster::Cluster;
use quorate_service::{Context, Service, Stop, View};

/// Each operation takes 30 ms. Notes the place of each in its batch.
#[derive(Clone, Default)]
struct Slow {
    places: Arc<Mutex<Vec<u32>>>,
}

impl Service for Slow {
    fn is_read_only(&self, _operation: &[u8]) -> bool {
        false
    }

    fn execute(&self, cx: Context, _: &[u8], _: &mut View<'_>, _: &mut Vec<u8>) -> Result<(), Stop> {
        self.places.lock().unwrap().push(cx.index);
        std::thread::sleep(Duration::from_millis(30));
        Ok(())
    }
}

/// PR-7: the loop measures executions. Two such operations would keep a replica silent for more than 50 ms, so once one
/// was executed, no batch has two.
#[test]
fn pr7_batches_of_slow_operations_are_small() {
    let service = Slow::default();
    let cluster = Cluster::in_processes(service.clone());
    let caller = cluster.caller(8);
    caller.call(b"first", false).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..2).for_each(|_| assert!(caller.call(b"slow", false).unwrap().is_empty())));
        }
    });
    let places = service.places.lock().unwrap();
    assert!(places.iter().all(|place| *place == 0), "{places:?}");
}
