//! The service behind a gateway: the cluster.

use std::io;
use std::os::fd::AsFd;

use nix::sys::epoll::{Epoll, EpollEvent};
use quorate_pbft::Now;
use quorate_service::registry::RegistryResult;

use super::conversation::{Failure, Requests};
use quorate_node::Meter;
use quorate_node::client::{ClientProcess, End};
use quorate_node::clock::Clock;
use quorate_node::socket::Socket;

/// Maximum number of datagrams between two flushes.
const BURST_MAX: usize = 64;

/// Executes the operations of a gateway. Each lane has one at a time.
pub trait Backing {
    /// Registers with the poller, which reports input.
    ///
    /// # Errors
    ///
    /// The registration failed.
    fn watch(&self, poller: &Epoll, event: EpollEvent) -> io::Result<()>;
    /// Takes input. Returns whether there was any: then there may be more.
    ///
    /// # Errors
    ///
    /// There can be no more input.
    fn receive(&mut self, clock: &Clock) -> io::Result<bool>;
    /// Starts an operation in a free lane.
    fn invoke(&mut self, now: Now, lane: u16, operation: &[u8], read_only: bool);
    /// Returns when a timer is due, in nanoseconds of the monotonic clock.
    fn due(&self) -> u64;
    /// Handles the timers that are due.
    fn expire(&mut self, now: Now);
    /// Sends what was done since the last flush.
    ///
    /// # Errors
    ///
    /// It failed.
    fn flush(&mut self) -> io::Result<()>;
    /// Returns whether there are results.
    fn has_done(&self) -> bool;
    /// Hands out the lanes that are done, each with its result or why it has none.
    fn hand_out(&mut self, each: &mut HandOut<'_>);
    /// Says whether more threads want to run on this machine than there are cores.
    fn set_crowded(&mut self, _crowded: bool) {}
    /// Returns how many requests it has sent to a cluster.
    fn requests(&self) -> Requests {
        Requests::default()
    }
}

/// Takes a lane that is done, and its result.
pub type HandOut<'a> = dyn FnMut(u16, Result<&[u8], Failure>) + 'a;

/// The cluster, through a client with its sockets.
#[derive(Debug)]
pub struct Cluster<M: Meter = ()> {
    /// The client.
    pub drive: ClientProcess<M>,
    /// Its sockets.
    pub socket: Socket,
    /// The number of operations without a result.
    under_way: usize,
}

impl<M: Meter> Cluster<M> {
    /// Returns a cluster without operations.
    pub fn new(drive: ClientProcess<M>, socket: Socket) -> Self {
        Self { drive, socket, under_way: 0 }
    }
}

impl<M: Meter> Backing for Cluster<M> {
    fn watch(&self, poller: &Epoll, event: EpollEvent) -> io::Result<()> {
        Ok(poller.add(self.socket.as_fd(), event)?)
    }

    fn receive(&mut self, clock: &Clock) -> io::Result<bool> {
        let mut burst = 0;
        while burst < BURST_MAX
            && let Some((source, datagram)) = self.socket.receive()?
        {
            burst += 1;
            let by = self.drive.receive_from(clock.looked(), source, datagram);
            self.socket.judge(by);
            let done = self.drive.done().len();
            if done > 0 && done >= self.under_way {
                break; // nobody waits for what else has come: the users get their results first
            }
        }
        Ok(burst > 0)
    }

    fn invoke(&mut self, now: Now, lane: u16, operation: &[u8], read_only: bool) {
        self.under_way += 1;
        self.drive.invoke(now, lane, operation, read_only);
    }

    fn due(&self) -> u64 {
        self.drive.due()
    }

    fn expire(&mut self, now: Now) {
        self.drive.expire(now);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.drive.flush(&mut self.socket);
        Ok(())
    }

    fn has_done(&self) -> bool {
        !self.drive.done().is_empty()
    }

    fn set_crowded(&mut self, crowded: bool) {
        self.drive.set_crowded(crowded);
    }

    fn requests(&self) -> Requests {
        let counters = self.drive.counters();
        Requests { sent: counters.sent, resent: counters.retransmitted }
    }

    fn hand_out(&mut self, each: &mut HandOut<'_>) {
        self.under_way = self.under_way.saturating_sub(self.drive.done().len());
        for done in self.drive.done() {
            each(done.lane, outcome(done.end, self.drive.result(done)));
        }
        self.drive.clear_done();
    }
}

/// Returns the result of an operation, or why it has none. An operation of a gateway is never an order to the registry.
fn outcome(end: End, result: &[u8]) -> Result<&[u8], Failure> {
    match (end, RegistryResult::decode(result)) {
        (End::ResultLost, _) => Err(Failure::ResultLost),
        (End::Overtaken, _) => Err(Failure::Unknown),
        (End::Result, Some(RegistryResult::NoLane)) => Err(Failure::NoLane),
        (End::Result, Some(RegistryResult::NoClient | RegistryResult::NoRight)) => Err(Failure::NotAllowed),
        (End::Result, _) => Ok(result),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L58: what the cluster says of the gateway itself is no result of its user's operation.
    #[test]
    fn l58_a_removed_gateway_has_no_result() {
        let of = |said: RegistryResult| {
            let mut result = Vec::new();
            said.encode(&mut result);
            outcome(End::Result, &result).map(<[u8]>::to_vec)
        };
        assert_eq!(of(RegistryResult::NoClient), Err(Failure::NotAllowed));
        assert_eq!(of(RegistryResult::NoRight), Err(Failure::NotAllowed));
        assert_eq!(of(RegistryResult::NoLane), Err(Failure::NoLane));
        assert_eq!(outcome(End::Result, b"result"), Ok(&b"result"[..]));
    }
}
