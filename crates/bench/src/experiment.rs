//! What an experiment is.

use anyhow::Result;

use crate::effort::Settings;
use crate::figure::Figure;
use crate::report::{Report, Row};

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// The paper's table or figure that it repeats.
    pub source: &'static str,
    /// A description of what it measures.
    pub about: &'static str,
    /// Runs it.
    pub run: fn(Settings) -> Result<Report>,
    /// Draws the results.
    pub figures: fn(&[Row]) -> Vec<Figure>,
}
