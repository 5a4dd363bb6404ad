//! The services that come with the product.

pub mod kv;
pub mod null;
