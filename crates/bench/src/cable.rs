//! The links between emulated machines.

/// The link of a host to the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    /// Its speed in both directions.
    pub mbit: u32,
    /// What it takes from one host to another, beside the speed, in microseconds.
    pub delay_us: u32,
}

impl Cable {
    /// Returns what is limited, in words.
    pub fn name(self) -> String {
        let Self { mbit, delay_us } = self;
        let delay = if delay_us == 0 { String::new() } else { format!(" and {delay_us} us") };
        format!("{mbit} Mbit/s{delay}, a network namespace for each machine")
    }

    /// Returns the arguments of `tc` for a device. Only what hosts send is delayed, so that each message is delayed once.
    pub(crate) fn discipline(self, device: &str, delays: bool) -> Vec<String> {
        let Self { mbit, delay_us } = self;
        let limit = if delays && delay_us > 0 {
            format!("netem delay {delay_us}us rate {mbit}mbit limit 10000")
        } else {
            format!("tbf rate {mbit}mbit burst 32kb latency 400ms")
        };
        let all = format!("qdisc add dev {device} root {limit}");
        all.split(' ').map(str::to_owned).collect()
    }
}
