//! Checkers of histories (§14).
//!
//! | Part | Module |
//! |---|---|
//! | versions rise with time (white box, 14.1) | [`versions`] |
//! | values are those of a register (black box, 14.2) | [`values`] |
//! | any order that explains a small history (14.3) | [`general`] |
//! | what a stopped client can still make visible (14.4) | [`lurking`] |

pub mod general;
pub mod lurking;
pub mod values;
pub mod versions;

use crate::history::History;

/// Checks a history by versions and by values, and returns the first thing that is wrong.
pub fn check(history: &History) -> Result<(), String> {
    versions::check(history)?;
    values::check(history)
}
