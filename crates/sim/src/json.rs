//! Results for programs. Keys are those of `vllm bench serve --save-result`, where it has them.

use serde_json::{Map, Value, json};

use super::measure::{Measured, Slo, Stats, Summary};
use super::report::{Load, Row};

pub fn rows(rows: &[Row], seed: u64, runs: u64, slo: &Slo) -> Value {
    let row = |row: &Row| {
        let mut object = json!({
            "scenario": row.scenario,
            "load": match row.load {
                Load::Raw => json!({"kind": "raw"}),
                Load::Scaled { utilisation, factor } =>
                    json!({"kind": "scaled", "utilisation": utilisation, "factor": factor}),
            },
            "strategy": row.strategy,
            "policy": row.policy,
            "workers": row.workers,
            "balancer": row.balancer,
            "preemption": row.preemption,
            "cached_prompt_tokens": row.measured.inside.cached_tokens,
            "preemptions": row.measured.inside.preemptions,
            "retried": row.measured.inside.retried,
            "breaker_openings": row.measured.inside.breaker_openings,
            "requests_by_worker": row.measured.inside.by_worker,
            "evenness": row.summary.evenness,
        });
        extend(&mut object, summary(&row.summary));
        object["classes"] = classes(&row.measured, slo);
        object
    };
    json!({"seed": seed, "runs": runs, "results": rows.iter().map(row).collect::<Vec<_>>()})
}

/// One measurement, its classes apart.
pub fn measured(measured: &Measured, slo: &Slo) -> Value {
    let mut object = summary(&measured.summary(slo));
    object["classes"] = classes(measured, slo);
    object
}

fn classes(measured: &Measured, slo: &Slo) -> Value {
    let class = |(at, name): (usize, &String)| (name.clone(), summary(&measured.class_summary(slo, at)));
    measured.classes.iter().enumerate().map(class).collect::<Map<_, _>>().into()
}

pub fn summary(summary: &Summary) -> Value {
    let mut object = json!({
        "duration": summary.seconds,
        "completed": summary.completed,
        "failed": summary.failed,
        "refused": summary.refused,
        "total_input_tokens": summary.input_tokens,
        "total_output_tokens": summary.output_tokens,
        "request_throughput": summary.request_throughput,
        "request_goodput": summary.goodput,
        "output_throughput": summary.output_throughput,
        "total_token_throughput": summary.total_throughput,
    });
    for (name, stats) in
        [("ttft", &summary.ttft), ("tpot", &summary.tpot), ("itl", &summary.itl), ("e2el", &summary.e2el)]
    {
        let Stats { mean, std, p50, p90, p99 } = stats;
        for (what, value) in [("mean", mean), ("median", p50), ("std", std), ("p90", p90), ("p99", p99)] {
            object[format!("{what}_{name}_ms")] = json!(value);
        }
    }
    object
}

fn extend(object: &mut Value, other: Value) {
    if let (Some(object), Value::Object(other)) = (object.as_object_mut(), other) {
        object.extend(other);
    }
}
