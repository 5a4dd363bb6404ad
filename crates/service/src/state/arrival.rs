//! Pages that an installation makes part of the state.

use alloc::vec::Vec;

use crate::page::Page;
use crate::state::tree::Label;

/// The source of an installed page's content.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// This is it; none: the page is empty.
    New(Option<Page>),
    /// It can be read at this place of the store.
    Stored(u32),
    /// It is what stands there now.
    Current,
    /// It is what stood there at the checkpoint that the installation builds on.
    Base,
}

/// The pages to install, with their labels, in increasing order.
pub(crate) type Arrivals = Vec<(u32, Label, Arrival)>;
