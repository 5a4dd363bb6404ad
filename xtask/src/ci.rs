//! The steps that `cargo xtask ci` runs.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::{api, deny, redis, site, tidy};
use xtask::{cargo, read, run, run_and_read};

/// A step of `ci`.
struct Step {
    name: &'static str,
    run: fn() -> Result<()>,
}

/// In the order of how fast they fail. Tests come last, so that their lines close the log. `build` makes what the steps
/// after it run.
const STEPS: &[Step] = &[
    Step { name: "fmt", run: || fmt(&[]) },
    Step { name: "tidy", run: || tidy::run(&[]) },
    Step { name: "deny", run: || deny::run(&[]) },
    Step { name: "api", run: || api::run(&[]) },
    Step { name: "lint", run: || lint(&[]) },
    Step { name: "docs", run: || docs(&[]) },
    Step { name: "site", run: || site::site(&[]) },
    Step { name: "build", run: || build(&[]) },
    Step { name: "fuzz", run: fuzz_smoke },
    Step { name: "same", run: || same(&[]) },
    Step { name: "redis", run: || redis::redis(&["python".into(), "node".into()]) },
    Step { name: "test", run: || test(&[]) },
];

/// Runs every step and stops at the first that fails.
pub(crate) fn ci(args: &[String]) -> Result<()> {
    no_arguments("ci", args)?;
    let begin = Instant::now();
    for (index, step) in STEPS.iter().enumerate() {
        let start = Instant::now();
        println!("\n== {} of {}: {}", index + 1, STEPS.len(), step.name);
        (step.run)().with_context(|| format!("ci stopped at `{0}`; again: cargo xtask {0}", step.name))?;
        println!("== {}: passed in {} s", step.name, start.elapsed().as_secs());
    }
    println!("\nci: {} of {} steps passed in {} s", STEPS.len(), STEPS.len(), begin.elapsed().as_secs());
    Ok(())
}

/// The optional parts that are checked with the rest. Those with planted bugs are not, except for those of the registers,
/// which their tests turn on: what is built for the tests serves every step.
const FEATURES: &str = "quorate/program,quorate/sim,quorate-cli/png,quorate-quorum/mutants";

/// Checks the formatting; with `--fix` writes it.
pub(crate) fn fmt(args: &[String]) -> Result<()> {
    match args {
        [] => run(&mut cargo(&["fmt", "--all", "--check"])),
        [fix] if fix == "--fix" => run(&mut cargo(&["fmt", "--all"])),
        _ => bail!("fmt takes --fix or nothing"),
    }
}

/// Clippy for all targets; a warning is an error.
pub(crate) fn lint(args: &[String]) -> Result<()> {
    no_arguments("lint", args)?;
    // Tests and examples build the crate `quorate` with its features; here it is without.
    run(&mut cargo(&["clippy", "--package", "quorate", "--lib", "--locked", "--", "-D", "warnings"]))?;
    let workspace = ["clippy", "--workspace", "--all-targets", "--locked", "--features", FEATURES];
    run(cargo(&workspace).args(["--", "-D", "warnings"]))
}

/// The documentation; a warning, such as a broken link, is an error.
pub(crate) fn docs(args: &[String]) -> Result<()> {
    no_arguments("docs", args)?;
    run(cargo(&["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"])
        .args(["--features", FEATURES])
        .env("RUSTDOCFLAGS", "-D warnings"))
}

/// Builds all tests, and with them what `fuzz` and `same` run. A package that is built alone has fewer features in what
/// it depends on, so that nearly everything would be built once more.
pub(crate) fn build(args: &[String]) -> Result<()> {
    no_arguments("build", args)?;
    run(&mut cargo(&["test", "--workspace", "--locked", "--no-run", "--features", FEATURES]))?;
    // A test of the documents runs this example as a program.
    built("--example", "bank").map(drop)
}

/// Builds one program as it is built for the tests, and returns the command that starts it. `kind` is `--bin` or
/// `--example`.
pub(crate) fn built(kind: &str, name: &str) -> Result<Command> {
    run(&mut cargo(&["build", "--workspace", "--locked", "--features", FEATURES, kind, name]))?;
    let folder = if kind == "--example" { "debug/examples" } else { "debug" };
    Ok(Command::new(target()?.join(folder).join(name)))
}

/// The directory that cargo builds into.
pub(crate) fn target() -> Result<PathBuf> {
    let text = read(&mut cargo(&["metadata", "--locked", "--no-deps", "--format-version", "1"]))?;
    let all: serde_json::Value =
        serde_json::from_str(&text).context("cargo metadata printed something else")?;
    let target = all["target_directory"].as_str().context("cargo metadata names no target directory")?;
    Ok(PathBuf::from(target))
}

/// All tests. None may be ignored: what cannot pass yet asserts what happens today.
pub(crate) fn test(args: &[String]) -> Result<()> {
    let mut command = cargo(&["test", "--workspace", "--locked", "--no-fail-fast", "--features", FEATURES]);
    command.args(args);
    let lines = run_and_read(&mut command)?;
    let sum = Sum::of(&lines);
    println!("\ntests: {} passed, {} failed, {} ignored", sum.passed, sum.failed, sum.ignored);
    if sum.ignored > 0 {
        bail!(
            "{} tests are ignored: a test that cannot pass yet asserts what happens today and says why",
            sum.ignored
        );
    }
    if args.is_empty() && sum.passed == 0 {
        bail!("no test ran");
    }
    Ok(())
}

/// What cargo's closing lines add up to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Sum {
    fn of(lines: &[String]) -> Self {
        let mut sum = Self::default();
        for line in lines.iter().filter(|line| line.starts_with("test result:")) {
            let words: Vec<&str> = line.split([' ', ';']).filter(|word| !word.is_empty()).collect();
            for pair in words.windows(2) {
                let count = pair[0].parse().unwrap_or(0);
                match pair[1] {
                    "passed" => sum.passed += count,
                    "failed" => sum.failed += count,
                    "ignored" => sum.ignored += count,
                    _ => {}
                }
            }
        }
        sum
    }
}

/// Seeds of the swarm that [`same`] compares: the first, and how many. Seeds 14 and 91 are among the faults that are not
/// mended yet (`crates/sim/src/expected.rs`, whose test runs them).
const SAME_SEEDS: [&str; 2] = ["201", "20"];

/// Runs some seeds and every scenario, twice over: the same in debug and release, and nothing broken.
pub(crate) fn same(args: &[String]) -> Result<()> {
    no_arguments("same", args)?;
    // The simulator alone: the whole program takes minutes more.
    let program = ["--package", "quorate-sim", "--example", "same"];
    run(cargo(&["build", "--release", "--locked"]).args(program))?;
    let debug = built("--example", "same")?;
    let release = target()?.join("release/examples/same");
    for what in [&SAME_SEEDS[..], &["scenarios"]] {
        let hashes = [
            trace_hash(Command::new(debug.get_program()).args(what))?,
            trace_hash(Command::new(&release).args(what))?,
        ];
        if hashes[0] != hashes[1] {
            bail!("same {}: debug gives {}, release {}", what.join(" "), hashes[0], hashes[1]);
        }
        println!("same: {}: {}", what.join(" "), hashes[0]);
    }
    Ok(())
}

/// Runs the simulator and returns its hash.
fn trace_hash(command: &mut Command) -> Result<String> {
    let text = read(command)?;
    let summary: serde_json::Value =
        serde_json::from_str(&text).context("sim run --json printed something else")?;
    let hash = summary["trace_hash"].as_str().map(str::to_owned);
    hash.context("the summary has no trace_hash")
}

/// One build with the feature `mutants` holds every seeded bug; each has to be found by a checker.
pub(crate) fn mutants(args: &[String]) -> Result<()> {
    let package = ["run", "--release", "--locked", "--package", "quorate-cli", "--features", "mutants"];
    run(cargo(&package).args(["--", "sim", "mutants"]).args(args))
}

/// Simulates fresh seeds, ten minutes where nothing is said; prints those that fail. With `--processes` it is real
/// ones that run, and nothing of theirs may grow.
pub(crate) fn soak(args: &[String]) -> Result<()> {
    if let [first, rest @ ..] = args
        && first == "--processes"
    {
        let minutes = match rest {
            [] => "10",
            [flag, minutes] if flag == "--minutes" => minutes,
            _ => bail!("soak --processes takes --minutes N or nothing"),
        };
        let test =
            ["test", "--release", "--locked", "--package", "quorate-cli", "--test", "soak", "nothing_grows"];
        return run(cargo(&test).args(["--", "--nocapture"]).env("QUORATE_SOAK_MINUTES", minutes));
    }
    let mut command =
        cargo(&["run", "--release", "--locked", "--package", "quorate-cli", "--", "sim", "run"]);
    if args.iter().all(|arg| arg != "--minutes") {
        command.args(["--minutes", "10"]);
    }
    run(command.args(args))
}

/// The fuzz targets, optimised; the arguments are the runner's.
pub(crate) fn fuzz(args: &[String]) -> Result<()> {
    run(cargo(&["run", "--release", "--locked", "--package", "quorate-fuzz", "--"]).args(args))
}

/// Each target for a few seconds, as built for the tests: enough to see that it runs, and that
/// nothing is found at once.
fn fuzz_smoke() -> Result<()> {
    run(built("--bin", "quorate-fuzz")?.args(["--seconds", "4"]))
}

/// The file system through the NFS client of a Linux kernel: a program of its own.
pub(crate) fn kernel(args: &[String]) -> Result<()> {
    run(cargo(&["run", "--quiet", "--locked", "--package", "quorate-kernel-tests", "--"]).args(args))
}

fn no_arguments(task: &str, args: &[String]) -> Result<()> {
    match args {
        [] => Ok(()),
        [first, ..] => bail!("{task} takes no arguments, got `{first}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_s_lines_are_added_up() {
        let lines = [
            "running 2 tests",
            "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.1s",
            "test result: FAILED. 5 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s",
        ];
        let sum = Sum::of(&lines.map(str::to_owned));
        assert_eq!(sum, Sum { passed: 7, failed: 4, ignored: 1 });
    }
}
