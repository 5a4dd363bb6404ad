//! The loop of a node's process: one thread that polls, steps and sends.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use quorate_service::Service;

use crate::net::idle::{Idle, Waiting};
use crate::net::socket::Socket;
use crate::run::client::{ClientDrive, Done};
use crate::run::clock::Clock;
use crate::run::memory::MemoryProcess;
use quorate_process::{Event, Meter};

/// Maximum number of datagrams taken between two flushes.
const BURST_MAX: usize = 64;

/// Runs a replica until `stop`.
///
/// # Errors
///
/// The sockets have failed.
pub fn run_replica<S: Service>(
    process: &mut MemoryProcess<S>,
    socket: &mut Socket,
    waiting: Waiting,
    stop: &AtomicBool,
) -> io::Result<()> {
    let (mut clock, mut idle, mut rested) = (Clock::new(), Idle::new(waiting), 0);
    process.step(clock.now(), Event::Start, &mut ());
    process.flush(clock.now(), socket, &mut ());
    while !stop.load(Ordering::Relaxed) {
        let looked = clock.look(std::mem::take(&mut rested));
        let mut burst = 0;
        let mut now = None;
        while burst < BURST_MAX
            && let Some((source, datagram)) = socket.receive()?
        {
            burst += 1;
            let event = Event::Datagram { source, bytes: datagram };
            let by = process.step(*now.get_or_insert_with(|| clock.now()), event, &mut ());
            socket.judge(by);
        }
        if process.due() <= looked {
            process.step(now.unwrap_or_else(|| clock.now()), Event::Clock, &mut ());
        }
        process.flush(now.unwrap_or_else(|| clock.now()), socket, &mut ());
        if burst > 0 {
            idle.reset();
        } else {
            rested = idle.rest(looked, process.due(), socket, None, || false)?;
        }
    }
    Ok(())
}

/// A client's process: its drive, its sockets, and one operation at a time.
#[derive(Debug)]
pub struct ClientProcess<M: Meter = ()> {
    drive: ClientDrive<M>,
    socket: Socket,
    waiting: Waiting,
    clock: Clock,
}

impl<M: Meter> ClientProcess<M> {
    /// Returns a client that polls according to `waiting`.
    pub fn new(drive: ClientDrive<M>, socket: Socket, waiting: Waiting) -> Self {
        Self { drive, socket, waiting, clock: Clock::new() }
    }

    /// Runs an operation in lane 0, and passes its result to `result`.
    ///
    /// # Errors
    ///
    /// The sockets have failed.
    pub fn invoke<T>(
        &mut self,
        operation: &[u8],
        read_only: bool,
        result: impl FnOnce(&Done, &[u8]) -> T,
    ) -> io::Result<T> {
        let Self { drive, socket, waiting, clock } = self;
        drive.clear_done();
        clock.look(u64::MAX); // what the caller did since the last operation is its own affair
        drive.invoke(clock.now(), 0, operation, read_only);
        drive.flush(socket);
        let (mut idle, mut rested) = (Idle::new(*waiting), 0);
        loop {
            let looked = clock.look(std::mem::take(&mut rested));
            let mut burst = 0;
            while burst < BURST_MAX
                && let Some((source, datagram)) = socket.receive()?
            {
                burst += 1;
                let by = drive.receive_from(clock.now(), source, datagram);
                socket.judge(by);
                if let Some(done) = drive.done().first() {
                    return Ok(result(done, drive.result(done)));
                }
            }
            if drive.due() <= looked {
                drive.expire(clock.now());
            }
            drive.flush(socket);
            if burst > 0 {
                idle.reset();
            } else {
                rested = idle.rest(looked, drive.due(), socket, None, || false)?;
            }
        }
    }

    /// Returns the drive.
    pub fn drive(&self) -> &ClientDrive<M> {
        &self.drive
    }
}
