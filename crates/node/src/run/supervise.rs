//! The loop of a node's process: one thread that polls, steps and sends.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use quorate_service::Service;

use crate::net::idle::{Idle, Waiting};
use crate::net::socket::Socket;
use crate::run::clock::Clock;
use crate::run::memory::MemoryProcess;
use crate::run::watch::Stopwatch;
use crate::run::workers::Workers;
use quorate_process::Event;

/// Maximum number of datagrams taken between two flushes.
const BURST_MAX: usize = 64;

/// Runs a replica until `stop`, with its workers if it has any.
///
/// # Errors
///
/// The sockets have failed.
pub fn run_replica<S: Service>(
    process: &mut MemoryProcess<S>,
    socket: &mut Socket,
    waiting: Waiting,
    mut workers: Option<&mut Workers>,
    stop: &AtomicBool,
) -> io::Result<()> {
    let (mut clock, mut idle) = (Clock::new(), Idle::new(waiting));
    let watch = &mut Stopwatch::start();
    process.step(clock.now(), Event::Start, watch);
    process.flush(clock.now(), socket, watch);
    while !stop.load(Ordering::Relaxed) {
        let looked = clock.look(|at| idle.looks(at));
        let mut burst = 0;
        let mut now = None;
        while burst < BURST_MAX
            && let Some((source, datagram)) = socket.receive()?
        {
            burst += 1;
            let event = Event::Datagram { source, bytes: datagram };
            let by = process.step(*now.get_or_insert_with(|| clock.looked()), event, watch);
            socket.judge(by);
        }
        if process.due() <= looked {
            process.step(*now.get_or_insert_with(|| clock.looked()), Event::Clock, watch);
            idle.worked();
        }
        if let Some(workers) = &mut workers {
            let served = workers.serve(process, &clock, watch);
            if served > 0 {
                now.get_or_insert_with(|| clock.looked());
            }
            burst += served;
        }
        match now {
            Some(now) => process.flush(now, socket, watch),
            None => process.send_out(socket), // nothing has happened: no clock to read for it
        }
        if burst > 0 {
            idle.reset();
        } else {
            let has_news = || workers.as_ref().is_some_and(|workers| workers.has_news());
            let waker = workers.as_ref().map(|workers| workers.waker());
            idle.rest(looked, process.due(), socket, waker, has_news)?;
        }
    }
    Ok(())
}
