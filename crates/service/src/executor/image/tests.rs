//! What goes to a disk a bit at a time is, at its end, the checkpoint.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use quorate_wire::{ClientId, Replies};

use super::*;
use crate::builtin::kv::{Kv, Operation};
use crate::image::ImageError;
use crate::testing::{Xorshift, batch, domains, options};

/// A disk that keeps the newest version of each page.
type Pages = BTreeMap<u32, (PageLabel, Box<[u8]>)>;

fn executor() -> Executor<Kv> {
    Executor::new(Kv, domains(), options())
}

/// Executes a batch that stores or deletes some keys.
fn change(executor: &mut Executor<Kv>, random: &mut Xorshift, keys: u64) {
    let seq = executor.last_executed().next();
    let key = random.below(keys).to_le_bytes();
    let value = alloc::vec![u8::try_from(random.below(256)).unwrap(); 700];
    let mut operation = Vec::new();
    if random.below(4) == 0 {
        Operation::Del { key: &key }.encode(&mut operation);
    } else {
        Operation::Put { key: &key, value: &value }.encode(&mut operation);
    }
    let batch = batch(&[(ClientId::new(1, 0), seq.0, &operation)], 0);
    executor.execute(seq, &batch, false, &mut Replies::new()).unwrap();
}

/// Copies at most `pages_max` pages to a disk. Returns whether the checkpoint is still held.
fn copy(executor: &mut Executor<Kv>, saving: &mut ImageCopy, pages_max: usize, disk: &mut Pages) -> bool {
    let mut copied = CopiedPages::default();
    if !executor.save(saving, pages_max, &mut copied) {
        return false;
    }
    let mut content = copied.content().chunks(512);
    for label in copied.labels() {
        if label.digest == Digest::ZERO {
            disk.remove(&label.page);
        } else {
            disk.insert(label.page, (*label, content.next().unwrap().into()));
        }
    }
    true
}

fn load(disk: &Pages, seq: SeqNum, root: Digest) -> (Executor<Kv>, Result<(), ImageError>) {
    let mut other = executor();
    let mut loading = other.begin_load();
    for (label, content) in disk.values() {
        loading.take(label, content, None, true);
    }
    let ended = other.end_load(loading, seq, root);
    (other, ended)
}

/// The state changes while it is copied, copying is overtaken now and then: what is complete is a checkpoint,
/// and only what has changed is copied.
#[test]
fn what_was_copied_is_the_checkpoint() {
    let (mut complete, mut overtaken) = (0, 0);
    for seed in 0..60 {
        let (mut random, mut executor, mut disk) = (Xorshift::new(seed), executor(), Pages::new());
        let (mut saving, mut newest): (Option<ImageCopy>, SeqNum) = (None, SeqNum(0));
        for _ in 0..400 {
            change(&mut executor, &mut random, 40);
            let seq = executor.last_executed();
            if seq.0.is_multiple_of(4) {
                executor.checkpoint(seq);
                if random.below(8) > 0 {
                    executor.discard(0, saving.as_ref().map_or(seq, ImageCopy::seq));
                }
                if saving.is_none() {
                    // One that is older than the newest, as the stable one mostly is.
                    let held: Vec<_> =
                        executor.checkpoints().map(|(seq, _)| seq).filter(|seq| *seq > newest).collect();
                    let at = random.below(u64::try_from(held.len()).unwrap());
                    newest = held[usize::try_from(at).unwrap()];
                    saving = executor.begin_save(newest);
                }
            }
            let Some(mut going) = saving.take() else { continue };
            if random.below(2) == 0 {
                saving = Some(going);
                continue;
            }
            if !copy(&mut executor, &mut going, 7, &mut disk) {
                executor.abandon_save(going);
                overtaken += 1;
            } else if going.is_done() {
                let (other, ended) = load(&disk, going.seq(), going.root());
                assert_eq!(ended, Ok(()), "seed {seed}, checkpoint {}", going.seq().0);
                assert_eq!(other.recompute(), going.root());
                complete += 1;
            } else {
                saving = Some(going);
            }
        }
    }
    assert!(complete > 500 && overtaken > 20, "{complete} complete, {overtaken} overtaken");
}

/// D5: a page that is empty at one checkpoint, not at the next, and empty again at the newest has the same label at two
/// of them. The image of the one in between has it.
#[test]
fn d5_a_page_that_was_there_for_one_checkpoint_is_copied() {
    let (mut executor, mut disk) = (executor(), Pages::new());
    let (mut put, mut del) = (Vec::new(), Vec::new());
    Operation::Put { key: b"k", value: &[1; 700] }.encode(&mut put);
    Operation::Del { key: b"k" }.encode(&mut del);
    for (seq, operation) in (1..).map(SeqNum).zip([&del, &put, &del]) {
        let batch = batch(&[(ClientId::new(1, 0), seq.0, operation)], 0);
        executor.execute(seq, &batch, false, &mut Replies::new()).unwrap();
        executor.checkpoint(seq);
    }
    for seq in (1..=3).map(SeqNum) {
        let mut saving = executor.begin_save(seq).unwrap();
        assert!(copy(&mut executor, &mut saving, usize::MAX, &mut disk) && saving.is_done());
        assert_eq!(load(&disk, seq, saving.root()).1, Ok(()), "checkpoint {}", seq.0);
    }
}

/// A page costs its copy only when it has changed.
#[test]
fn only_what_has_changed_is_copied() {
    let (mut random, mut executor) = (Xorshift::new(1), executor());
    let saved = |executor: &mut Executor<Kv>| {
        let seq = executor.last_executed();
        executor.checkpoint(seq);
        let mut saving = executor.begin_save(seq).unwrap();
        let mut copied = CopiedPages::default();
        assert!(executor.save(&mut saving, usize::MAX, &mut copied) && saving.is_done());
        copied.labels().len()
    };
    (0..200).for_each(|_| change(&mut executor, &mut random, 200));
    let whole = saved(&mut executor);
    change(&mut executor, &mut random, 1);
    let few = saved(&mut executor);
    assert!(whole > 200 && few < 12, "{whole} pages, then {few}");
}

/// Pages that are no whole state are none; a transfer finds the good ones and asks for the rest.
#[test]
fn a_damaged_page_is_noticed_and_the_others_are_kept() {
    let (mut random, mut one, mut disk) = (Xorshift::new(3), executor(), Pages::new());
    (0..60).for_each(|_| change(&mut one, &mut random, 30));
    let seq = one.last_executed();
    let root = one.checkpoint(seq);
    let mut saving = one.begin_save(seq).unwrap();
    assert!(copy(&mut one, &mut saving, usize::MAX, &mut disk));
    assert_eq!(load(&disk, seq, root).1, Ok(()));
    let pages: Vec<u32> = disk.keys().copied().collect();
    for page in &pages {
        let mut bad = disk.clone();
        bad.get_mut(page).unwrap().1[100] ^= 1;
        let (other, ended) = load(&bad, seq, root);
        assert!(matches!(ended, Err(ImageError::WrongRoot { .. })), "page {page}");
        assert_eq!((other.last_executed(), other.pages_kept()), (SeqNum(0), pages.len() - 1));
        let mut gone = disk.clone();
        gone.remove(page);
        assert!(load(&gone, seq, root).1.is_err(), "page {page} is not there");
    }
    // The content of one page with the label of another.
    let (a, b) = (pages[0], pages[1]);
    let mut swapped = disk.clone();
    swapped.insert(a, (disk[&a].0, disk[&b].1.clone()));
    assert!(load(&swapped, seq, root).1.is_err());
    assert!(load(&disk, seq, Digest([1; 32])).1.is_err(), "another root");
}
