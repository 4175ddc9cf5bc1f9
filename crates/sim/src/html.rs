//! Results as one HTML page that needs nothing else.

use std::fmt::Write;

use super::chart::{Chart, Line, escaped};
use super::measure::{Measured, percentile};
use super::report::{Load, Row};

const STYLE: &str = "body{font:14px/1.4 sans-serif;margin:24px auto;max-width:1100px;padding:0 16px;color:#222}\
table{border-collapse:collapse;margin:8px 0}td,th{padding:3px 10px;text-align:right;border-bottom:1px solid #ddd}\
td:nth-child(-n+2),th:nth-child(-n+2){text-align:left}tr.best td{font-weight:bold}\
figure{display:inline-block;margin:8px 8px 8px 0;vertical-align:top}i{display:inline-block;width:12px;height:12px;margin:0 4px 0 12px}";

/// A page for the runs of `simulate`: a table and three charts per scenario and load.
pub fn runs(title: &str, about: &str, rows: &[Row]) -> String {
    let mut body = String::new();
    for group in rows.chunk_by(|a, b| a.scenario == b.scenario && a.load == b.load) {
        let _ = writeln!(body, "<h2>{}, {}</h2>", escaped(&group[0].scenario), heading(&group[0].load));
        body += &table(group);
        let lines = |points: fn(&Measured) -> Vec<(f64, f64)>| {
            let line =
                |row: &Row| Line { name: format!("{} / {}", row.strategy, row.policy), points: points(&row.measured) };
            group.iter().map(line).collect::<Vec<_>>()
        };
        body += &figures(lines);
    }
    page(title, about, &body)
}

/// A page for one measurement.
pub fn one(title: &str, about: &str, measured: &Measured, text: &str) -> String {
    let lines = |points: fn(&Measured) -> Vec<(f64, f64)>| vec![Line { name: "all".into(), points: points(measured) }];
    page(title, about, &format!("<pre>{}</pre>\n{}", escaped(text), figures(lines)))
}

fn page(title: &str, about: &str, body: &str) -> String {
    let (title, about) = (escaped(title), escaped(about));
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head>\n\
         <body><h1>{title}</h1>\n<p>{about}</p>\n{body}</body></html>\n"
    )
}

fn heading(load: &Load) -> String {
    match load {
        Load::Raw => "raw rates".into(),
        Load::Scaled { utilisation, factor } => {
            format!("rates × {factor:.4} ({:.0} % of the engine's capacity)", utilisation * 100.0)
        }
    }
}

fn table(rows: &[Row]) -> String {
    let best = rows.iter().map(|row| row.summary.ttft.p99).fold(f64::INFINITY, f64::min);
    let mut html = String::from(
        "<table><tr><th>strategy<th>policy<th>done<th>refused<th>failed<th>TTFT p50 ms<th>TTFT p99 ms<th>ITL p50 ms<th>ITL p99 ms\
         <th>requests/s<th>tokens/s<th>goodput/s</tr>\n",
    );
    for row in rows {
        let summary = &row.summary;
        let class = if summary.ttft.p99 == best { " class=\"best\"" } else { "" };
        let goodput = summary.goodput.map_or("".into(), |goodput| format!("{goodput:.2}"));
        let _ = writeln!(
            html,
            "<tr{class}><td>{}<td>{}<td>{}<td>{}<td>{}<td>{:.1}<td>{:.1}<td>{:.1}<td>{:.1}<td>{:.2}<td>{:.1}<td>{goodput}</tr>",
            row.strategy,
            row.policy,
            summary.completed,
            summary.refused,
            summary.failed,
            summary.ttft.p50,
            summary.ttft.p99,
            summary.itl.p50,
            summary.itl.p99,
            summary.request_throughput,
            summary.output_throughput
        );
    }
    html + "</table>\n"
}

/// Three charts whose lines `lines` draws, and their legend.
fn figures(lines: impl Fn(fn(&Measured) -> Vec<(f64, f64)>) -> Vec<Line>) -> String {
    let charts = [
        Chart { title: "Time to first token".into(), x: "percentile", y: "ms", lines: lines(quantiles) },
        Chart { title: "Requests without a first token".into(), x: "seconds", y: "requests", lines: lines(queued) },
        Chart { title: "Running sequences".into(), x: "seconds", y: "sequences", lines: lines(running) },
    ];
    let drawn = charts.iter().filter(|chart| chart.lines.iter().any(|line| line.points.len() > 1));
    let figures: String = drawn.map(|chart| format!("<figure>{}</figure>\n", chart.svg())).collect();
    format!("<div>{}</div>\n{figures}", charts[0].legend())
}

fn quantiles(measured: &Measured) -> Vec<(f64, f64)> {
    let ttfts = measured.ttfts_ms();
    if ttfts.is_empty() {
        return Vec::new();
    }
    (0..=100).map(|percent| (f64::from(percent), percentile(&ttfts, f64::from(percent) / 100.0))).collect()
}

fn queued(measured: &Measured) -> Vec<(f64, f64)> {
    measured.depths.iter().map(|depth| (depth.at.as_secs_f64(), depth.queued as f64)).collect()
}

fn running(measured: &Measured) -> Vec<(f64, f64)> {
    measured.depths.iter().map(|depth| (depth.at.as_secs_f64(), depth.running as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Depth, Slo};
    use forebay_core::units::Micros;

    #[test]
    fn a_page_is_whole_by_itself() {
        let mut measured = Measured::new(vec!["chat".into()]);
        measured.depths = (0..4).map(|n| Depth { at: Micros(n * 1_000_000), queued: 3, running: n as usize }).collect();
        let row = |strategy: &str| Row {
            scenario: "a<b".into(),
            load: Load::Scaled { utilisation: 0.7, factor: 0.25 },
            strategy: strategy.into(),
            policy: "fair".into(),
            workers: 1,
            balancer: "prefix_aware",
            preemption: "most_recent",
            summary: measured.summary(&Slo::default()),
            measured: measured.clone(),
        };
        let page = runs("title", "about", &[row("fixed"), row("immediate")]);
        assert_eq!(page.matches("<h2>").count(), 1);
        assert_eq!(page.matches("<svg").count(), 2, "no line of TTFTs without a request");
        assert!(page.contains("a&lt;b, rates × 0.2500 (70 % of the engine's capacity)"));
        for foreign in ["<script", "<link", "src=", "href=", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }
}
