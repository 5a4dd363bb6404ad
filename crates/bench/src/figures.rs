//! Medians and percentiles.

/// Returns the middle one of `samples`, or 0 if there is none.
pub fn median(samples: &[f64]) -> f64 {
    percentile(samples, 50)
}

/// Returns the value that `percent` of `samples` do not exceed, or 0 if there is none.
pub fn percentile(samples: &[f64], percent: usize) -> f64 {
    if !samples.is_sorted_by(|a, b| a.total_cmp(b).is_le()) {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        return percentile(&sorted, percent);
    }
    let sorted = samples;
    let last = sorted.len().saturating_sub(1);
    sorted.get((last * percent).div_ceil(100)).copied().unwrap_or(0.0)
}

/// Returns `amount / count`; 0 if there is nothing to divide by.
#[allow(clippy::cast_precision_loss, reason = "53 bits are enough for figures to look at")]
pub fn ratio(amount: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { amount as f64 / count as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples() {
        let samples: Vec<f64> = (1..=101).rev().map(f64::from).collect();
        assert!((median(&samples) - 51.0).abs() < 1e-9);
        assert!((percentile(&samples, 99) - 100.0).abs() < 1e-9);
        assert!((percentile(&samples, 100) - 101.0).abs() < 1e-9);
        assert!((percentile(&[4.0], 99) - 4.0).abs() < 1e-9);
        assert!(median(&[]).abs() < 1e-9);
    }
}
