//! The latency of every register over UDP and TCP, as a table: `quorate quorum latency` without the rest of the command.
//!
//! cargo run --release -p quorate-quorum-node --example latency -- 5000

use std::net::IpAddr;

use quorate_node::NodeError;
use quorate_quorum::Protocol;
use quorate_quorum_node::link::Carrier;
use quorate_quorum_node::measure::{Plan, Waits, echo, heading, lines, measure};

fn main() -> Result<(), NodeError> {
    let operations = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(2000);
    println!("polled echo: {:.1} us", echo(operations)?);
    println!("{}", heading());
    let [.., high, low] = std::process::id().to_be_bytes();
    let mut number = 0;
    for carrier in [Carrier::Udp, Carrier::Tcp] {
        for (protocol, _) in Protocol::ALL {
            number += 1;
            let ip = IpAddr::from([127, 60 + high % 30, low, number]);
            let waits = Waits::Polling;
            let plan = Plan { protocol: *protocol, carrier, waits, operations, value_bytes: 64, ip };
            let dir = std::env::temp_dir().join(format!("quorate-latency-{}-{number}", std::process::id()));
            let row = measure(plan, &dir)?;
            for line in lines(&plan, &row) {
                println!("{line}");
            }
        }
    }
    println!("polled echo: {:.1} us", echo(operations)?);
    Ok(())
}
