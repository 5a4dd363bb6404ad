//! Replicas and clients of replication on the sockets of a cell: those of [`crate::bqs::smr`].

use quorate_pbft::Now;
use quorate_pbft::client::Path as Ordering;
use quorate_quorum::step::Path;
use quorate_quorum::version::{Version, value_digest};
use quorate_quorum_sim::history::OperationKind;

use super::station::{Ended, Resident, Work};
use crate::bqs::register::{Stored, read, write};
use crate::bqs::smr::host::{
    Host, Out, Process, START_NS, frames, is_signed, signed_by, time, without_proposals,
};

/// A replica or a client.
pub(super) struct Replication {
    at: usize,
    host: Host,
}

impl Replication {
    pub(super) fn new(at: usize, host: Host) -> Self {
        Self { at, host }
    }

    fn flush(&mut self, now: Now, work: &mut Work) {
        let mut out = Out::default();
        self.host.process.flush(now, &mut out);
        if self.host.silent {
            without_proposals(&mut out);
        }
        work.signs += signed_by(self.at, &out);
        work.sends.extend(out.take());
        let Process::Client(drive) = &mut self.host.process else { return };
        let Some(done) = drive.done().first() else { return };
        let path = (done.path == Ordering::ReadOnly).then_some(Path::Fast);
        let told = Stored::decode(drive.result(done));
        drive.clear_done();
        let version = told.as_ref().map(|told| {
            let digest = value_digest(&told.value);
            let version = Version { val: told.number, client: told.writer, digest };
            if told.number == 0 { Version::GENESIS } else { version }
        });
        work.done = Some(Ended { value: told.map(|told| told.value).unwrap_or_default(), version, path });
    }
}

impl Resident for Replication {
    fn receive(&mut self, now: u64, _from: usize, frame: &[u8], work: &mut Work) {
        frames(frame, |frame| work.verifies += u64::from(is_signed(frame.kind)));
        self.host.process.receive(time(now), frame);
        self.flush(time(now), work);
    }

    fn invoke(&mut self, now: u64, kind: OperationKind, value: &[u8], work: &mut Work) {
        let operation = if kind == OperationKind::Write { write(value) } else { read() };
        if let Process::Client(drive) = &mut self.host.process {
            drive.invoke(time(now), 0, &operation, kind == OperationKind::Read);
        }
        self.flush(time(now), work);
    }

    fn expire(&mut self, now: u64, work: &mut Work) {
        self.host.process.expire(time(now));
        self.flush(time(now), work);
    }

    fn due(&self) -> u64 {
        match self.host.process.due() {
            u64::MAX => u64::MAX,
            due => due.saturating_sub(START_NS),
        }
    }

    /// Its service lies from the start, and so does its silence.
    fn corrupt(&mut self) {}
}
