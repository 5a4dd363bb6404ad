//! The project's own chores: `cargo xtask TASK`.
//!
//! Scripts are Rust, so that they are read, linted and tested like everything else. One command
//! before handing anything over: `cargo xtask ci`, the same as on the build machine.

mod api;
mod ci;
mod deny;
mod kernel;
mod rust;
mod shell;
mod tidy;
mod tree;

use std::process::ExitCode;

use anyhow::{Result, bail};

/// A chore: `cargo xtask NAME`.
struct Task {
    name: &'static str,
    help: &'static str,
    run: fn(&[String]) -> Result<()>,
}

/// Every chore, in the order in which `--help` lists them.
const TASKS: &[Task] = &[
    Task {
        name: "ci",
        help: "everything below but mutants, soak and kernel (a smoke run of fuzz), in the order of how fast it fails",
        run: ci::ci,
    },
    Task { name: "fmt", help: "rustfmt; --fix writes", run: ci::fmt },
    Task {
        name: "tidy",
        help: "the house rules, see xtask/src/tidy.rs; --bless rewrites generated tables",
        run: tidy::run,
    },
    Task {
        name: "deny",
        help: "licences, sources and duplicate versions of what we depend on",
        run: deny::run,
    },
    Task {
        name: "api",
        help: "what changed in the public API since a commit (default: the last tag)",
        run: api::run,
    },
    Task { name: "lint", help: "clippy for all targets: warnings are errors", run: ci::lint },
    Task { name: "docs", help: "rustdoc: warnings are errors", run: ci::docs },
    Task {
        name: "same",
        help: "seeds and scenarios are good, and give the same runs in debug and in release",
        run: ci::same,
    },
    Task {
        name: "test",
        help: "unit, documentation and golden-trace tests; none may be ignored",
        run: ci::test,
    },
    Task {
        name: "mutants",
        help: "turns on each seeded bug and asks swarm and scenarios to find it; --only NAME, --seconds N each",
        run: ci::mutants,
    },
    Task {
        name: "soak",
        help: "simulates fresh seeds; --minutes N (default 10), and all that `quorate sim run` takes; \
               --processes --minutes N: real processes, which must not grow",
        run: ci::soak,
    },
    Task {
        name: "fuzz",
        help: "the fuzz targets on stable Rust; --minutes N each (default 10), --target NAME",
        run: ci::fuzz,
    },
    Task {
        name: "kernel",
        help: "the file system through the NFS client of a Linux kernel, which is fetched; root; basic|pjdfstest|fsx \
               --while calm|kills|lie:NAME|liars|all (default basic, calm); integrity --runs N|A-B --seconds N (default \
               24, 60); postmark|andrew compare servers, --help after them says how; --program FILE runs that one and builds none; --dir DIR is where the clusters are",
        run: kernel::kernel,
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.split_first() {
        None => {
            print!("{}", help());
            Ok(())
        }
        Some((name, _)) if name == "--help" || name == "-h" || name == "help" => {
            print!("{}", help());
            Ok(())
        }
        Some((name, rest)) => dispatch(name, rest),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(name: &str, args: &[String]) -> Result<()> {
    match TASKS.iter().find(|task| task.name == name) {
        Some(task) => (task.run)(args),
        None => bail!("no task `{name}`\n{}", help()),
    }
}

fn help() -> String {
    let tasks: Vec<String> = TASKS.iter().map(|task| format!("  {:8} {}\n", task.name, task.help)).collect();
    format!("Usage: cargo xtask TASK\n\n{}", tasks.concat())
}

/// The names of all tasks, for the check that documents speak of commands that exist.
fn task_names() -> Vec<&'static str> {
    TASKS.iter().map(|task| task.name).collect()
}
