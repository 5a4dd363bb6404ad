//! A run as a page of HTML.

use std::fmt::Write as _;

use quorate_bench::draw::escaped;
use quorate_sim::lanes::Diagram;
use quorate_sim::trace::What;

const STYLE: &str = ":root{color-scheme:light dark}body{font:13px ui-monospace,monospace;margin:12px}\
    table{border-collapse:collapse}th{position:sticky;top:0;background:Canvas;text-align:left}\
    th,td{padding:1px 10px 1px 0;white-space:nowrap;max-width:200px;overflow:hidden;text-overflow:ellipsis}\
    td+td+td{border-left:1px solid #8884;padding-left:6px}\
    tr:hover{background:#8882}.milestone{opacity:.65}.executed{color:#1a7f4b}.fault{color:#c0262d;font-weight:bold}";

/// Returns the page: a column for each replica and one for all clients. The text of an event is in full where the pointer
/// is. Nothing is loaded from elsewhere, and `#s7` leads to step 7.
pub(super) fn html(title: &str, diagram: &Diagram<'_>) -> String {
    let (heads, rows) = (diagram.heads(), diagram.rows());
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n<title>{0}</title>\n<style>{STYLE}</style>\n\
         <h1>{0}</h1>\n<p>{1} events</p>\n<table>\n<thead><tr><th>step<th>us",
        escaped(title),
        rows.len()
    );
    // Writing to a string does not fail.
    for head in heads {
        let _ = write!(out, "<th>{}", escaped(head));
    }
    out.push_str("</thead>\n<tbody>\n");
    let mut last = None;
    for row in rows {
        let line = row.line();
        // A step may have several events. Its first one is where links lead.
        let id = if last == Some(line.step) { String::new() } else { format!(" id=\"s{}\"", line.step) };
        last = Some(line.step);
        let class = match line.what {
            What::Sent { .. } => "sent",
            What::Milestone(_) => "milestone",
            What::Executed(_) => "executed",
            What::Fault(_) => "fault",
        };
        let before = "<td>".repeat(row.column());
        let _ = writeln!(
            out,
            "<tr{id}><td>{}<td>{}{before}<td class=\"{class}\" title=\"{}\">{}{}",
            line.step,
            line.at / 1000,
            escaped(&line.to_string()),
            escaped(row.text()),
            "<td>".repeat(heads.len() - row.column() - 1)
        );
    }
    out.push_str("</tbody>\n</table>\n</html>\n");
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use quorate_sim::trace::Line;

    use super::*;

    #[test]
    fn every_event_has_its_place_and_is_text() {
        let names = ["c0", "r0", "r1"].map(str::to_owned);
        let line = |step, who: &str, what| Line { step, at: 2000, who: who.to_owned(), what };
        let lines = [
            line(7, "r1", What::Executed("put <b> & \"c\"".to_owned())),
            line(7, "c0", What::Fault("crashes".to_owned())),
        ];
        let page = html("sim <1>", &Diagram::new(&names, &lines));
        assert!(page.contains("<title>sim &lt;1&gt;</title>") && page.contains("2 events"), "{page}");
        assert!(page.contains("<th>step<th>us<th>r0<th>r1<th>clients</thead>"), "{page}");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("<tr")).collect();
        assert!(rows[0].starts_with("<tr id=\"s7\"><td>7<td>2<td><td class=\"executed\" title="), "{page}");
        assert!(!page.contains("<b>") && rows[0].contains("! put &lt;b&gt; &amp; "), "{page}");
        assert!(rows[1].starts_with("<tr><td>7<td>2<td><td><td class=\"fault\""), "{page}");
        assert_eq!(rows[1].matches("<td").count(), 5);
    }
}
