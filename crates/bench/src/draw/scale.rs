//! Maps figures to positions on a drawing, and chooses the round figures at an axis.

/// An axis of a drawing.
pub(super) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    /// The positions of the low and the high end.
    ends: (f64, f64),
    step: f64,
}

impl Scale {
    /// Returns a scale for these values: from zero, or, if logarithmic, from the power of ten below.
    pub(super) fn new(values: impl Iterator<Item = f64>, log: bool, ends: (f64, f64)) -> Self {
        let (least, most) = values
            .filter(|value| value.is_finite() && (!log || *value > 0.0))
            .fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
        if log {
            let least = if least.is_finite() { least } else { 1.0 };
            let low = 10_f64.powf((least * 1.0001).log10().floor());
            let high = nice_above(most.max(low * 2.0));
            return Self { low, high, log, ends, step: 0.0 };
        }
        let most = if most > 0.0 { most } else { 1.0 };
        let step = round_step(most);
        Self { low: 0.0, high: (most / step).ceil() * step, log, ends, step }
    }

    /// Returns a scale with this number of places.
    pub(super) fn places(count: usize, ends: (f64, f64)) -> Self {
        let count = whole(count.max(1));
        Self { low: -0.5, high: count - 0.5, log: false, ends, step: 1.0 }
    }

    /// Returns the position of a value.
    pub(super) fn at(&self, value: f64) -> f64 {
        let part = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.ends.0 + (self.ends.1 - self.ends.0) * part.clamp(0.0, 1.0)
    }

    /// Returns whether it is logarithmic.
    pub(super) fn is_log(&self) -> bool {
        self.log
    }

    /// Returns the distance of two values that differ by one.
    pub(super) fn step(&self) -> f64 {
        (self.at(1.0) - self.at(0.0)).abs()
    }

    /// Returns the values at the axis.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let mut ticks = Vec::new();
        if self.log {
            let factors: &[f64] = if self.high / self.low > 2e3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let mut power = self.low;
            while power <= self.high * 1.0001 {
                let fits = factors.iter().map(|factor| factor * power).filter(|v| *v <= self.high * 1.0001);
                ticks.extend(fits.map(|value| (value, short(value))));
                power *= 10.0;
            }
            return ticks;
        }
        let mut value = self.low;
        while value <= self.high + self.step / 2.0 {
            ticks.push((value, short(value)));
            value += self.step;
        }
        ticks
    }
}

/// Returns the least of 1, 2 and 5 times a power of ten that is not below `value`.
fn nice_above(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|f| f * power).find(|v| *v >= value * 0.9999).unwrap_or(10.0 * power)
}

/// Returns the distance of the lines of a scale up to `max`: 1, 2 or 5 times a power of ten, at most eight of
/// them.
fn round_step(max: f64) -> f64 {
    let power = 10_f64.powf((max / 8.0).log10().floor());
    let fits = |factor: &f64| max / (power * factor) <= 8.0;
    [1.0, 2.0, 5.0].into_iter().find(fits).unwrap_or(10.0) * power
}

/// Formats a figure briefly: `12.5 k`, `0.25`.
pub(super) fn short(value: f64) -> String {
    let bare = |value: f64, decimals: usize| {
        let text = format!("{value:.decimals$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
    };
    match value.abs() {
        v if v >= 1e6 => format!("{} M", bare(value / 1e6, 2)),
        v if v >= 1e4 => format!("{} k", bare(value / 1e3, 1)),
        v if v >= 100.0 => bare(value, 0),
        v if v >= 10.0 => bare(value, 1),
        v if v >= 0.01 => bare(value, 2),
        v if v > 0.0 => format!("{value:.0e}"),
        _ => "0".to_owned(),
    }
}

/// Returns a small number as a float.
pub(super) fn whole(number: usize) -> f64 {
    u32::try_from(number).map_or(0.0, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_have_round_figures() {
        for (max, step) in [(950.0, 200.0), (790.0, 100.0), (187_000.0, 50_000.0), (4.0, 0.5)] {
            assert!((round_step(max) - step).abs() < 1e-9, "{max}: {}", round_step(max));
        }
        for (value, text) in
            [(0.0, "0"), (0.25, "0.25"), (12_500.0, "12.5 k"), (3.0, "3"), (2e6, "2 M"), (100.0, "100")]
        {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn bars_begin_at_zero_and_a_logarithmic_axis_at_a_power_of_ten() {
        let linear = Scale::new([950.0].into_iter(), false, (0.0, 100.0));
        assert!(linear.at(0.0).abs() < 1e-9 && (linear.at(1000.0) - 100.0).abs() < 1e-9);
        let log = Scale::new([30.0, 900.0].into_iter(), true, (0.0, 100.0));
        assert!(log.at(10.0).abs() < 1e-9 && (log.at(100.0) - 50.0).abs() < 1e-9);
        let names: Vec<String> = log.ticks().into_iter().map(|(_, name)| name).collect();
        assert_eq!(names, ["10", "20", "50", "100", "200", "500", "1000"]);
    }
}
