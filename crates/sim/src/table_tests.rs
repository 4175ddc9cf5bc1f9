//! The tables of docs/strategies.md, and what its text says of them. `make tables` writes them; otherwise they are compared.

use std::fmt::Write;
use std::sync::Mutex;

use super::measure::{Measured, Slo, Summary};
use super::peers::Peer;
use super::setup::Setup;
use super::simulate::{simulate_all, tests::setup};
use super::workload::Workload;
use forebay_core::intake::StrategyKind;
use forebay_core::scheduler::{self, PolicyKind};
use forebay_core::slo;

/// The simulated worker with the settings that a server has by default, long enough for `workload`.
fn engine(workload: &Workload) -> Setup {
    let mut setup = setup().for_lengths(workload.longest());
    setup.scheduler.max_stall = scheduler::Config::default().max_stall;
    setup
}

/// `workload` at a share of the engine's capacity.
fn at(load: f64, workload: &Workload, setup: &Setup) -> Workload {
    workload.scaled(workload.factor(load, &setup.cost, &setup.capacity()))
}

fn ours(workload: &Workload, load: f64, runs: u64, strategy: StrategyKind, policy: PolicyKind) -> Measured {
    let mut setup = engine(workload);
    setup.intake.flush.strategy = strategy;
    setup.scheduler.policy.kind = policy;
    simulate_all(&setup, &at(load, workload, &setup), 0..runs, &mut |_| ())
}

fn scenarios() -> Vec<Workload> {
    Workload::all().into_iter().filter(|workload| workload.scenario().is_some()).collect()
}

fn summary(measured: &Measured) -> Summary {
    measured.summary(&Slo { promises: Some(slo::Slo::DEFAULT), ..Slo::default() })
}

/// Requests that were served as promised, as a share of all.
fn kept(measured: &Measured) -> f64 {
    measured.kept(&slo::Slo::DEFAULT) as f64 / measured.records.len() as f64
}

/// Compares the table of this name in the document, or writes it. Tests of several tables may run as threads of one process.
fn check(name: &str, table: &str) {
    static DOCUMENT: Mutex<()> = Mutex::new(());
    let _held = DOCUMENT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/strategies.md");
    let document = std::fs::read_to_string(path).expect("docs/strategies.md");
    let begin = format!("<!-- table: {name} -->\n");
    let (before, rest) = document.split_once(&begin).unwrap_or_else(|| panic!("no {begin}"));
    let (found, after) = rest.split_once("<!-- end -->").expect("the table's end");
    if std::env::var_os("FOREBAY_BLESS").is_some() {
        std::fs::write(path, format!("{before}{begin}{table}<!-- end -->{after}")).expect("docs/strategies.md");
    } else {
        assert_eq!(found, table, "the table {name} is not what the simulator says: make tables");
    }
}

const LATENCIES: &str = "mean TTFT ms | p50 | p99 | median inter-token ms | tokens/s | promises |";

fn latencies(measured: &Measured) -> String {
    let Summary { ttft, itl, output_throughput, .. } = summary(measured);
    let promises = kept(measured);
    format!(
        "{:.0} | {:.0} | {:.0} | {:.1} | {output_throughput:.1} | {promises:.3} |",
        ttft.mean, ttft.p50, ttft.p99, itl.p50
    )
}

#[test]
fn the_table_of_strategies() {
    let mut table = format!("| scenario | strategy | {LATENCIES}\n|---|---|---|---|---|---|---|---|\n");
    for scenario in scenarios() {
        for strategy in StrategyKind::ALL {
            let measured = ours(&scenario, 0.7, 10, strategy, PolicyKind::Fair);
            let _ = writeln!(table, "| `{}` | `{}` | {}", scenario.name(), strategy.name(), latencies(&measured));
        }
    }
    check("strategies", &table);
}

#[test]
fn the_table_of_policies() {
    let head = LATENCIES.replace("median", "mean end to end ms | median");
    let mut table = format!("| scenario | policy | {head} evenness |\n|---|---|---|---|---|---|---|---|---|---|\n");
    for workload in Workload::all() {
        for policy in PolicyKind::ALL {
            let measured = ours(&workload, 1.2, 3, StrategyKind::default(), policy);
            let Summary { ttft, itl, e2el, output_throughput, evenness, .. } = summary(&measured);
            let _ = writeln!(
                table,
                "| `{}` | `{}` | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} | {output_throughput:.1} | {:.3} | {evenness:.3} |",
                workload.name(),
                policy.name(),
                ttft.mean,
                ttft.p50,
                ttft.p99,
                e2el.mean,
                itl.p50,
                kept(&measured),
            );
        }
    }
    check("policies", &table);
}

/// Each scheduler's name, the tokens of a step, and what it did at this load with all four classes, if the workload has but one.
fn contest(workload: &Workload, load: f64) -> Vec<(String, usize, Measured)> {
    let workload = if workload.classes().len() < 3 { workload.clone().mixed() } else { workload.clone() };
    let setup = engine(&workload);
    let mut found = Vec::new();
    for policy in [PolicyKind::Slo, PolicyKind::Fair] {
        let measured = ours(&workload, load, 2, StrategyKind::default(), policy);
        found.push((format!("Forebay, `{}`", policy.name()), setup.scheduler.max_num_batched_tokens, measured));
    }
    for peer in Peer::ALL {
        let (tokens, measured) = peer.tuned(&setup, &at(load, &workload, &setup), 0..2);
        found.push((peer.name().to_owned(), tokens, measured));
    }
    found
}

/// What `slo` keeps, what the best of the peers does, and that one's name.
fn slo_and_best(contest: &[(String, usize, Measured)]) -> (f64, f64, String) {
    let (mut best, mut name) = (0.0, String::new());
    for (peer, _, measured) in &contest[2..] {
        if kept(measured) > best {
            (best, name) = (kept(measured), peer.clone());
        }
    }
    (kept(&contest[0].2), best, name)
}

/// Loads of the table of ratios, as shares of capacity, and the one that is shown in full.
const LOADS: [f64; 5] = [0.3, 0.7, 1.0, 1.2, 2.0];
const SHOWN: f64 = 1.2;

#[test]
fn the_tables_beside_other_schedulers() {
    let mut shown = String::from(
        "| workload | scheduler | tokens per step | promises | goodput requests/s | TTFT p50 ms | p99 | inter-token p50 ms | p99 | \
         tokens/s | evenness |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut ratios = format!("| workload |{}\n", LOADS.map(|load| format!(" {load} |")).concat());
    ratios += &format!("|---|{}\n", "---|".repeat(LOADS.len()));
    for workload in Workload::all() {
        let name = workload.name();
        let _ = write!(ratios, "| `{name}` |");
        for load in LOADS {
            let contest = contest(&workload, load);
            let (slo, best, peer) = slo_and_best(&contest);
            let _ = write!(ratios, " {:.2} ({slo:.3}, {peer} {best:.3}) |", slo / best);
            // Nowhere worse, by more than one request of some hundreds; and where it is tight, better by far.
            assert!(slo >= 0.998 * best, "{name} at {load}: {slo}, {peer} {best}");
            assert!(load < SHOWN || slo >= 1.3 * best, "{name} at {load}: {slo}, {peer} {best}");
            if load == SHOWN {
                contest.iter().for_each(|(who, tokens, measured)| shown += &shown_row(name, who, *tokens, measured));
            }
        }
        ratios += "\n";
    }
    check("peers", &shown);
    check("loads", &ratios);
}

fn shown_row(workload: &str, scheduler: &str, tokens: usize, measured: &Measured) -> String {
    let Summary { goodput, ttft, itl, output_throughput, evenness, .. } = summary(measured);
    let (promises, goodput) = (kept(measured), goodput.expect("promises were asked for"));
    format!(
        "| `{workload}` | {scheduler} | {tokens} | {promises:.3} | {goodput:.2} | {:.0} | {:.0} | {:.1} | {:.0} | \
         {output_throughput:.1} | {evenness:.3} |\n",
        ttft.p50, ttft.p99, itl.p50, itl.p99,
    )
}
