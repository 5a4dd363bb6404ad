//! Statistics of one cell of an experiment.

/// Latencies and what they amount to.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    sorted: Vec<f64>,
}

impl Samples {
    /// Takes the samples of a cell.
    pub fn new(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        Self { sorted: samples }
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Says whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    fn count(&self) -> f64 {
        f64::from(u32::try_from(self.sorted.len()).unwrap_or(u32::MAX))
    }

    /// Returns the mean.
    pub fn mean(&self) -> f64 {
        if self.is_empty() { 0.0 } else { self.sorted.iter().sum::<f64>() / self.count() }
    }

    /// Returns the standard deviation of the sample.
    pub fn deviation(&self) -> f64 {
        if self.len() < 2 {
            return 0.0;
        }
        let mean = self.mean();
        let squares: f64 = self.sorted.iter().map(|sample| (sample - mean).powi(2)).sum();
        (squares / (self.count() - 1.0)).sqrt()
    }

    /// Returns half of the 95 % interval of the mean, by the normal distribution.
    pub fn interval(&self) -> f64 {
        if self.is_empty() { 0.0 } else { 1.96 * self.deviation() / self.count().sqrt() }
    }

    /// Returns a percentile, by the nearest rank.
    pub fn percentile(&self, percent: f64) -> f64 {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rank in the list")]
        let rank = (percent / 100.0 * self.count()).ceil() as usize;
        self.sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_known_sample() {
        let samples = Samples::new((1..=100).map(f64::from).collect());
        assert!((samples.mean() - 50.5).abs() < 1e-9);
        assert!((samples.deviation() - 29.011_491).abs() < 1e-5);
        assert!((samples.interval() - 5.686_25).abs() < 1e-4);
        assert!((samples.percentile(50.0) - 50.0).abs() < 1e-9);
        assert!((samples.percentile(99.0) - 99.0).abs() < 1e-9);
        assert!(Samples::new(Vec::new()).mean() == 0.0);
    }
}
