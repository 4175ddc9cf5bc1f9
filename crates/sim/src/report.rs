//! Results as text: a table of runs, and what `vllm bench serve` prints for one.

use std::fmt::Write;

use super::measure::{Inside, Measured, Slo, Stats, Summary};

/// Whether a scenario ran at the rates of its file or scaled to what the engine can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    Raw,
    /// The share of the engine's capacity, and the factor on the rates that gives it.
    Scaled {
        utilisation: f64,
        factor: f64,
    },
}

impl Load {
    pub fn name(&self) -> String {
        match self {
            Load::Raw => "raw".into(),
            Load::Scaled { utilisation, .. } => format!("{:.0} %", utilisation * 100.0),
        }
    }
}

/// One scenario under one strategy and policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub scenario: String,
    pub load: Load,
    /// Of a peer's run, the peer.
    pub strategy: String,
    /// Of a peer's run, the tokens of a step.
    pub policy: String,
    /// Workers, and how one is chosen.
    pub workers: usize,
    pub balancer: &'static str,
    /// Who gives blocks back.
    pub preemption: &'static str,
    pub measured: Measured,
    pub summary: Summary,
}

/// One line per run, a block per scenario and load.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut group = None;
    for row in rows {
        let next = (&row.scenario, row.load.name());
        if group.as_ref() != Some(&next) {
            let _ = writeln!(text, "\n{} ({})", row.scenario, load(&row.load));
            let _ = writeln!(
                text,
                "  {:<15}{:<18}{:>9}{:>9}{:>9}{:>12}{:>12}{:>11}{:>11}{:>10}{:>10}",
                "strategy",
                "policy",
                "done",
                "refused",
                "failed",
                "TTFT p50",
                "TTFT p99",
                "ITL p50",
                "ITL p99",
                "req/s",
                "goodput"
            );
            group = Some(next);
        }
        let Summary { completed, refused, failed, ttft, itl, .. } = &row.summary;
        let goodput = row.summary.goodput.map_or("-".into(), |goodput| format!("{goodput:.2}"));
        let _ = writeln!(
            text,
            "  {:<15}{:<18}{completed:>9}{refused:>9}{failed:>9}{:>12.1}{:>12.1}{:>11.1}{:>11.1}{:>10.2}{goodput:>10}{}",
            row.strategy,
            row.policy,
            ttft.p50,
            ttft.p99,
            itl.p50,
            itl.p99,
            row.summary.request_throughput,
            inside(row)
        );
    }
    text
}

/// What there is to say of several workers, and of blocks that were too few.
fn inside(row: &Row) -> String {
    let Inside { cached_tokens, preemptions, retried, breaker_openings, by_worker } = &row.measured.inside;
    let mut parts = Vec::new();
    if row.workers > 1 {
        let sent: Vec<String> = by_worker.iter().map(usize::to_string).collect();
        parts.push(format!("{}: {} requests, {cached_tokens} tokens cached", row.balancer, sent.join(" + ")));
    }
    if *retried + *breaker_openings > 0 {
        parts.push(format!("{retried} retried, breakers opened {breaker_openings} times"));
    }
    if *preemptions > 0 {
        parts.push(format!("{}: {preemptions} preemptions", row.preemption));
    }
    if parts.is_empty() { String::new() } else { format!("  {}", parts.join("; ")) }
}

fn load(load: &Load) -> String {
    match load {
        Load::Raw => "raw rates".into(),
        Load::Scaled { utilisation, factor } => {
            format!("rates × {factor:.4}: {:.0} % of the engine's capacity", utilisation * 100.0)
        }
    }
}

/// As `vllm bench serve` prints it, its spelling included. `extra` are lines of settings.
pub fn serving(measured: &Measured, slo: &Slo, extra: &[(String, String)]) -> String {
    let summary = measured.summary(slo);
    let mut text = title(" Serving Benchmark Result ", '=');
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{:<40} {value:<10}", format!("{name}:"));
    };
    line("Successful requests", summary.completed.to_string());
    line("Failed requests", (summary.failed + summary.refused).to_string());
    extra.iter().for_each(|(name, value)| line(name, value.clone()));
    line("Benchmark duration (s)", format!("{:.2}", summary.seconds));
    line("Total input tokens", summary.input_tokens.to_string());
    line("Total generated tokens", summary.output_tokens.to_string());
    line("Request throughput (req/s)", format!("{:.2}", summary.request_throughput));
    if let Some(goodput) = summary.goodput {
        line("Request goodput (req/s)", format!("{goodput:.2}"));
    }
    line("Output token throughput (tok/s)", format!("{:.2}", summary.output_throughput));
    line("Total token throughput (tok/s)", format!("{:.2}", summary.total_throughput));
    text += &latencies(&summary);
    if measured.classes.len() > 1 {
        for (class, name) in measured.classes.iter().enumerate() {
            text += &class_line(name, &measured.class_summary(slo, class));
        }
    }
    text + &"=".repeat(50) + "\n"
}

fn latencies(summary: &Summary) -> String {
    let mut text = String::new();
    for (heading, name, stats) in [
        ("Time to First Token", "TTFT", &summary.ttft),
        ("Time per Output Token (excl. 1st token)", "TPOT", &summary.tpot),
        ("Inter-token Latency", "ITL", &summary.itl),
        ("End-to-end Latency", "E2EL", &summary.e2el),
    ] {
        text += &title(heading, '-');
        let Stats { mean, p50, p99, .. } = stats;
        for (what, value) in [("Mean", mean), ("Median", p50), ("P99", p99)] {
            let _ = writeln!(text, "{:<40} {value:<10.2}", format!("{what} {name} (ms):"));
        }
    }
    text
}

fn class_line(name: &str, summary: &Summary) -> String {
    let heading = title(&format!(" {name} "), '-');
    let line = |what: &str, stats: &Stats| {
        format!("{:<40} {:.2} / {:.2}\n", format!("Median / P99 {what} (ms):"), stats.p50, stats.p99)
    };
    heading
        + &format!("{:<40} {}\n", "Successful requests:", summary.completed)
        + &line("TTFT", &summary.ttft)
        + &line("ITL", &summary.itl)
}

/// Centred in 50 columns.
fn title(text: &str, fill: char) -> String {
    let room = 50_usize.saturating_sub(text.len());
    let side = |count: usize| fill.to_string().repeat(count);
    format!("{}{text}{}\n", side(room / 2), side(room - room / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_one_that_scripts_know() {
        let mut measured = Measured::new(vec!["chat".into()]);
        measured.duration = forebay_core::units::Micros(2_000_000);
        let text = serving(&measured, &Slo::default(), &[("Request rate configured (RPS)".into(), "4.00".into())]);
        for line in [
            "============ Serving Benchmark Result ============",
            "Successful requests:                     0         ",
            "Failed requests:                         0         ",
            "Request rate configured (RPS):           4.00      ",
            "Benchmark duration (s):                  2.00      ",
            "---------------Time to First Token----------------",
            "P99 TTFT (ms):                           0.00      ",
            "-----Time per Output Token (excl. 1st token)------",
            "Mean TPOT (ms):                          0.00      ",
            "---------------Inter-token Latency----------------",
            "----------------End-to-end Latency----------------",
            "Median E2EL (ms):                        0.00      ",
            "==================================================",
        ] {
            assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
        }
        assert!(!text.contains("goodput"));
    }
}
