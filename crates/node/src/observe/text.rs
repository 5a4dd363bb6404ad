//! The status as text, for a terminal.

use std::net::SocketAddr;
use std::time::Duration;

use super::advice::{Advice, advice};
use super::agreement::Cell;
use super::json;
use super::model::{FRESH_S, Health, Picture, Word};
use super::probe::{Latency, ProbeOutcome};
pub use super::units::{duration, size};

/// Returns the status in one line.
pub fn line(picture: &Picture, rate: Option<f64>) -> String {
    let view = picture.view_text().replace(',', "");
    let mut parts = vec![format!("{}  {view}", picture.verdict.name()), picture.margins()];
    parts.extend(rate.map(|rate| format!("{rate:.0} op/s")));
    parts.push(agreement(picture));
    let troubles = picture.troubles();
    if !troubles.is_empty() {
        parts.push(troubles.join(", "));
    }
    parts.join(" | ")
}

fn agreement(picture: &Picture) -> String {
    let n = picture.cluster.n();
    picture.agreement.newest().map_or_else(
        || format!("{} of {n} answer, no common checkpoint yet", picture.answered()),
        |(seq, count)| format!("{count} of {n} agree at {}", seq.0),
    )
}

/// Returns everything about a cluster, for a terminal of 100 columns. `addresses` are those of the replicas.
pub fn page(name: &str, picture: &Picture, latency: Latency, addresses: &[SocketAddr]) -> String {
    let Picture { verdict, cluster, .. } = picture;
    let mut lines = vec![
        format!(
            "{:<9} {name}, n {}, f {}{:>width$}",
            verdict.name(),
            cluster.n(),
            cluster.f(),
            format!("{} of {} replicas answered", picture.answered(), cluster.n()),
            width = 60_usize.saturating_sub(name.len())
        ),
        format!("          {}", picture.margins()),
        format!(
            "          {}        {}, {}",
            picture.view_text(),
            took("ordered", "write", picture.outcomes.ordered, latency.ordered),
            took("read-only", "read", picture.outcomes.read_only, latency.read_only)
        ),
        String::new(),
        "  replica  state          executed     behind   agreed digest   view  up        evidence of others"
            .to_owned(),
    ];
    lines.extend(picture.replicas.iter().map(|health| row(health, picture)));
    for details in [moved, workers] {
        let details: Vec<String> = picture.replicas.iter().filter_map(details).collect();
        if !details.is_empty() {
            lines.push(String::new());
            lines.extend(details);
        }
    }
    if !picture.evidence.is_empty() {
        lines.push(String::new());
    }
    for item in &picture.evidence {
        let ago = picture.now_s.saturating_sub(item.last);
        let when = if ago <= FRESH_S { "" } else { ", history" };
        lines.push(format!(
            "  evidence  {} {}: {}, last {} ago{when}, seen by {}   {}",
            item.replica,
            item.class.name(),
            if item.count == 1 { "once".to_owned() } else { format!("{} times", item.count) },
            duration(ago),
            item.by,
            item.class.code()
        ));
    }
    for Advice { what, command } in advice(picture, addresses) {
        lines.push(format!("  do        {what}"));
        lines.extend(command.map(|command| format!("            {command}")));
    }
    lines.join("\n")
}

fn row(health: &Health, picture: &Picture) -> String {
    let star = if picture.primary() == Some(health.id) { '*' } else { ' ' };
    let word = match health.word {
        Word::Ok | Word::Joins | Word::Silent | Word::DiskFull | Word::Slow | Word::ClockOff => {
            health.says_short()
        }
        Word::SettingsDiffer => health.word.name().to_owned(),
        word @ (Word::BadMac | Word::Diverged | Word::WrongReplies | Word::Equivocates) => {
            word.name().to_uppercase()
        }
    };
    let Some(says) = &health.says else { return format!("  {:<4} {star}   {word}", health.id.to_string()) };
    let behind = if health.behind == 0 { "0".to_owned() } else { format!("{} ops", health.behind) };
    let newest = says.checkpoints.last();
    let digest = newest.map_or_else(String::new, |(_, digest)| json::hex(digest.0.get(..2).unwrap_or(&[])));
    let agrees = match health.agrees {
        Cell::Agrees => "yes",
        Cell::Differs => "NO",
        Cell::Absent => "not yet",
        Cell::Open => "undecided",
    };
    let others: Vec<String> = health
        .evidence
        .iter()
        .filter(|item| picture.now_s.saturating_sub(item.last) <= FRESH_S)
        .map(|item| format!("{} x {} ({})", item.count, item.class.name(), item.by))
        .collect();
    let view = if says.in_view_change { format!("->{}", says.view.0) } else { says.view.0.to_string() };
    let line = format!(
        "  {:<4} {star}   {word:<14} {:<12} {behind:<8} {:<15} {view:<5} {:<9} {}",
        health.id.to_string(),
        says.executed.0,
        format!("{digest}.. {agrees}"),
        duration(says.uptime_ms / 1000),
        others.join(", ")
    );
    line.trim_end().to_owned()
}

/// Describes what a replica's workers do, if it has any.
fn workers(health: &Health) -> Option<String> {
    let stats = health.says.as_ref()?.workers.as_ref()?;
    let wrong = match stats.wrong_rules {
        0 => String::new(),
        _ => ". WRONG DECLARATION: see the log of this replica".to_owned(),
    };
    Some(format!(
        "  workers   {} {}: {} runs, {:.1} at once, at most {}, {:.1} % again, {} early replies, {} parked{wrong}",
        health.id,
        stats.workers,
        stats.starts,
        json::mean(stats.at_once, stats.starts),
        stats.most,
        json::percent(stats.again, stats.runs),
        stats.early,
        stats.parked,
    ))
}

/// Describes a replica's last state transfer, if there was one since it started.
fn moved(health: &Health) -> Option<String> {
    let says = health.says.as_ref()?;
    let moved = says.moved.as_ref()?;
    let left = match (says.transferring, json::eta_s(says)) {
        (false, _) => String::new(),
        (true, None) => ", in progress".to_owned(),
        (true, Some(left)) => format!(", about {} left", duration(left)),
    };
    let before = match moved.transfers {
        0 | 1 => String::new(),
        many => format!("; {many} transfers since start: {}", size(moved.since_start.1)),
    };
    Some(format!(
        "  transfer  {} {} {}: fetched {} of {}, {:.1} %, {} of {} pages, in {:.1} s{left}{before}",
        health.id,
        if says.transferring { "to" } else { "at" },
        moved.seq.0,
        size(moved.bytes),
        size(moved.of_bytes),
        json::percent(moved.bytes, moved.of_bytes),
        moved.pages,
        moved.of_pages,
        json::to_s(moved.took_ms),
    ))
}

/// Describes the latency of a path, or what became of the operation on it.
fn took(path: &str, operation: &str, outcome: Option<ProbeOutcome>, took: Option<Duration>) -> String {
    match took {
        None => match outcome {
            None => format!("{operation} not tried"),
            Some(ProbeOutcome::NoPlace) => format!("{operation} refused"),
            Some(ProbeOutcome::Silence | ProbeOutcome::Served) => format!("{operation} timed out"),
        },
        Some(took) if took < Duration::from_millis(1) => format!("{path} {:.1} us", took.as_secs_f64() * 1e6),
        Some(took) => format!("{path} {:.2} ms", took.as_secs_f64() * 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_tried_timed_out() {
        let of = |outcome| took("ordered", "write", outcome, None);
        assert_eq!(of(None), "write not tried");
        assert_eq!(of(Some(ProbeOutcome::NoPlace)), "write refused");
        assert_eq!(of(Some(ProbeOutcome::Silence)), "write timed out");
        let served = took("ordered", "write", Some(ProbeOutcome::Served), Some(Duration::from_micros(250)));
        assert_eq!(served, "ordered 250.0 us");
    }
}
