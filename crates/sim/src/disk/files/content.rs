//! What of the bytes of a file is durable, and what a crash leaves.

use super::{Content, Remains, SECTOR};
use crate::rng::Rng;

impl Content {
    pub(super) fn write(&mut self, bytes: &[u8], at: usize) {
        let end = at + bytes.len();
        for sector in at / SECTOR..end.div_ceil(SECTOR) {
            let Self { bytes, before, failed, .. } = self;
            failed.remove(&sector);
            before.entry(sector).or_insert_with(|| {
                let mut was = [0; SECTOR];
                let from = (sector * SECTOR).min(bytes.len());
                let there = &bytes[from..bytes.len().min(from + SECTOR)];
                was[..there.len()].copy_from_slice(there);
                was
            });
        }
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
        }
        self.bytes[at..end].copy_from_slice(bytes);
        self.writes.insert(at, bytes.len());
    }

    pub(super) fn sync(&mut self) {
        self.before.retain(|sector, _| self.failed.contains(sector));
        self.durable_len = self.bytes.len();
    }

    pub(super) fn fail_sync(&mut self) {
        self.failed.extend(self.before.keys());
    }

    pub(super) fn settle(&mut self) {
        self.sync();
        for (sector, was) in core::mem::take(&mut self.before) {
            let from = (sector * SECTOR).min(self.bytes.len());
            let end = self.bytes.len().min(from + SECTOR);
            self.bytes[from..end].copy_from_slice(&was[..end - from]);
        }
        self.failed.clear();
    }

    pub(super) fn crash(&mut self, rng: &mut Rng, remains: Remains) {
        let mut sectors: Vec<(usize, [u8; SECTOR])> = core::mem::take(&mut self.before).into_iter().collect();
        let mut torn = usize::MAX;
        self.failed.clear();
        match remains {
            Remains::Behind => sectors.truncate(rng.index(sectors.len() + 1)),
            Remains::Nothing => self.bytes.truncate(self.durable_len),
            Remains::Torn => {
                // Only sectors with something new can be torn.
                let is_new = |(sector, was): &&(usize, [u8; SECTOR])| {
                    self.bytes.iter().skip(sector * SECTOR).zip(was).any(|(now, was)| now != was)
                };
                let count = sectors.iter().filter(is_new).count();
                sectors.drain(..rng.index(count));
                torn = 0;
            }
            Remains::Any => {
                if rng.one_in(4) {
                    self.bytes.truncate(self.durable_len);
                } else if !sectors.is_empty() {
                    match rng.below(3) {
                        0 => sectors.clear(),
                        1 => _ = sectors.drain(..rng.index(sectors.len() + 1)),
                        _ => sectors.retain(|_| rng.one_in(2)),
                    }
                }
                torn = rng.index(sectors.len() + 1);
            }
        }
        for (index, (sector, was)) in sectors.into_iter().enumerate() {
            let from = sector * SECTOR;
            let end = self.bytes.len().min(from + SECTOR);
            if from >= end {
                continue;
            }
            // Of a torn sector, the first half is new, of what has changed in it at least.
            let changed = self.bytes[from..end].iter().zip(&was).rposition(|(now, was)| now != was);
            let half = if index == torn { changed.map_or(0, |last| last.div_ceil(2)) } else { 0 };
            self.bytes[from + half..end].copy_from_slice(&was[half..end - from]);
        }
        self.durable_len = self.bytes.len();
    }
}
