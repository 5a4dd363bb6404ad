//! What stands behind a door: the cluster.

use std::io;
use std::os::fd::AsFd;

use nix::sys::epoll::{Epoll, EpollEvent};
use quorate_pbft::Now;
use quorate_service::people::Answer;

use super::Failure;
use crate::client::{ClientDrive, End};
use crate::clock::Clock;
use crate::meter::Meter;
use crate::socket::Socket;

/// The most datagrams between two flushes.
const BURST_MAX: usize = 64;

/// Who does the operations that come through a door. Each lane has one at a time.
pub trait Backing {
    /// Has the poller tell when something comes.
    ///
    /// # Errors
    ///
    /// It cannot.
    fn watch(&self, poller: &Epoll, event: EpollEvent) -> io::Result<()>;
    /// Takes what has come. Says whether there was anything.
    ///
    /// # Errors
    ///
    /// Nothing can come any more.
    fn receive(&mut self, clock: &Clock) -> io::Result<bool>;
    /// Has a lane that is free do an operation.
    fn invoke(&mut self, now: Now, lane: u16, operation: &[u8], read_only: bool);
    /// Returns when something is due, in nanoseconds of the monotonic clock.
    fn due(&self) -> u64;
    /// Does what is due.
    fn expire(&mut self, now: Now);
    /// Lets out what was done since the last flush.
    ///
    /// # Errors
    ///
    /// It cannot be done.
    fn flush(&mut self) -> io::Result<()>;
    /// Says whether there are results.
    fn has_done(&self) -> bool;
    /// Hands out the lanes that are done, each with its result; none: that was lost.
    fn hand_out(&mut self, each: &mut dyn FnMut(u16, Result<&[u8], Failure>));
}

/// The cluster: a client of it, with its sockets.
#[derive(Debug)]
pub struct Cluster<M: Meter = ()> {
    /// The client.
    pub drive: ClientDrive<M>,
    /// Its own.
    pub socket: Socket,
}

impl<M: Meter> Backing for Cluster<M> {
    fn watch(&self, poller: &Epoll, event: EpollEvent) -> io::Result<()> {
        Ok(poller.add(self.socket.as_fd(), event)?)
    }

    fn receive(&mut self, clock: &Clock) -> io::Result<bool> {
        let mut burst = 0;
        while burst < BURST_MAX
            && let Some(datagram) = self.socket.receive()?
        {
            burst += 1;
            self.drive.receive(clock.now(), datagram);
        }
        Ok(burst > 0)
    }

    fn invoke(&mut self, now: Now, lane: u16, operation: &[u8], read_only: bool) {
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

    fn hand_out(&mut self, each: &mut dyn FnMut(u16, Result<&[u8], Failure>)) {
        for done in self.drive.done() {
            let result = self.drive.result(done);
            each(
                done.lane,
                match done.end {
                    End::Result if Answer::decode(result) == Some(Answer::NoLane) => Err(Failure::NoLane),
                    End::Result => Ok(result),
                    End::ResultLost => Err(Failure::ResultLost),
                    End::Overtaken => Err(Failure::Unknown),
                },
            );
        }
        self.drive.clear_done();
    }
}
