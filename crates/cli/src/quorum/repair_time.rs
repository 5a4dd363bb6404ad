//! `quorate quorum repair-time`: how long a server without its disk takes until it answers again.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use quorate_quorum::Protocol;
use quorate_quorum_node::measure::repair::{RepairPlan, repair};

use super::name::{Name, VariantName, protocol};
use crate::fail::CommandResult;
use crate::out;

/// Measure the repair of a server that lost its disk
///
/// Starts four servers on this machine, and writes all keys. Then deletes the files of one server, and restarts it.
/// Prints the time from the restart until this server answers again.
///
/// Then stops another server, and reads up to 1000 keys. Without the stopped server, these reads need the answers of
/// the repaired one.
///
/// Example:
///
///   quorate quorum repair-time --protocol minimal-c --keys 10000
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(super) struct RepairTime {
    /// Protocol of the registers (default: all)
    #[arg(long, value_enum)]
    protocol: Option<Name>,
    /// Variant of bft-bc (default optimized)
    #[arg(long, value_enum, requires = "protocol")]
    variant: Option<VariantName>,
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    keys: u32,
    /// Bytes of a value, at most 1 MiB
    #[arg(long, value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(4..=1 << 20))]
    value: u32,
    /// Existing directory for the files of the servers (default: the directory for temporary files). The files are
    /// removed at the end
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl RepairTime {
    pub(super) fn run(&self) -> CommandResult {
        let protocols: Vec<Protocol> = match self.protocol {
            Some(name) => vec![protocol(name, self.variant)?],
            None => Protocol::ALL.iter().map(|(protocol, _)| *protocol).collect(),
        };
        let parent = self.dir.clone().unwrap_or_else(std::env::temp_dir);
        let [.., high, low] = std::process::id().to_be_bytes();
        for (number, protocol) in (1..).zip(protocols) {
            let ip = IpAddr::from([127, 90 + high % 30, low, number]);
            let value_bytes = usize::try_from(self.value).unwrap_or(0);
            let plan = RepairPlan { protocol, keys: self.keys, value_bytes, ip };
            let name = format!("quorate-repair-{}-{number}", std::process::id());
            let done = repair(plan, &parent.join(name))?;
            let seconds = done.took.as_secs_f64();
            out::line(format!(
                "{:<24} {} keys of {} bytes: repaired in {seconds:.2} s ({:.0} keys/s), {} log bytes, {} keys read; \
                 written in {:.1} s",
                protocol.name(),
                done.state.objects,
                self.value,
                f64::from(self.keys) / seconds,
                done.state.log_bytes,
                done.read,
                done.filled.as_secs_f64()
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}
