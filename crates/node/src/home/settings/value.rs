//! The values of settings: numbers, switches, strings, and strings with a unit (`250ms`, `64KiB`).

use toml::de::DeValue;

/// A value in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A whole number that is not negative.
    Number(u64),
    /// `true` or `false`.
    Switch(bool),
    /// Text in quotes.
    Text(&'a str),
    /// Anything else.
    Other,
}

impl<'a> Value<'a> {
    /// Converts a TOML value.
    pub(super) fn of(value: &'a DeValue<'_>) -> Self {
        if let Some(text) = value.as_str() {
            return Self::Text(text);
        }
        if let Some(on) = value.as_bool() {
            return Self::Switch(on);
        }
        let number = value
            .as_integer()
            .and_then(|integer| u64::from_str_radix(integer.as_str(), integer.radix()).ok());
        number.map_or(Self::Other, Self::Number)
    }

    /// Returns the number.
    pub(super) fn number(self) -> Option<u64> {
        if let Self::Number(number) = self { Some(number) } else { None }
    }

    /// Returns the switch.
    pub(super) fn switch(self) -> Option<bool> {
        if let Self::Switch(on) = self { Some(on) } else { None }
    }

    /// Returns the text.
    pub(super) fn text(self) -> Option<&'a str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// Returns a duration in nanoseconds: `"20us"`, `"250ms"`, `"2s"`, `"15min"`.
    pub(super) fn duration_ns(self) -> Option<u64> {
        let units =
            [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("min", 60_000_000_000), ("s", 1_000_000_000)];
        with_unit(self.text()?, &units)
    }

    /// Returns a size in bytes: `"512B"`, `"56KiB"`, `"64MiB"`, `"1GiB"`.
    pub(super) fn size(self) -> Option<usize> {
        let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];
        usize::try_from(with_unit(self.text()?, &units)?).ok()
    }
}

/// Parses a number with one of these units. A unit that is the suffix of another one comes after it.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let text = text.trim();
    let (digits, factor) =
        units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))?;
    digits.trim().parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_sizes_have_units() {
        assert_eq!(Value::Text("250ms").duration_ns(), Some(250_000_000));
        assert_eq!(Value::Text("20 us").duration_ns(), Some(20_000));
        assert_eq!(Value::Text("15min").duration_ns(), Some(900_000_000_000));
        assert_eq!(Value::Text("2s").duration_ns(), Some(2_000_000_000));
        assert_eq!(Value::Text("250").duration_ns(), None);
        assert_eq!(Value::Text("99999999999999999999s").duration_ns(), None);
        assert_eq!(Value::Text("56KiB").size(), Some(57_344));
        assert_eq!(Value::Text("255B").size(), Some(255));
        assert_eq!(Value::Text("KiB").size(), None);
        assert_eq!(Value::Number(5).size(), None);
    }
}
