//! The state as one execution sees it.

use core::marker::PhantomData;

/// The state as an execution sees it: the pages that agreement has settled, under those that the
/// tentative batch and this operation have written.
///
/// (The protocol's view is a `ViewNum`; this is the other meaning of the word.)
#[derive(Debug)]
pub struct View<'a> {
    lifetime: PhantomData<&'a ()>,
}
