//! The project's own tasks: `cargo xtask TASK`.
//!
//! Scripts are Rust, so that they are read, linted and tested like everything else. One command
//! before submitting a change: `cargo xtask ci`, the same as on the build machine.

mod api;
mod ci;
mod deny;
mod etcd;
mod redis;
mod rust;
mod servers;
mod site;
mod tidy;
mod tree;

use std::process::ExitCode;

use anyhow::{Result, bail};

/// A task: `cargo xtask NAME`.
struct Task {
    name: &'static str,
    help: &'static str,
    run: fn(&[String]) -> Result<()>,
}

/// Every task, in the order in which `--help` lists them.
const TASKS: &[Task] = &[
    Task {
        name: "ci",
        help: "everything below except mutants, soak, kernel and etcd (fuzz only briefly, redis with python and node only), \
               fastest failures first",
        run: ci::ci,
    },
    Task { name: "fmt", help: "rustfmt; --fix writes", run: ci::fmt },
    Task {
        name: "tidy",
        help: "the project rules, see xtask/src/tidy.rs; --bless rewrites generated tables",
        run: tidy::run,
    },
    Task {
        name: "structure",
        help: "what the table of tidy counts, in full: circles, arrows up, open fields, verbs; CRATE for one",
        run: tidy::structure::show,
    },
    Task { name: "deny", help: "licences, sources and duplicate versions of dependencies", run: deny::run },
    Task {
        name: "api",
        help: "changes of the public API since a commit (default: the last tag)",
        run: api::run,
    },
    Task { name: "lint", help: "clippy for all targets: warnings are errors", run: ci::lint },
    Task { name: "docs", help: "rustdoc: warnings are errors", run: ci::docs },
    Task {
        name: "site",
        help: "the documents as a website below target/site; needs mdBook, and without it only collects the pages",
        run: site::site,
    },
    Task { name: "build", help: "builds all tests, and what fuzz and same run", run: ci::build },
    Task {
        name: "same",
        help: "seeds and scenarios pass, with the same runs in debug and in release",
        run: ci::same,
    },
    Task {
        name: "test",
        help: "unit, documentation and golden-trace tests; none may be ignored",
        run: ci::test,
    },
    Task {
        name: "mutants",
        help: "enables each planted bug and expects swarm and scenarios to find it; --only NAME, --seconds N each",
        run: ci::mutants,
    },
    Task {
        name: "soak",
        help: "simulates new seeds; --minutes N (default 10), and all options of `quorate sim run`; \
               --processes --minutes N: real processes, whose memory must not grow",
        run: ci::soak,
    },
    Task {
        name: "fuzz",
        help: "the fuzz targets on stable Rust; --minutes N each (default 10), --target NAME",
        run: ci::fuzz,
    },
    Task {
        name: "kernel",
        help: "the file system through the NFS client of a Linux kernel, which is downloaded; needs root. \
               basic|pjdfstest|fsx --while calm|kills|lie:NAME|liars|all (default basic, calm); directory --files N; \
               integrity --runs N|A-B --seconds N (default 24, 60); postmark|andrew compare servers (--help after \
               the name). --program FILE runs that program instead of building one; --dir DIR holds the clusters",
        run: ci::kernel,
    },
    Task {
        name: "redis",
        help: "the usual calls of six client libraries, on the RESP gateway and on a Redis server. python: redis-py; \
               node: node-redis and ioredis; go: go-redis, redigo and rueidis, and an outage of 13 s; default: all. \
               Installs the libraries below target/. suite: the tests of Redis itself on both, from Debian's source \
               package",
        run: redis::redis,
    },
    Task {
        name: "etcd",
        help: "durable writes of 256 bytes on three members of etcd and on four replicas, in turn, with 1, 100 and 400 \
               clients, in 2 minutes. Needs Go and etcd (Debian: etcd-server). --program FILE runs that quorate \
               instead of building one",
        run: etcd::etcd,
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
