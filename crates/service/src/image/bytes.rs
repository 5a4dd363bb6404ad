//! A whole checkpoint as bytes, for a simulated disk.
//!
//! ```text
//! magic 8 | page bytes 4 | pages max 4 | clients max 4 | result bytes max 4 | seq 8 | root 32
//! | digest of all that 32 | (page 4 | lm 8 | content)*, in increasing order
//! ```
//!
//! An image read from a disk is trusted only if its digests match. (The root covers the state but not its number, so
//! the head has its own digest.)

use alloc::vec::Vec;

use quorate_wire::codec::{Reader, Writer};
use quorate_wire::digest::Domains;
use quorate_wire::{Digest, SeqNum};

use crate::image::load::ImageError;
use crate::options::Options;
use crate::page::PageStore;
use crate::state::State;
use crate::state::arrival::{Arrival, Arrivals};
use crate::state::tree::Tree;

/// Names the format and its version.
const MAGIC: [u8; 8] = *b"quorImg2";
/// Bytes before the digest of the head.
const HEAD_BYTES: usize = 68;

/// A page as it stands in an image: its number, its `lm`, its content.
type StoredPage<'a> = (u32, SeqNum, &'a [u8]);

/// Appends checkpoint `seq` of a state to `out` as bytes. Returns whether it is held.
pub(crate) fn write<P: PageStore>(
    state: &State<P>,
    (domains, options): (&Domains, &Options),
    seq: SeqNum,
    out: &mut Vec<u8>,
) -> bool {
    let Some(root) = state.root_at(seq) else { return false };
    let start = out.len();
    write_head(options, seq, &root, &mut Writer::new(out));
    let head = domains.node(&out[start..]);
    let (mut out, mut buffer) = (Writer::new(out), Vec::new());
    out.digest(&head);
    for page in state.pages_at(seq) {
        let Some(content) = state.page_at(seq, page, &mut buffer) else { continue };
        out.u32(page);
        out.u64(state.label_at(seq, 0, page).modified.0);
        out.bytes(content);
    }
    true
}

/// Reads an image and checks it in full. Returns the checkpoint, its root and its pages.
pub(crate) fn read(
    image: &[u8],
    domains: &Domains,
    options: &Options,
) -> Result<(SeqNum, Digest, Arrivals), ImageError> {
    let (head, rest) = image.split_at_checked(HEAD_BYTES).ok_or(ImageError::Malformed)?;
    let mut reader = Reader::new(rest);
    if !head.starts_with(&MAGIC) || reader.digest()? != domains.node(head) {
        return Err(ImageError::Malformed);
    }
    let mut tail = Reader::new(&head[HEAD_BYTES - 40..]);
    let (seq, said) = (SeqNum(tail.u64()?), tail.digest()?);
    let mut expected = Vec::new();
    write_head(options, seq, &said, &mut Writer::new(&mut expected));
    if head != expected {
        return Err(ImageError::OtherOptions);
    }
    let mut tree = Tree::new(domains.clone(), options.pages_max);
    let mut arrivals = Arrivals::new();
    for (page, modified, content) in read_pages(reader, options, seq)? {
        let label = tree.leaf(page, modified, Some(content));
        arrivals.push((page, label, Arrival::New(Some(content.into()))));
    }
    tree.set_leaves(arrivals.iter().map(|(page, label, _)| (*page, *label)));
    if tree.root() != said {
        return Err(ImageError::WrongRoot { said, found: tree.root() });
    }
    Ok((seq, said, arrivals))
}

fn read_pages<'a>(
    mut reader: Reader<'a>,
    options: &Options,
    seq: SeqNum,
) -> Result<Vec<StoredPage<'a>>, ImageError> {
    let mut pages = Vec::new();
    while !reader.is_empty() {
        let (page, modified) = (reader.u32()?, SeqNum(reader.u64()?));
        let content = reader.bytes(options.page_bytes)?;
        let follows = pages.last().is_none_or(|(before, _, _)| *before < page);
        if !follows || page >= options.pages_max || modified > seq {
            return Err(ImageError::Malformed);
        }
        pages.push((page, modified, content));
    }
    Ok(pages)
}

fn write_head(options: &Options, seq: SeqNum, root: &Digest, out: &mut Writer<'_>) {
    let small = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    out.bytes(&MAGIC);
    out.u32(small(options.page_bytes));
    out.u32(options.pages_max);
    out.u32(options.clients_max);
    out.u32(options.lanes_max);
    out.u32(small(options.result_bytes_max));
    out.u64(seq.0);
    out.digest(root);
}
