//! All results in one report: self-contained HTML, Markdown, CSV.

use std::fmt::Write;

use crate::draw::{self, Theme, escaped};
use crate::report::{Cell, Report, Row, Shape, Verdict};
use crate::{EXPERIMENTS, find};

const STYLE: &str = include_str!("page.css");

/// If other programs used more of the machine than this, in percent, it is shown in red.
const OTHERS_MAX: f64 = 10.0;

/// Returns one line about an experiment.
pub fn summary(report: &Report) -> String {
    let [held, not, neither, unjudged] = counts(std::slice::from_ref(report));
    let some = |count, what: &str| if count > 0 { format!(", {count} {what}") } else { String::new() };
    let (cannot, busy) = (some(neither, "cannot be compared"), some(unjudged, "cannot be judged"));
    format!(
        "{}: {held} held, {not} not held{cannot}{busy} ({:.0} s)",
        report.experiment, report.machine.seconds
    )
}

fn counts(reports: &[Report]) -> [usize; 4] {
    [Verdict::Held, Verdict::NotHeld, Verdict::NotComparable, Verdict::NotJudged]
        .map(|verdict| reports.iter().map(|report| report.count(verdict)).sum())
}

/// Names the experiments that have no results.
fn missing(reports: &[Report]) -> Vec<&'static str> {
    let is_there = |name: &str| reports.iter().any(|report| report.experiment == name);
    EXPERIMENTS.iter().map(|experiment| experiment.name).filter(|name| !is_there(name)).collect()
}

fn totals(reports: &[Report]) -> String {
    let [held, not, neither, unjudged] = counts(reports);
    format!(
        "{held} of {} statements held, {not} not held, {neither} cannot be compared, {unjudged} cannot be judged; {} of {} experiments were run",
        held + not + neither + unjudged,
        reports.len(),
        EXPERIMENTS.len()
    )
}

fn all_shapes(reports: &[Report]) -> impl Iterator<Item = (&Report, &Shape)> {
    reports.iter().flat_map(|report| report.shapes.iter().map(move |shape| (report, shape)))
}

/// Returns our figure, the paper's, and their ratio.
fn beside_the_paper(row: &Row) -> Option<(String, f64, f64, f64)> {
    let paper = row.paper?;
    let ours = crate::figures::median(&row.samples);
    let words = [row.system.as_str(), &row.variant, &row.op, &row.mode];
    let mut what = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    if row.clients > 1 {
        let _ = write!(what, ", {} clients", row.clients);
    }
    Some((format!("{what}, {}", row.unit), ours, paper, ours / paper))
}

/// Returns the page.
pub fn html(reports: &[Report]) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>quorate: the papers' experiments again</title>\n<style>{STYLE}</style></head>\n<body>\n\
         <h1>The papers' experiments again</h1>\n<p class=\"total\">{}.</p>\n",
        totals(reports)
    );
    let missing = missing(reports);
    if !missing.is_empty() {
        let _ = writeln!(
            out,
            "<p class=\"missing\">Not run: {}. <code>quorate bench run all</code> runs what is missing.</p>",
            missing.join(", ")
        );
    }
    out.push_str(
        "<p>Absolute figures of 1999 to 2001 and of one machine's loopback say little beside each other: each \
         experiment is held against its own unreplicated service, and the papers' statements are what counts. \
         Dots are repeats, marks their medians.</p>\n<table class=\"front\"><thead><tr><th>paper</th><th>statement</th>\
         <th></th><th>what was found</th></tr></thead><tbody>\n",
    );
    for (report, shape) in all_shapes(reports) {
        let _ = writeln!(
            out,
            "<tr><td><a href=\"#{0}\">{1}</a></td><td>{2}</td><td class=\"{3}\">{4}</td><td>{5}</td></tr>",
            report.experiment,
            escaped(&report.source),
            escaped(&shape.name),
            class(shape.verdict()),
            sign(shape.verdict()),
            escaped(&shape.evidence)
        );
    }
    out.push_str("</tbody></table>\n");
    for report in reports {
        section(&mut out, report);
    }
    out.push_str(
        "<p class=\"foot\">The same as report.md and report.csv; every sample is in the JSON files beside this page. What \
         could not be repeated, and what stands in for it: docs/benchmarks.md.</p>\n</body></html>\n",
    );
    out
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Held => "held",
        Verdict::NotHeld => "not",
        Verdict::NotComparable | Verdict::NotJudged => "neither",
    }
}

fn sign(verdict: Verdict) -> String {
    let sign = match verdict {
        Verdict::Held => "✓",
        Verdict::NotHeld => "✗",
        Verdict::NotComparable | Verdict::NotJudged => "–",
    };
    format!("{sign} {}", verdict.in_words())
}

fn section(out: &mut String, report: &Report) {
    let about = find(&report.experiment).map_or("", |experiment| experiment.about);
    let _ = writeln!(
        out,
        "<section id=\"{0}\"><h2>{0}</h2><p>{1}: {2}.</p>",
        escaped(&report.experiment),
        escaped(&report.source),
        escaped(about)
    );
    let figures = find(&report.experiment).map_or_else(Vec::new, |e| (e.figures)(&report.rows));
    for drawing in figures.iter().filter_map(|figure| draw::svg(figure, Theme::Page)) {
        let _ = writeln!(out, "<figure>{drawing}</figure>");
    }
    conditions(out, report);
    let compared: Vec<_> = report.rows.iter().filter_map(beside_the_paper).collect();
    if !compared.is_empty() {
        out.push_str("<table><thead><tr><th>beside the paper</th><th>here</th><th>paper</th><th>here / paper</th></tr></thead><tbody>\n");
        for (what, ours, paper, ratio) in compared {
            let _ = writeln!(
                out,
                "<tr><td>{}</td><td class=\"n\">{ours:.1}</td><td class=\"n\">{paper:.0}</td><td class=\"n\">{ratio:.3}</td></tr>",
                escaped(&what)
            );
        }
        out.push_str("</tbody></table>\n");
    }
    let mut bare = report.clone();
    bare.shapes.clear();
    bare.rows.iter_mut().for_each(|row| row.parts_ns.clear());
    let _ = writeln!(
        out,
        "<details><summary>every row</summary><pre>{}</pre></details></section>",
        escaped(&bare.to_string())
    );
}

fn conditions(out: &mut String, report: &Report) {
    let m = &report.machine;
    let others = if m.others_percent > OTHERS_MAX { "red" } else { "" };
    let mut durability: Vec<&str> = report.rows.iter().filter_map(|row| row.durability.as_deref()).collect();
    durability.sort_unstable();
    durability.dedup();
    let durability = if durability.is_empty() { "does not apply".to_owned() } else { durability.join(", ") };
    let _ = writeln!(
        out,
        "<dl class=\"conditions\"><dt>machine</dt><dd>{} cores, {}, kernel {}</dd><dt>load</dt><dd>{} at the start; \
         <span class=\"{others}\">others used {:.0} % of the machine</span></dd><dt>pinning</dt><dd>{}</dd><dt>links</dt>\
         <dd>{}</dd><dt>durability</dt><dd>{durability}</dd><dt>version</dt><dd>{}</dd><dt>command</dt><dd><code>{}</code>, {:.0} s</dd></dl>",
        m.cores,
        escaped(&m.cpu),
        escaped(&m.kernel),
        m.load,
        m.others_percent,
        escaped(&m.pinning),
        escaped(&m.links),
        escaped(&m.version),
        escaped(&m.command),
        m.seconds
    );
}

/// Returns the same as Markdown, without the figures.
pub fn markdown(reports: &[Report]) -> String {
    let cell = |text: &str| text.replace('|', "\\|");
    let mut out = format!("# The papers' experiments again\n\n{}.\n\n", totals(reports));
    let missing = missing(reports);
    if !missing.is_empty() {
        let _ = writeln!(out, "Not run: {}.\n", missing.join(", "));
    }
    out.push_str("| Experiment | Source | Statement | | What was found |\n|---|---|---|---|---|\n");
    for (report, shape) in all_shapes(reports) {
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {} |",
            report.experiment,
            report.source,
            cell(&shape.name),
            shape.verdict().in_words(),
            cell(&shape.evidence)
        );
    }
    for report in reports {
        let _ = writeln!(out, "\n## {}\n\n```text\n{}```", report.experiment, report);
    }
    out
}

/// How many columns a cell has.
const CELL_COLUMNS: usize = 22;

/// Returns the columns of a cell, each after a comma.
fn columns_of(cell: &Cell) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "'"));
    let mut columns =
        vec![cell.protocol.clone(), quoted(&cell.variant), cell.b.to_string(), cell.profile.clone()];
    columns.extend([quoted(&cell.model), cell.machines.clone(), cell.readers.to_string()]);
    let figures = [
        cell.mean,
        cell.deviation,
        cell.interval95,
        cell.fast,
        cell.write_back,
        cell.listener_any,
        cell.listener_needed,
        cell.two_phase,
        cell.extra_msgs,
        cell.messages,
        cell.bytes,
        cell.signatures,
        cell.verifications,
    ];
    columns.extend(figures.map(|figure| format!("{figure:.4}")));
    let (mean, p99) = cell.late_us.unzip();
    columns.extend([mean, p99].map(|late| late.map_or(String::new(), |late| format!("{late:.1}"))));
    format!(",{}", columns.join(","))
}

/// Returns every row as CSV. Latencies and shares of a register's cell are in the unit of its row and in percent.
pub fn csv(reports: &[Report]) -> String {
    let mut out = String::from(
        "experiment,system,variant,op,mode,n,f,clients,repeats,argument_bytes,result_bytes,p50_us,p99_us,ops_per_s,paper,unit,",
    );
    out.push_str("protocol,protocol_variant,b,profile,model,machines,readers,mean,deviation,interval95,fast,write_back,\
                  listener_any,listener_needed,two_phase,extra_msgs,messages,bytes,signatures,verifications,late_mean_us,late_p99_us\n");
    let optional = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
    let count = |value: Option<usize>| value.map_or(String::new(), |value| value.to_string());
    for report in reports {
        for row in &report.rows {
            let cells = [
                report.experiment.clone(),
                row.system.clone(),
                format!("\"{}\"", row.variant.replace('"', "'")),
                row.op.clone(),
                row.mode.clone(),
                count(row.n.map(usize::from)),
                count(row.f.map(usize::from)),
                row.clients.to_string(),
                row.repeats.to_string(),
                count(row.argument_bytes),
                count(row.result_bytes),
                optional(row.p50_us),
                optional(row.p99_us),
                optional(row.ops_per_s),
                optional(row.paper),
                row.unit.clone(),
            ];
            out.push_str(&cells.join(","));
            out.push_str(&row.cell.as_ref().map_or_else(|| ",".repeat(CELL_COLUMNS), columns_of));
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;

    fn example() -> Report {
        let mut report = Report::new("micro-latency", "OSDI99 <Table 1>", Machine::look("none"));
        report.machine.others_percent = 31.0;
        report.shapes = vec![
            Shape::new("one", true, "1 < 2"),
            Shape::new("two", false, "2 > 1"),
            Shape::incomparable("three", "no links"),
        ];
        report.rows.push(Row {
            system: "quorate".to_owned(),
            variant: "default".to_owned(),
            op: "0/0".to_owned(),
            mode: "rw".to_owned(),
            f: Some(1),
            argument_bytes: Some(0),
            result_bytes: Some(0),
            p50_us: Some(50.0),
            paper: Some(3350.0),
            unit: "us".to_owned(),
            samples: vec![50.0],
            ..Row::default()
        });
        report
    }

    #[test]
    fn what_cannot_be_judged_is_one_of_all_statements() {
        let said = "0 of 3 statements held, 0 not held, 1 cannot be compared, 2 cannot be judged";
        assert!(html(&[example().judged()]).contains(said));
    }

    #[test]
    fn the_page_says_what_held_what_did_not_and_what_is_missing() {
        let page = html(&[example()]);
        for part in [
            "1 of 3 statements held, 1 not held, 1 cannot be compared",
            "✓ held",
            "✗ not held",
            "– cannot be compared",
            "OSDI99 &lt;Table 1&gt;",
            "1 &lt; 2",
            "Not run: core-step",
            "<span class=\"red\">others used 31 %",
            "<svg",
            "0.015",
        ] {
            assert!(page.contains(part), "{part}");
        }
        for outside in ["http://", "https://", "src="] {
            let bare = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!bare.contains(outside), "{outside}: the page needs something else");
        }
    }

    #[test]
    fn the_page_is_made_of_nothing_as_well() {
        assert!(html(&[]).contains("0 of 0 statements held"));
        assert!(markdown(&[]).contains("Not run: "));
        assert_eq!(csv(&[]).lines().count(), 1);
        assert_eq!(
            csv(&[example()]).lines().nth(1),
            Some(
                format!(
                    "micro-latency,quorate,\"default\",0/0,rw,,1,0,0,0,0,50.000,,,3350.000,us{}",
                    ",".repeat(22)
                )
                .as_str()
            )
        );
        let mut with_cell = example();
        with_cell.rows[0].cell = Some(Cell { b: 1, mean: 2.5, late_us: Some((3.0, 4.0)), ..Cell::default() });
        let text = csv(&[with_cell]);
        let columns = |line: usize| text.lines().nth(line).map(|line| line.split(',').count());
        assert!(columns(0) == columns(1) && columns(0) == Some(38), "{text}");
        assert!(text.contains(",1,,\"\",,0,2.5000,0.0000,") && text.ends_with(",3.0,4.0\n"), "{text}");
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let report = example();
        let text = serde_json::to_string(&report).unwrap_or_default();
        let back: Report = serde_json::from_str(&text).unwrap_or_else(|error| unreachable!("{error}"));
        assert_eq!(back.to_string(), report.to_string());
        assert_eq!(back.count(Verdict::NotComparable), 1);
    }
}
