//! `quorate quorum latency`: the latency of registers on real sockets.

use std::net::IpAddr;
use std::process::ExitCode;

use clap::Args;
use quorate_quorum::Protocol;
use quorate_quorum_node::link::Carrier;
use quorate_quorum_node::measure::{self, Plan, Waits};

use super::name::{Name, VariantName, protocol};
use crate::fail::CommandResult;
use crate::{out, values};

/// Measure the latency of registers on this machine
///
/// Runs four servers on one core, and a client on a second core. The client runs one operation at a time. Nothing is
/// written to disk. Prints the median and the 99th percentile of the latency. Also prints the messages, bytes and
/// signatures of an operation, at the client and all servers together.
///
/// The results are valid only on an idle machine. `polled echo` in the first and the last line is the time in which a
/// datagram goes from one thread to another and back, if both threads poll. If it differs much between the two lines,
/// the speed of the machine changed during the run.
///
/// With --blocking, the client and the servers share one core, and sleep until a message arrives. Messages, bytes and
/// signatures are then those of the client only. The line `datagrams alone` is the median time of the same datagrams without
/// a register: the client sends one to each of four threads, which sleep on the same core, and waits for three answers. A
/// write does this twice.
///
/// Example:
///
///   quorate quorum latency --protocol minimal-c
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct Latency {
    /// Protocol of the registers (default: all)
    #[arg(long, value_enum)]
    protocol: Option<Name>,
    /// Variant of bft-bc (default optimized)
    #[arg(long, value_enum, requires = "protocol")]
    variant: Option<VariantName>,
    /// Number of measured reads, and of measured writes
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = values::count)]
    operations: u64,
    /// Let the client and the servers sleep on one core, instead of polling on two
    #[arg(long)]
    blocking: bool,
    /// Bytes of a value, at most 1 MiB
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    value: u32,
}

impl Latency {
    pub(super) fn run(&self) -> CommandResult {
        let operations = usize::try_from(self.operations).unwrap_or(usize::MAX);
        let protocols: Vec<Protocol> = match self.protocol {
            Some(name) => vec![protocol(name, self.variant)?],
            None => Protocol::ALL.iter().map(|(protocol, _)| *protocol).collect(),
        };
        out::line(format!("polled echo: {:.1} us", measure::echo(operations)?));
        if self.blocking {
            let bare = measure::bare(operations)?;
            out::line(format!("datagrams alone: read {:.1} us, write {:.1} us", bare.read_us, bare.write_us));
        }
        out::line(measure::heading());
        let [.., high, low] = std::process::id().to_be_bytes();
        let mut number = 0;
        for carrier in [Carrier::Udp, Carrier::Tcp] {
            for protocol in &protocols {
                number += 1;
                let ip = IpAddr::from([127, 60 + high % 30, low, number]);
                let value_bytes = usize::try_from(self.value).unwrap_or(0);
                let waits = if self.blocking { Waits::Blocking } else { Waits::Polling };
                let plan = Plan { protocol: *protocol, carrier, waits, operations, value_bytes, ip };
                let name = format!("quorate-latency-{}-{number}", std::process::id());
                let row = measure::measure(plan, &std::env::temp_dir().join(name))?;
                measure::lines(&plan, &row).iter().for_each(out::line);
            }
        }
        out::line(format!("polled echo: {:.1} us", measure::echo(operations)?));
        Ok(ExitCode::SUCCESS)
    }
}
