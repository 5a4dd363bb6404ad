//! A checkpoint on its way to a disk and back: its changed pages, or all of it as bytes.

pub(crate) mod bytes;
mod copy;
pub(crate) mod load;

pub use copy::{CopiedPages, ImageCopy};
pub use load::{Checker, ImageError, Loading, difference, is_of_another_form};
