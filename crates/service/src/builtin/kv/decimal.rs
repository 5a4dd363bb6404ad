//! Decimal fractions, added exactly: replicas must agree, and floating-point numbers of Redis have 80 bits.

use alloc::string::String;
use alloc::vec::Vec;

/// Digits after the point: as many as Redis writes.
const PLACES: usize = 17;
/// The longest number that is read, in bytes.
const TEXT_BYTES_MAX: usize = 256;

/// A decimal fraction, in units of the last place. About 20 digits before the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decimal(i128);

impl Decimal {
    /// Reads a number: digits, a point, an exponent. None: it is none, or too large.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let text = core::str::from_utf8(text).ok().filter(|text| text.len() <= TEXT_BYTES_MAX)?;
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (digits, exponent) = match rest.find(['e', 'E']) {
            Some(at) => (&rest[..at], rest[at + 1..].parse::<i32>().ok()?),
            None => (rest, 0),
        };
        let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && part.is_empty() {
            return None;
        }
        let all: Vec<u8> = whole.bytes().chain(part.bytes()).collect();
        if !all.iter().all(u8::is_ascii_digit) {
            return None;
        }
        // The number of digits before the point.
        let point = i64::try_from(whole.len()).ok()? + i64::from(exponent);
        let last = point.checked_add(i64::try_from(PLACES).ok()?)?;
        let mut number = 0_i128;
        for at in 0..last.min(64 + i64::try_from(TEXT_BYTES_MAX).ok()?) {
            let digit = usize::try_from(at).ok().and_then(|at| all.get(at)).map_or(0, |digit| digit - b'0');
            number = number.checked_mul(10)?.checked_add(i128::from(digit))?;
            if number == 0 && at >= i64::try_from(all.len()).ok()? {
                break;
            }
        }
        // Rounded by the first digit that is left out.
        let next = usize::try_from(last).ok().and_then(|at| all.get(at));
        if next.is_some_and(|digit| *digit >= b'5') {
            number = number.checked_add(1)?;
        }
        Some(Self(if negative { -number } else { number }))
    }

    pub(super) fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// Returns its shortest form without an exponent.
    pub(super) fn text(self) -> String {
        let digits = alloc::format!("{:0width$}", self.0.unsigned_abs(), width = PLACES + 1);
        let (whole, part) = digits.split_at(digits.len() - PLACES);
        let part = part.trim_end_matches('0');
        let sign = if self.0 < 0 { "-" } else { "" };
        if part.is_empty() { alloc::format!("{sign}{whole}") } else { alloc::format!("{sign}{whole}.{part}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact() {
        for (a, b, sum) in [
            ("0.1", "0.2", "0.3"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("-3", "1.5", "-1.5"),
            ("3", "-3.0", "0"),
            ("1e-17", "0", "0.00000000000000001"),
            ("1e-18", "5e-18", "0.00000000000000001"),
            ("+.5", "5.", "5.5"),
            ("0e99", "1", "1"),
            ("100000000000000000000", "1", "100000000000000000001"),
        ] {
            let sum_of =
                Decimal::read(a.as_bytes()).unwrap().checked_add(Decimal::read(b.as_bytes()).unwrap());
            assert_eq!(sum_of.unwrap().text(), sum, "{a} + {b}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "",
            ".",
            "-",
            "e5",
            "1e",
            "1e5x",
            " 1",
            "1 ",
            "0x1",
            "nan",
            "inf",
            "1.2.3",
            "--1",
            "1e30",
            "9e99999999999",
        ] {
            assert_eq!(Decimal::read(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Decimal::read(&[b'1'; 257]), None);
        let large = Decimal::read(b"1e21").unwrap();
        assert_eq!(large.checked_add(large).and_then(|two| two.checked_add(two)), None);
    }
}
