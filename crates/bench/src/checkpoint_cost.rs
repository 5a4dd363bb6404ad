//! `checkpoint-cost`: the cost of a checkpoint's digest, by the size of a page, the number of changed pages and the number
//! of all pages (OSDI99 sections 6.3 and 6.4).
//!
//! Two ways to keep a digest of an array of pages up to date, behind one trait: the tree of the product, and a sum of
//! hashes as the paper has it, wide enough to be safe: `LtHash`, the sum of vectors of 1024 numbers of 16 bits.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Result, ensure};
use quorate_service::{Context, Executor, Options, Service, Stop, View};
use quorate_wire::digest::Domains;
use quorate_wire::{Batch, ClientId, ClusterId, Replies, SeqNum, Timestamp};

use crate::effort::Settings;
use crate::experiment::Experiment;
use crate::figure::{Axis, Figure, curve, p50};
use crate::figures::median;
use crate::machine::Machine;
use crate::report::{Report, Row, Shape};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "checkpoint-cost",
    source: "OSDI99 sections 6.3, 6.4",
    about: "time to digest a checkpoint: hash tree and LtHash, pages of 512 to 8192 bytes, by changed pages and all pages",
    run,
    figures,
};

const PAGES: [usize; 3] = [512, 4096, 8192];
/// How much larger the large state is, and how much more it may cost with the same number of changed pages.
const GROWTH_MAX: f64 = 3.0;
/// The least and most that ten times the changed pages may cost.
const PER_PAGE: (f64, f64) = (3.0, 20.0);

/// A digest of an array of pages that is kept up to date.
trait Digests {
    /// Changes a page.
    fn write(&mut self, page: u32, content: &[u8]) -> Result<()>;
    /// Cuts a checkpoint: returns the digest of all pages.
    fn cut(&mut self) -> [u8; 32];
}

/// Writes pages as it is told: the page, then its content.
struct Pages;

impl Service for Pages {
    fn is_read_only(&self, _operation: &[u8]) -> bool {
        false
    }

    fn execute(
        &self,
        _cx: Context,
        operation: &[u8],
        state: &mut View<'_>,
        _out: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let (page, content) = operation.split_first_chunk().ok_or(Stop::Refused)?;
        state.put(u32::from_le_bytes(*page), content)
    }
}

/// The hash tree of quorate, in its executor.
struct Tree {
    executor: Executor<Pages>,
    domains: Domains,
    seq: u64,
    operation: Vec<u8>,
    replies: Replies,
}

impl Tree {
    fn new(page_bytes: usize) -> Result<Self> {
        let domains = Domains::new(ClusterId([1; 32]));
        // One client, whose results are empty.
        let options = Options {
            page_bytes,
            pages_max: 1 << 20,
            clients_max: 16,
            result_bytes_max: 1024,
            checkpoints_max: 2,
            ..Options::default()
        };
        options.check()?;
        let executor = Executor::new(Pages, domains.clone(), options);
        Ok(Self { executor, domains, seq: 0, operation: Vec::new(), replies: Replies::default() })
    }
}

impl Digests for Tree {
    fn write(&mut self, page: u32, content: &[u8]) -> Result<()> {
        self.operation.clear();
        self.operation.extend_from_slice(&page.to_le_bytes());
        self.operation.extend_from_slice(content);
        self.seq += 1;
        let (client, operation) = (ClientId::new(1, 0), &self.operation[..]);
        let mut batch = Batch::default();
        batch.push_operation(&self.domains, client, Timestamp(self.seq), operation);
        batch.seal(&self.domains, &self.seq.to_le_bytes());
        let done = self.executor.execute(SeqNum(self.seq), &batch, false, &mut self.replies);
        ensure!(done.is_ok(), "a page is missing");
        Ok(())
    }

    fn cut(&mut self) -> [u8; 32] {
        self.executor.checkpoint(SeqNum(self.seq)).0
    }
}

/// Numbers of a sum.
const WIDTH: usize = 1024;

/// A sum of hashes: the old digest of a changed page is subtracted, the new one added.
struct LtHash {
    sum: Box<[u16; WIDTH]>,
    /// The digests of the pages as of the last cut.
    leaves: BTreeMap<u32, [u8; 32]>,
    /// The pages written since.
    dirty: BTreeMap<u32, Vec<u8>>,
}

impl LtHash {
    fn new() -> Self {
        Self { sum: Box::new([0; WIDTH]), leaves: BTreeMap::new(), dirty: BTreeMap::new() }
    }

    /// Returns the numbers that stand for a page with this digest.
    fn numbers(leaf: &[u8; 32]) -> impl Iterator<Item = u16> {
        let mut bytes = [0; 2 * WIDTH];
        blake3::Hasher::new_keyed(leaf).finalize_xof().fill(&mut bytes);
        (0..WIDTH).map(move |at| u16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]))
    }
}

impl Digests for LtHash {
    fn write(&mut self, page: u32, content: &[u8]) -> Result<()> {
        self.dirty.insert(page, content.to_vec());
        Ok(())
    }

    fn cut(&mut self) -> [u8; 32] {
        for (page, content) in std::mem::take(&mut self.dirty) {
            let mut hasher = blake3::Hasher::new();
            hasher.update(&page.to_le_bytes()).update(&content);
            let leaf = *hasher.finalize().as_bytes();
            if let Some(old) = self.leaves.insert(page, leaf) {
                self.sum.iter_mut().zip(Self::numbers(&old)).for_each(|(sum, n)| *sum = sum.wrapping_sub(n));
            }
            self.sum.iter_mut().zip(Self::numbers(&leaf)).for_each(|(sum, n)| *sum = sum.wrapping_add(n));
        }
        let mut hasher = blake3::Hasher::new();
        for number in self.sum.iter() {
            hasher.update(&number.to_le_bytes());
        }
        *hasher.finalize().as_bytes()
    }
}

/// Changes `changed` of `there` pages, as far apart as possible, and returns how long the checkpoint takes, in microseconds.
fn cut(digests: &mut dyn Digests, page_bytes: usize, (changed, there): (u32, u32), round: u8) -> Result<f64> {
    let content = vec![round; page_bytes];
    for number in 0..changed {
        digests.write(number * (there / changed) + u32::from(round) % (there / changed), &content)?;
    }
    let start = Instant::now();
    std::hint::black_box(digests.cut());
    Ok(start.elapsed().as_secs_f64() * 1e6)
}

fn run(settings: Settings) -> Result<Report> {
    let (repeats, sizes, changes): (u8, &[u32], &[u32]) = settings.effort.of(
        (21, &[2_000, 20_000], &[10, 100, 1_000]),
        (7, &[2_000, 20_000], &[10, 100, 1_000]),
        (1, &[100, 200], &[10, 100]),
    );
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look("none, nice 0"));
    for page_bytes in PAGES {
        for &there in sizes {
            let (mut tree, mut sum) = (Tree::new(page_bytes)?, LtHash::new());
            let mut ways: [(&str, &mut dyn Digests); 2] = [("tree", &mut tree), ("lthash", &mut sum)];
            for (_, digests) in &mut ways {
                cut(&mut **digests, page_bytes, (there, there), 0)?;
            }
            for &changed in changes {
                let mut samples = [Vec::new(), Vec::new()];
                for round in 1..=repeats {
                    for ((_, digests), samples) in ways.iter_mut().zip(&mut samples) {
                        samples.push(cut(&mut **digests, page_bytes, (changed, there), round)?);
                    }
                }
                for ((system, _), samples) in ways.iter().zip(samples) {
                    report.rows.push(row(system, page_bytes, (changed, there), samples));
                }
            }
        }
    }
    report.shapes = shapes(&report.rows);
    report.notes.push(
        "in one process, without agreement: the time to digest the changed pages and what stands above them; the pages \
         are as far apart as they can be, which is the worst case for the tree"
            .to_owned(),
    );
    report.notes.push(
        "lthash is not part of quorate: a sum has no parts that a replica could request when it fetches the state"
            .to_owned(),
    );
    Ok(report)
}

fn op(changed: u32, there: u32) -> String {
    format!("{changed} of {there}")
}

fn row(system: &str, page_bytes: usize, (changed, there): (u32, u32), samples: Vec<f64>) -> Row {
    Row {
        system: system.to_owned(),
        variant: format!("pages of {page_bytes} B"),
        op: op(changed, there),
        mode: "-".to_owned(),
        clients: 1,
        repeats: samples.len(),
        argument_bytes: usize::try_from(changed).ok(),
        result_bytes: usize::try_from(there).ok(),
        bytes: usize::try_from(changed).ok().map(|changed| changed * page_bytes),
        p50_us: Some(median(&samples)),
        unit: "us".to_owned(),
        samples,
        ..Row::default()
    }
}

fn shapes(rows: &[Row]) -> Vec<Shape> {
    let sorted = |of: fn(&Row) -> Option<usize>| {
        let mut found: Vec<usize> = rows.iter().filter_map(of).collect();
        found.sort_unstable();
        found.dedup();
        found
    };
    let (changes, sizes) = (sorted(|row| row.argument_bytes), sorted(|row| row.result_bytes));
    let (Some(small), Some(large), Some(most)) = (sizes.first(), sizes.last(), changes.last()) else {
        return Vec::new();
    };
    let us = |system: &str, page: usize, changed: usize, there: usize| {
        let is_it = |row: &&Row| {
            row.system == system
                && row.variant == format!("pages of {page} B")
                && (row.argument_bytes, row.result_bytes) == (Some(changed), Some(there))
        };
        rows.iter().find(is_it).and_then(|row| row.p50_us).unwrap_or(f64::NAN)
    };
    let tenth = most / 10;
    PAGES
        .into_iter()
        .flat_map(|page| {
            let growth = us("tree", page, *most, *large) / us("tree", page, *most, *small);
            let each = us("tree", page, *most, *large) / us("tree", page, tenth, *large);
            [
                Shape::new(
                    format!(
                        "tree, pages of {page} B: the cost does not depend on the size of the state: {large} pages instead of {small} \
                         cost at most {GROWTH_MAX} times as much"
                    ),
                    growth <= GROWTH_MAX,
                    format!("{growth:.2} times for {most} changed pages"),
                ),
                Shape::new(
                    format!("tree, pages of {page} B: the cost grows with the changed pages: {most} instead of {tenth}"),
                    (PER_PAGE.0..=PER_PAGE.1).contains(&each),
                    format!("{each:.1} times"),
                ),
            ]
        })
        .collect()
}

fn figures(rows: &[Row]) -> Vec<Figure> {
    let largest = rows.iter().filter_map(|row| row.result_bytes).max();
    let mut figure = Figure::new(
        "cut",
        "The digest of a checkpoint",
        Axis::log("pages changed"),
        Axis::log("microseconds"),
    );
    for system in ["tree", "lthash"] {
        for page in PAGES {
            let variant = format!("pages of {page} B");
            let of = rows
                .iter()
                .filter(|row| row.system == system && row.variant == variant && row.result_bytes == largest);
            figure = figure.with(curve(&format!("{system}, {variant}"), of, crate::figure::argument, p50));
        }
    }
    vec![figure.caption("With the largest state. Dots are the repeats.")]
}

#[cfg(test)]
mod tests {
    use super::*;

    type Way = fn() -> Result<Box<dyn Digests>>;

    /// Both digests depend only on the pages: on every byte, but not on the order of writes. The last write is the same,
    /// because the state has the reply to it.
    #[test]
    fn both_digests_are_of_the_pages() -> Result<()> {
        let ways: [Way; 2] = [|| Ok(Box::new(Tree::new(512)?)), || Ok(Box::new(LtHash::new()))];
        for way in ways {
            let of = |writes: &[(u32, u8)]| -> Result<[u8; 32]> {
                let mut digests = way()?;
                writes.iter().try_for_each(|(page, fill)| digests.write(*page, &[*fill; 512]))?;
                Ok(digests.cut())
            };
            assert_eq!(of(&[(1, 1), (70, 2), (3, 9)])?, of(&[(70, 2), (1, 1), (3, 9)])?);
            assert_ne!(of(&[(1, 1), (70, 2)])?, of(&[(1, 1), (70, 3)])?);
            assert_ne!(of(&[(1, 1), (70, 2)])?, of(&[(1, 2), (70, 1)])?, "who has which is part of it");
        }
        Ok(())
    }

    /// The old content of a page has no effect on a sum.
    #[test]
    fn a_sum_forgets_what_was_written_over() -> Result<()> {
        let (mut one, mut other) = (LtHash::new(), LtHash::new());
        for fill in [1, 2, 3] {
            one.write(7, &[fill; 64])?;
            one.cut();
        }
        other.write(7, &[3; 64])?;
        assert_eq!(one.cut(), other.cut());
        Ok(())
    }
}
