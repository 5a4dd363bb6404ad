//! The test vectors of `docs/wire-format.md`: what stands there is what the code makes, and what
//! another implementation has to make.
//!
//! `UPDATE_VECTORS=1 cargo test -p quorate-wire vectors` writes them into the document.
