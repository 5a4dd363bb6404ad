//! A geographic network (§11.4): monthly mean round trips between regions of one cloud provider,
//! October 2024, rounded, in milliseconds.

/// The regions.
pub const REGIONS: [&str; 10] = ["DAL", "TOR", "WDC", "FRA", "LON", "MAD", "OSA", "SYD", "TOK", "SAO"];

/// Round trips within a region.
const WITHIN: f64 = 0.1;

/// The triangle above the diagonal, row by row.
const ROUND_TRIPS: [f64; 45] = [
    34.0, 31.0, 123.0, 113.0, 119.0, 150.0, 185.0, 142.0, 144.0, // DAL
    19.0, 93.0, 84.0, 108.0, 170.0, 214.0, 163.0, 131.0, // TOR
    91.0, 76.0, 90.0, 175.0, 214.0, 168.0, 119.0, // WDC
    13.0, 29.0, 233.0, 250.0, 231.0, 198.0, // FRA
    27.0, 244.0, 261.0, 242.0, 188.0, // LON
    259.0, 275.0, 256.0, 206.0, // MAD
    122.0, 9.0, 292.0, // OSA
    115.0, 328.0, // SYD
    285.0, // TOK
];

/// The longest delay of a matrix, in milliseconds.
const DELAY_MAX: f64 = 60_000.0;

/// One-way delays between places of one's own, in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Delays(Vec<Vec<f64>>);

impl Delays {
    /// Reads a matrix of `places` lines with as many numbers each. Empty lines and lines that begin with `#` do not count.
    ///
    /// # Errors
    ///
    /// What is wrong, with the number of the line.
    pub fn parse(text: &str, places: usize) -> Result<Self, String> {
        let mut rows = Vec::new();
        for (line, row) in (1..).zip(text.lines()) {
            let row = row.trim();
            if row.is_empty() || row.starts_with('#') {
                continue;
            }
            if rows.len() == places {
                return Err(format!("line {line}: more than {places} lines of delays"));
            }
            let mut numbers = Vec::new();
            for word in row.split(',').map(str::trim) {
                let delay = word.parse().ok().filter(|delay| (0.0..=DELAY_MAX).contains(delay));
                let what = || format!("line {line}: `{word}` is not a delay of 0 to {DELAY_MAX} ms");
                numbers.push(delay.ok_or_else(what)?);
            }
            if numbers.len() != places {
                return Err(format!("line {line}: {} delays, expected {places}", numbers.len()));
            }
            rows.push(numbers);
        }
        if rows.len() != places {
            let last = text.lines().count();
            return Err(format!(
                "line {last}: the file ends after {} of {places} lines of delays",
                rows.len()
            ));
        }
        Ok(Self(rows))
    }

    /// Returns the delay from one place to another.
    pub fn between(&self, from: usize, to: usize) -> f64 {
        self.0.get(from).and_then(|row| row.get(to)).copied().unwrap_or(0.0)
    }
}

/// Returns the number of a region.
pub fn region(name: &str) -> Option<usize> {
    REGIONS.iter().position(|region| *region == name)
}

/// Returns the round trip between two regions, in milliseconds.
pub fn round_trip(a: usize, b: usize) -> f64 {
    let (low, high) = (a.min(b), a.max(b));
    if low == high {
        return WITHIN;
    }
    let before = low * (REGIONS.len() - 1) - low * low.saturating_sub(1) / 2;
    ROUND_TRIPS.get(before + high - low - 1).copied().unwrap_or(WITHIN)
}

/// The oracle of a phase: the q-th smallest round trip between a client and the servers. `own` is
/// the round trip to a server in the client's region.
pub fn phase(client: usize, servers: &[usize], q: usize, own: f64) -> f64 {
    let trip = |server: &usize| if *server == client { own } else { round_trip(client, *server) };
    let mut trips: Vec<f64> = servers.iter().map(trip).collect();
    trips.sort_by(f64::total_cmp);
    trips.get(q.saturating_sub(1)).copied().unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_of_delays_is_read_and_its_mistakes_have_lines() {
        let delays = Delays::parse("# to 0, to 1\n0, 1.5\n\n20,0\n", 2).unwrap();
        assert!((delays.between(0, 1) - 1.5).abs() < 1e-9 && (delays.between(1, 0) - 20.0).abs() < 1e-9);
        for (text, says) in [
            ("0,1\n\n2,x\n", "line 3: `x`"),
            ("0,1\n2,-1\n", "line 2: `-1`"),
            ("0,1\n2,NaN\n", "line 2: `NaN`"),
            ("0,1\n2,0,3\n", "line 2: 3 delays, expected 2"),
            ("0,1\n# no more\n", "line 2: the file ends after 1 of 2"),
            ("0,1\n1,0\n1,1\n", "line 3: more than 2"),
        ] {
            let error = Delays::parse(text, 2).unwrap_err();
            assert!(error.starts_with(says), "{error}");
        }
    }

    /// The check values of §11.4, within 2 ms.
    #[test]
    fn the_check_values() {
        let at = |names: [&str; 4]| names.map(|name| region(name).unwrap());
        let (wide, narrow) = (at(["WDC", "FRA", "TOK", "SAO"]), at(["DAL", "WDC", "TOR", "LON"]));
        let cases =
            [("WDC", wide, 119.0), ("SYD", wide, 250.0), ("DAL", narrow, 34.0), ("SYD", narrow, 214.0)];
        for (client, servers, expected) in cases {
            let got = phase(region(client).unwrap(), &servers, 3, 1.0);
            assert!((got - expected).abs() <= 2.0, "{client}: {got} instead of {expected}");
        }
        for a in 0..10 {
            for b in 0..10 {
                assert!((round_trip(a, b) - round_trip(b, a)).abs() < 1e-9);
                assert!(a == b || round_trip(a, b) >= 9.0, "{a} {b}");
            }
        }
        assert!((round_trip(8, 9) - 285.0).abs() < 1e-9 && (round_trip(2, 6) - 175.0).abs() < 1e-9);
    }
}
