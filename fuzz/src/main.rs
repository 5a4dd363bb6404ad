//! Runs the fuzz targets on stable Rust: `cargo xtask fuzz --minutes 10`.

use std::process::ExitCode;
use std::time::Duration;

use quorate_fuzz::runner::{Report, run, run_once};
use quorate_fuzz::{TARGETS, Target};

const HELP: &str = "\
Run the fuzz targets on stable Rust

Ends with status 1 at the first input on which a target panics, hangs or takes more memory than
its bound, and prints that input. The same seed gives the same inputs.

  --target NAME   only this target (default: each in turn)
  --minutes N     for each target (default 10)
  --seconds N     for each target
  --seed N        of the mutations (default 1)
  --input HEX     run the target once on these bytes

  cargo xtask fuzz --minutes 10
";

/// What was asked for.
struct FuzzOptions {
    target: Option<String>,
    duration: Duration,
    seed: u64,
    input: Option<Vec<u8>>,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.iter().any(|arg| arg == "--help" || arg == "-h") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let options = match parse(&args) {
        Ok(options) => options,
        Err(says) => {
            eprintln!("error: {says}\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    let chosen: Vec<&Target> = TARGETS
        .iter()
        .filter(|target| options.target.as_deref().is_none_or(|name| name == target.name))
        .collect();
    if chosen.is_empty() {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("error: no such target; there are {}", names.join(", "));
        return ExitCode::from(2);
    }
    for target in chosen {
        let result = match &options.input {
            Some(input) => run_once(target, input),
            None => run(target, options.duration, options.seed, |report| tell("...", target, report)),
        };
        match result {
            Ok(report) => tell("ok ", target, &report),
            Err(failure) => {
                eprintln!("FAILED {failure}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn tell(mark: &str, target: &Target, report: &Report) {
    println!(
        "{mark} {:7} {} executions, {} inputs kept, peak memory {} KiB of {} KiB, longest {} us of {} ms",
        target.name,
        report.executions,
        report.corpus,
        report.peak_bytes.div_ceil(1024),
        target.memory_bytes_max / 1024,
        report.longest.as_micros(),
        target.millis_max,
    );
}

fn parse(args: &[String]) -> Result<FuzzOptions, String> {
    let mut options = FuzzOptions { target: None, duration: Duration::from_secs(600), seed: 1, input: None };
    let mut words = args.iter();
    while let Some(flag) = words.next() {
        let value = words.next().ok_or_else(|| format!("{flag} needs a value"))?;
        let number =
            || value.parse::<u64>().map_err(|_| format!("{flag} {value}: a whole number was expected"));
        match flag.as_str() {
            "--target" => options.target = Some(value.clone()),
            "--minutes" => options.duration = Duration::from_secs(number()? * 60),
            "--seconds" => options.duration = Duration::from_secs(number()?),
            "--seed" => options.seed = number()?,
            "--input" => options.input = Some(hex(value)?),
            _ => return Err(format!("no flag {flag}")),
        }
    }
    Ok(options)
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
    match digits {
        Some(digits) if digits.len() % 2 == 0 => {
            Ok(digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
        }
        _ => Err(format!("--input {text}: pairs of hexadecimal digits were expected")),
    }
}
