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
use quorate_wire::{Digest, SeqNum};

use crate::executor::Executor;
use crate::image::load::ImageError;
use crate::options::Options;
use crate::page::PageStore;
use crate::service::Service;
use crate::state::arrival::Arrival;
use crate::state::tree::{Label, Tree};

/// Names the format and its version.
const MAGIC: [u8; 8] = *b"quorImg2";
/// Bytes before the digest of the head.
const HEAD_BYTES: usize = 68;

/// A page as it stands in an image: its number, its `lm`, its content.
type StoredPage<'a> = (u32, SeqNum, &'a [u8]);

impl<S: Service, P: PageStore> Executor<S, P> {
    /// Appends checkpoint `seq` to `out` as bytes. Returns whether it is held.
    pub fn image(&self, seq: SeqNum, out: &mut Vec<u8>) -> bool {
        let Some(root) = self.state.root_at(seq) else { return false };
        let start = out.len();
        write_head(&self.options, seq, &root, &mut Writer::new(out));
        let head = self.domains.node(&out[start..]);
        let (mut out, mut buffer) = (Writer::new(out), Vec::new());
        out.digest(&head);
        for page in self.state.pages_at(seq) {
            let Some(content) = self.state.page_at(seq, page, &mut buffer) else { continue };
            out.u32(page);
            out.u64(self.state.label_at(seq, 0, page).modified.0);
            out.bytes(content);
        }
        true
    }

    /// Replaces the state by that of an image, which becomes the only checkpoint, and returns its
    /// number and root. Ends a transfer in progress.
    ///
    /// # Errors
    ///
    /// The bytes are not an image, or not of this cluster, or were changed since. Nothing has changed
    /// then: the image is checked in full before.
    pub fn restore(&mut self, image: &[u8]) -> Result<(SeqNum, Digest), ImageError> {
        let (head, rest) = image.split_at_checked(HEAD_BYTES).ok_or(ImageError::Malformed)?;
        let mut reader = Reader::new(rest);
        if !head.starts_with(&MAGIC) || reader.digest()? != self.domains.node(head) {
            return Err(ImageError::Malformed);
        }
        let mut tail = Reader::new(&head[HEAD_BYTES - 40..]);
        let (seq, said) = (SeqNum(tail.u64()?), tail.digest()?);
        let mut expected = Vec::new();
        write_head(&self.options, seq, &said, &mut Writer::new(&mut expected));
        if head != expected {
            return Err(ImageError::OtherOptions);
        }
        let pages = self.read_pages(reader, seq)?;

        let mut tree = Tree::new(self.domains.clone(), self.options.pages_max);
        let labels: Vec<Label> =
            pages.iter().map(|&(page, modified, content)| tree.leaf(page, modified, Some(content))).collect();
        tree.set_leaves(pages.iter().map(|(page, _, _)| *page).zip(labels.iter().copied()));
        if tree.root() != said {
            return Err(ImageError::WrongRoot { said, found: tree.root() });
        }
        let content = pages.iter().map(|(_, _, content)| Arrival::New(Some(self.state.copy(content))));
        let arrivals =
            pages.iter().zip(labels).zip(content).map(|((page, label), new)| (page.0, label, new)).collect();
        let installed = self.state.install(self.state.newest(), seq, true, arrivals);
        assert_eq!(installed, said, "the image has been checked");
        self.walk = None;
        self.adopt(seq);
        Ok((seq, said))
    }

    fn read_pages<'a>(&self, mut reader: Reader<'a>, seq: SeqNum) -> Result<Vec<StoredPage<'a>>, ImageError> {
        let mut pages = Vec::new();
        while !reader.is_empty() {
            let (page, modified) = (reader.u32()?, SeqNum(reader.u64()?));
            let content = reader.bytes(self.options.page_bytes)?;
            let follows = pages.last().is_none_or(|(before, _, _)| *before < page);
            if !follows || page >= self.options.pages_max || modified > seq {
                return Err(ImageError::Malformed);
            }
            pages.push((page, modified, content));
        }
        Ok(pages)
    }
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
