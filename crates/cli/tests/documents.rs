//! Runs the console blocks of the documents as they stand there: in order, in fresh directories, and in a network namespace
//! of their own with the usual ports. Where several machines are needed, each is a namespace with its address.
//!
//! A comment of a page, on a line of its own before a block, says what the reader knows from the text:
//!
//! ```text
//! <!-- not run: REASON -->       the block is not run
//! <!-- on HOST -->               it runs on this machine
//! <!-- on each: HOST HOST -->    it runs on each of them; replica-0 in it is replica-1 on 10.0.0.2, and so on
//! <!-- stop -->                  first, Ctrl-C ends what runs in the foreground in all terminals
//! <!-- stop on HOST: WORD -->    the same on one machine, for commands with this word
//! <!-- stop on each: WORD -->    the same, on each machine of `on each`, right before the block runs there
//! <!-- dies: HOST -->            first, this machine is lost with its disk
//! <!-- writes from here: HOST DIR -->
//!                                a client with this directory writes all the time, and none of its operations fails
//! <!-- writes until here -->     it ends behind this block, and behind its repetitions
//! <!-- again: HOST HOST -->      the block before it and it are run once more for each of them, as with `on each`
//! ```
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

#[path = "documents/blocks.rs"]
mod blocks;
#[path = "documents/machines.rs"]
mod machines;
#[path = "support/namespace.rs"]
mod namespace;

use std::fs;

use blocks::{Block, documents};
use machines::Machines;
use namespace::in_namespace;

/// The pages that are run, each group in a fresh directory.
const GROUPS: &[&[&str]] = &[
    &["README.md"],
    &["docs/getting-started.md"],
    &["docs/several-machines.md", "docs/operating.md", "docs/clients.md"],
];

/// Runs a group of pages.
fn run(group: &[&str], test: &str) {
    if !in_namespace(test) {
        return;
    }
    let mut machines = Machines::new(test);
    let all = documents();
    let mut count = 0;
    let of =
        |page: &str| all.iter().filter(|block| block.page == page && block.is_console()).collect::<Vec<_>>();
    let blocks: Vec<&Block> = group.iter().flat_map(|page| of(page)).collect();
    blocks.iter().flat_map(|block| block.named()).for_each(|host| machines.reach(host));
    let mut writer = None;
    for (index, block) in blocks.iter().enumerate() {
        count += usize::from(block.why_not().is_none());
        writer = block.writes().map(|(host, dir)| machines.writer(host, dir)).or(writer);
        block.run(&mut machines, None);
        for host in block.again() {
            blocks[index - 1].run(&mut machines, Some(host));
            block.run(&mut machines, None);
        }
        if block.ends_writing() {
            let (count, gap) = writer.take().unwrap().stop();
            println!("{}: {count} writes without an error, longest gap {} ms", block.page, gap.as_millis());
            assert!(count > 0);
        }
    }
    println!("{count} blocks run");
    assert!(count > 3, "{count} blocks of {group:?}");
}

#[test]
fn the_readme() {
    run(GROUPS[0], "the_readme");
}

#[test]
fn getting_started() {
    run(GROUPS[1], "getting_started");
}

#[test]
fn several_machines() {
    run(GROUPS[2], "several_machines");
}

/// No block is left out without a reason.
#[test]
fn every_console_block_is_run_or_says_why_not() {
    let blocks = documents();
    let left: Vec<String> = blocks
        .iter()
        .filter(|block| block.is_console() && block.why_not().is_none())
        .filter(|block| !GROUPS.iter().any(|group| group.contains(&block.page.as_str())))
        .map(|block| format!("{}:{}", block.page, block.line))
        .collect();
    assert!(left.is_empty(), "neither run nor marked `not run: REASON`: {left:?}");
    for block in blocks.iter().filter(|block| block.is_console()) {
        let unknown: Vec<&str> = block.unknown().collect();
        assert!(unknown.is_empty(), "{}:{}: {unknown:?} is no mark", block.page, block.line);
    }
    let run = blocks.iter().filter(|block: &&Block| block.is_console() && block.why_not().is_none()).count();
    assert!(run > 20, "{run} blocks");
}

/// The root of the repository.
fn root() -> std::path::PathBuf {
    fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).unwrap()
}
