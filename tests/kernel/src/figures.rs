//! Figures of several runs.

/// Returns the middle one, or the middle of the middle two; 0 if there is none.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(0.0);
    match sorted.len() {
        0 => 0.0,
        len if len % 2 == 1 => at(len / 2),
        len => f64::midpoint(at(len / 2 - 1), at(len / 2)),
    }
}
