//! Reading a state back from a disk, page by page.
//!
//! A page that is read back is trusted only if its digest matches. If every page is valid and together they give the
//! root, they are the state. Otherwise the valid ones are kept: a state transfer finds them by their digests
//! and fetches only the others.

use alloc::vec::Vec;

use quorate_wire::Digest;
use quorate_wire::codec::DecodeError;
use quorate_wire::digest::Domains;

use crate::options::Options;
use crate::page::{Page, PageLabel};
use crate::state::arrival::{Arrival, Arrivals};
use crate::state::tree::{Label, Tree};

/// The form of what this crate itself keeps in a state: last replies, shares, clients. It was 0 before a reply's digest
/// told which request it answers, and before clients had shares.
const STATE_FORMAT: u32 = 1;

/// Says whether a state of this shape is in the form of an earlier version.
pub fn is_of_another_form(shape: &[u8; 16]) -> bool {
    u32::from(shape[15]) != STATE_FORMAT
}

/// Why the bytes of an image are not a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// They are not an image of this version, or are cut short.
    Malformed,
    /// They are of a cluster with another page size, number of pages or number of clients.
    OtherOptions,
    /// The state's digest is not the one that the image gives: the disk has changed it.
    WrongRoot {
        /// The root in the image.
        said: Digest,
        /// The root computed from its pages.
        found: Digest,
    },
}

impl core::fmt::Display for ImageError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Malformed => write!(f, "not a checkpoint image, or cut short"),
            Self::OtherOptions => write!(f, "a checkpoint image of a cluster with other options"),
            Self::WrongRoot { said, found } => {
                write!(f, "a damaged checkpoint image: its root is {said}, its pages give {found}")
            }
        }
    }
}

impl core::error::Error for ImageError {}

impl From<DecodeError> for ImageError {
    fn from(_: DecodeError) -> Self {
        Self::Malformed
    }
}

/// Returns the options that a state depends on, as bytes.
pub(crate) fn shape(options: &Options) -> [u8; 16] {
    let small = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    // Each of them is from 1 to 2^16.
    let lanes = options.lanes_max.saturating_sub(1) << 16 | options.clients_max.saturating_sub(1);
    let fields = [
        small(options.page_bytes),
        options.pages_max,
        lanes,
        small(options.result_bytes_max) | STATE_FORMAT << 24,
    ];
    let mut shape = [0; 16];
    for (bytes, field) in shape.chunks_exact_mut(4).zip(fields) {
        bytes.copy_from_slice(&field.to_le_bytes());
    }
    shape
}

/// Returns the name of the first option that two shapes have with different values, and the values.
pub fn difference(before: &[u8; 16], now: &[u8; 16]) -> Option<(&'static str, u32, u32)> {
    let names = ["page_bytes", "pages_max", "clients_max", "client_lanes_max", "result_bytes_max"];
    let options = fields(before).into_iter().zip(fields(now));
    names
        .into_iter()
        .zip(options)
        .find_map(|(name, (before, now))| (before != now).then_some((name, before, now)))
}

/// Returns the options in a shape.
fn fields(shape: &[u8; 16]) -> [u32; 5] {
    let [page_bytes, pages_max, lanes, result_bytes] = core::array::from_fn(|at| {
        u32::from_le_bytes([shape[4 * at], shape[4 * at + 1], shape[4 * at + 2], shape[4 * at + 3]])
    });
    [page_bytes, pages_max, (lanes & 0xffff) + 1, (lanes >> 16) + 1, result_bytes & 0xff_ffff]
}

/// A whole state from a disk, checked.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) arrivals: Arrivals,
    /// Those of them that can be read again, each at a place of the store.
    pub(crate) places: Vec<(PageLabel, u32)>,
}

/// Returns pages as a state transfer takes them, one of each. What can be read again is not kept in memory.
fn leftover(found: Vec<StoredPage>) -> Arrivals {
    let dropped = found.into_iter().map(|mut found| {
        if found.place.is_some() {
            found.content = None;
        }
        (found.page, found.label, found.arrival())
    });
    let mut leftover: Vec<_> = dropped.collect();
    leftover.dedup_by_key(|(page, _, _)| *page);
    leftover
}

/// A page that was found on a disk, and is good.
#[derive(Debug)]
struct StoredPage {
    page: u32,
    label: Label,
    /// It is in memory, or can be read at this place of the store, or both.
    content: Option<Page>,
    place: Option<u32>,
}

impl StoredPage {
    fn as_label(&self) -> PageLabel {
        self.label.of_page(self.page)
    }

    fn arrival(self) -> Arrival {
        match (self.content, self.place) {
            (None, Some(place)) => Arrival::Stored(place),
            (content, _) => Arrival::New(content),
        }
    }
}

/// Checks pages that are read from a disk one at a time.
#[derive(Debug)]
pub struct Checker {
    tree: Tree,
}

impl Checker {
    /// Returns one for the pages of a cluster.
    pub fn new(domains: Domains) -> Self {
        Self { tree: Tree::new(domains, 1) }
    }

    /// Returns whether this is the content of the page that a label is about.
    pub fn fits(&mut self, label: &PageLabel, content: &[u8]) -> bool {
        self.tree.leaf(label.page, label.modified, Some(content)).digest == label.digest
    }
}

/// Pages from a disk, on their way to become the state.
#[derive(Debug)]
pub struct Loading {
    tree: Tree,
    pages_max: u32,
    page_bytes: usize,
    pages: Vec<StoredPage>,
    damaged: usize,
}

impl Loading {
    /// Returns one without pages.
    pub(crate) fn new(domains: Domains, options: &Options) -> Self {
        Self {
            tree: Tree::new(domains, options.pages_max),
            pages_max: options.pages_max,
            page_bytes: options.page_bytes,
            pages: Vec::new(),
            damaged: 0,
        }
    }

    /// Returns the pages, if every page was good and together they give the root `said`. If not, the good ones are
    /// returned for a state transfer.
    pub(crate) fn finish(self, said: Digest) -> Result<Loaded, (ImageError, Arrivals)> {
        let Self { mut tree, mut pages, damaged, .. } = self;
        pages.sort_unstable_by_key(|found| found.page);
        tree.set_leaves(pages.iter().map(|found| (found.page, found.label)));
        let is_twice = pages.windows(2).any(|two| two[0].page == two[1].page);
        if damaged > 0 || is_twice || tree.root() != said {
            return Err((ImageError::WrongRoot { said, found: tree.root() }, leftover(pages)));
        }
        let places = pages.iter().filter_map(|found| Some((found.as_label(), found.place?))).collect();
        let arrivals = pages.into_iter().map(|found| (found.page, found.label, found.arrival())).collect();
        Ok(Loaded { arrivals, places })
    }

    /// Returns the good ones of the pages: what they are the state of is not known.
    pub(crate) fn into_leftover(self) -> Arrivals {
        let mut pages = self.pages;
        pages.sort_unstable_by_key(|found| found.page);
        leftover(pages)
    }

    /// Takes a page as the disk has it. Returns whether it is the one that its label is about; if not, it is
    /// counted and dropped. With a place of the store where it can be read again, it is kept in memory only if
    /// `keep`.
    pub fn take(&mut self, label: &PageLabel, content: &[u8], place: Option<u32>, keep: bool) -> bool {
        let found = self.tree.leaf(label.page, label.modified, Some(content));
        let is_good =
            found.digest == label.digest && label.page < self.pages_max && content.len() == self.page_bytes;
        if is_good {
            let content = (keep || place.is_none()).then(|| Page::from(content));
            self.pages.push(StoredPage { page: label.page, label: found, content, place });
        } else {
            self.damaged += 1;
        }
        is_good
    }

    /// Counts a page that could not be read.
    pub fn miss(&mut self) {
        self.damaged += 1;
    }

    /// Returns how many pages were good, and how many were not.
    pub fn count(&self) -> (usize, usize) {
        (self.pages.len(), self.damaged)
    }
}
