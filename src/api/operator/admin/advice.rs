//! What a strategy costs or would bring: the fitted cost of a step, recommendations from what was recorded, trials in time
//! slices.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, Path, Query, State as Extract};
use serde::Serialize;
use tokio::time::sleep;

use super::advice_answers::{CanaryState, Cost, Recommendation};
use super::canary::{Canaries, Canary, Outcome};
use super::control_answers::Control;
use super::guard::Actor;
use super::{audit, control};
use crate::api::Front;
use crate::api::error::{ApiError, ErrorAnswer};
use forebay_core::request::RequestError;
use forebay_core::units::Micros;
use forebay_engine::workers::Pool;
use forebay_sim::canary::{Arm, Slices, Trial, Verdict};
use forebay_sim::recommend::recommend;
use forebay_sim::{CostModel, Slo};
use forebay_turn::control::{Change, Changed, Group};
use forebay_turn::history::{Past, Record};

type Answer<T> = Result<Json<T>, ApiError>;
type Parameters = Query<BTreeMap<String, String>>;

const SHORTEST: Micros = Micros::from_millis(1_000);
const LONGEST: Micros = Micros::from_millis(24 * 3_600 * 1_000);

/// What a step costs, as the engine has learnt; `forebay calibrate` reads it.
#[utoipa::path(get, path = "/admin/cost", operation_id = "cost", tag = "admin", responses((status = 200, description = "As learnt so far", body = Cost)))]
pub async fn cost(Extract(state): Extract<Front>) -> Answer<Cost> {
    let records = state.workers.history(Micros::ZERO).await?;
    // They compute the same model with the same threads: who has seen most knows best.
    let Some(record) = records.iter().max_by_key(|record| record.cost.samples()) else {
        return Err(RequestError::EngineStopped.into());
    };
    let Some(cost) = fitted(record) else {
        return Ok(Json(Cost { samples: 0, spread: None, model: None }));
    };
    let model = cost.named().into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Ok(Json(Cost { samples: record.cost.samples(), spread: Some(record.cost.spread()), model: Some(model) }))
}

fn fitted(record: &Record) -> Option<CostModel> {
    Some(CostModel { gap_us: record.gap.0 as f64, ..CostModel::fitted(&record.cost)? })
}

/// Every strategy and policy with the arrivals that were recorded in the window.
#[utoipa::path(get, path = "/admin/strategy/recommend", operation_id = "recommend", tag = "admin", params(("window" = Option<String>, Query, description = "From 1s to 24h; 10m if absent")), responses((status = 200, description = "What is predicted, and what follows from it", body = Recommendation), (status = 400, description = "A bad window", body = ErrorAnswer)))]
pub async fn advise(Extract(state): Extract<Front>, Query(parameters): Parameters) -> Answer<Recommendation> {
    only(&parameters, &["window"])?;
    let window = duration(&parameters, "window")?.unwrap_or(Micros::from_millis(600_000));
    let records = state.workers.history(window).await?;
    let slo = objective(&records);
    // Seconds of computing, perhaps: not on a thread that answers others.
    let advice = tokio::task::spawn_blocking(move || recommend(&records, &slo)).await;
    let advice = advice.map_err(|_| RequestError::Internal)?;
    Ok(Json(Recommendation::of(advice, &slo)))
}

/// A first token within the latency target.
fn objective(records: &[Record]) -> Slo {
    // All loops are tuned alike.
    let target = records.first().map(|record| record.tuning.intake.flush.target_p99);
    Slo { ttft_ms: target.map(|target| target.0 as f64 / 1e3), ..Slo::default() }
}

/// What selecting a strategy answers.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Selected {
    InForce(Box<Control>),
    OnTrial(Box<CanaryState>),
}

/// `POST /admin/strategy/{name}`, on trial where `?canary=10m` says so.
pub async fn select(
    Extract(state): Extract<Front>,
    Extension(actor): Extension<Actor>,
    Path(name): Path<String>,
    Query(parameters): Parameters,
) -> Answer<Selected> {
    only(&parameters, &["canary", "share"])?;
    let Some(total) = duration(&parameters, "canary")? else {
        if parameters.contains_key("share") {
            return Err(RequestError::invalid("share", "needs canary").into());
        }
        let Json(control) = control::select(Extract(state), Extension(actor), Path(name), Group::Strategy).await?;
        return Ok(Json(Selected::InForce(Box::new(control))));
    };
    let share = share(&parameters)?;
    let stats = state.workers.stats().await?;
    if !Group::Strategy.names().contains(&name.as_str()) {
        return Err(forebay_turn::control::unknown("strategy", &name, Group::Strategy.names()).into());
    }
    let instead_of = stats.strategy().to_owned();
    if instead_of == name {
        return Err(RequestError::invalid("canary", format!("{name} is in force already")).into());
    }
    let canary = Canary {
        strategy: name,
        instead_of,
        share,
        seconds: total.as_secs_f64(),
        trial: Trial::default(),
        outcome: None,
    };
    let mut latest = state.canaries.lock().await;
    if latest.as_ref().is_some_and(|running| running.outcome.is_none()) {
        return Err(RequestError::invalid("canary", "another trial is under way").into());
    }
    *latest = Some(canary.clone());
    drop(latest);
    let Actor(who) = actor;
    tracing::info!(event = "canary_began", who, strategy = canary.strategy, instead_of = canary.instead_of, share);
    let (front, actor) = (state.clone(), who);
    let answer = Selected::OnTrial(Box::new(CanaryState::of(&canary)));
    // Ends by itself: with its time, with a verdict, or with the engine.
    tokio::spawn(async move {
        let outcome = run(&front.workers, &front.canaries, &canary, Slices::new(total, share)).await;
        tracing::info!(event = "canary_ended", strategy = canary.strategy, kept = outcome.kept, "{}", outcome.why);
        if outcome.kept {
            let (from, to) = (canary.instead_of.clone(), canary.strategy.clone());
            audit::record(&front, &actor, &[Changed { what: "strategy".into(), from, to }]).await;
        }
        if let Some(canary) = front.canaries.lock().await.as_mut() {
            canary.outcome = Some(outcome);
        }
    });
    Ok(Json(answer))
}

/// The strategy on trial, or the last one; `null` if there was none.
#[utoipa::path(get, path = "/admin/strategy/canary", operation_id = "canary", tag = "admin", responses((status = 200, description = "How it stands", body = Option<CanaryState>)))]
pub async fn canary(Extract(state): Extract<Front>) -> Answer<Option<CanaryState>> {
    Ok(Json(state.canaries.lock().await.as_ref().map(CanaryState::of)))
}

/// Slice after slice until a verdict or the end; leaves the better strategy in force, or the old one.
async fn run(workers: &Pool, canaries: &Canaries, canary: &Canary, slices: Slices) -> Outcome {
    let tried = try_out(workers, canaries, canary, slices).await;
    let (winner, outcome) = match tried {
        Ok(trial) => match trial.verdict() {
            Verdict::Better => (&canary.strategy, Outcome { kept: true, why: format!("better: {}", trial.told()) }),
            Verdict::Worse => (&canary.instead_of, Outcome { kept: false, why: format!("worse: {}", trial.told()) }),
            Verdict::Undecided => {
                let why = format!("no difference showed, so nothing changes: {}", trial.told());
                (&canary.instead_of, Outcome { kept: false, why })
            }
        },
        Err(why) => (&canary.instead_of, Outcome { kept: false, why }),
    };
    match choose(workers, winner).await {
        Ok(()) => outcome,
        Err(error) => Outcome { kept: false, why: format!("{}; the last change failed: {error}", outcome.why) },
    }
}

async fn try_out(workers: &Pool, canaries: &Canaries, canary: &Canary, slices: Slices) -> Result<Trial, String> {
    let failed = |error: RequestError| format!("the engine could not be asked: {error}");
    let start = workers.history(Micros::ZERO).await.map_err(failed)?;
    let began = latest(&start);
    let slo = objective(&start);
    // The borders of slices as they really were: arms of requests follow from when they came.
    let mut borders: Vec<(Micros, Arm)> = Vec::new();
    loop {
        let records = workers.history(slices.total + slices.cycle).await.map_err(failed)?;
        let now = latest(&records);
        let since = now.since(began);
        // An operator's word goes before any trial.
        let selected = records.first().and_then(|record| record.tuning.selected(Group::Strategy)).unwrap_or_default();
        let expected = match borders.last() {
            Some((_, Arm::OnTrial)) => &canary.strategy,
            Some((_, Arm::InForce)) | None => &canary.instead_of,
        };
        if selected != expected {
            return Err(format!("ended: {selected} was selected meanwhile"));
        }
        let trial = tally(records.iter().flat_map(|record| &record.past), began, &borders, &slo);
        if let Some(canary) = canaries.lock().await.as_mut() {
            canary.trial = trial;
        }
        if since >= slices.total || trial.verdict() != Verdict::Undecided {
            return Ok(trial);
        }
        let arm = slices.arm(since);
        let name = if arm == Arm::OnTrial { &canary.strategy } else { &canary.instead_of };
        choose(workers, name).await.map_err(failed)?;
        borders.push((now, arm));
        sleep(Duration::from_micros(slices.left(since).0)).await;
    }
}

/// One clock counts for all loops; they answered one after the other.
fn latest(records: &[Record]) -> Micros {
    records.iter().map(|record| record.now).max().unwrap_or_default()
}

/// Ended requests by the slice in which they came.
fn tally<'a>(past: impl Iterator<Item = &'a Past>, began: Micros, borders: &[(Micros, Arm)], slo: &Slo) -> Trial {
    let mut trial = Trial::default();
    for past in past.filter(|past| past.at >= began) {
        let Some(kept) = kept(past, slo) else { continue };
        let slice = borders.partition_point(|(at, _)| *at <= past.at);
        if let Some((_, arm)) = slice.checked_sub(1).and_then(|at| borders.get(at)) {
            trial.count(*arm, kept);
        }
    }
    trial
}

/// Whether its first token came in time; `None` while that is open, and for clients that left before.
fn kept(past: &Past, slo: &Slo) -> Option<bool> {
    let limit = slo.ttft_ms.unwrap_or(f64::INFINITY);
    match (past.first_token, past.completed) {
        (Some(first), _) => Some(first.since(past.at).0 as f64 / 1e3 <= limit),
        (None, Some(true)) => Some(false),
        (None, Some(false) | None) => None,
    }
}

async fn choose(workers: &Pool, name: &str) -> Result<(), RequestError> {
    workers.change(Change { group: Group::Strategy, name: Some(name.to_owned()), values: Vec::new() }).await?;
    Ok(())
}

/// Nothing is ignored silently.
fn only(parameters: &BTreeMap<String, String>, known: &[&str]) -> Result<(), RequestError> {
    match parameters.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => {
            let name: String = name.chars().take(60).collect();
            Err(RequestError::invalid(name, format!("is unknown here; valid are {}", known.join(", "))))
        }
        None => Ok(()),
    }
}

/// `90s`, `10m`: a number and its unit.
fn duration(parameters: &BTreeMap<String, String>, name: &'static str) -> Result<Option<Micros>, RequestError> {
    let Some(text) = parameters.get(name) else { return Ok(None) };
    let wrong = || RequestError::invalid(name, "must be a duration from 1s to 24h with a unit, such as 90s or 10m");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let millis = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let millis = millis.and_then(|unit: u64| number.checked_mul(unit)).filter(|ms| *ms <= LONGEST.as_millis());
    let duration = Micros::from_millis(millis.ok_or_else(wrong)?);
    if duration < SHORTEST { Err(wrong()) } else { Ok(Some(duration)) }
}

fn share(parameters: &BTreeMap<String, String>) -> Result<f64, RequestError> {
    let Some(text) = parameters.get("share") else { return Ok(0.2) };
    let share: Option<f64> = text.parse().ok().filter(|share| (0.01..=0.9).contains(share));
    share.ok_or_else(|| RequestError::invalid("share", "must be from 0.01 to 0.9"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::request::Priority;

    #[test]
    fn durations_and_shares_are_checked() {
        let parameters = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
        for (text, seconds) in [("90s", 90), ("10m", 600), ("1h", 3_600), ("1500ms", 1), ("24h", 86_400)] {
            let found = duration(&parameters("window", text), "window").unwrap().unwrap();
            assert_eq!(found.0 / 1_000_000, seconds, "{text}");
        }
        for bad in ["", "10", "m", "-1s", "0s", "999ms", "25h", "99999999999999999999h", "1.5m", "10 m"] {
            assert!(duration(&parameters("window", bad), "window").is_err(), "{bad}");
        }
        for bad in ["0", "0.95", "1", "NaN", "x"] {
            assert!(share(&parameters("share", bad)).is_err(), "{bad}");
        }
        assert!(only(&parameters("windows", "1m"), &["window"]).is_err());
    }

    #[test]
    fn requests_count_for_the_slice_they_came_in() {
        let past = |at: u64, ttft: Option<u64>, completed: Option<bool>| Past {
            at: Micros::from_millis(at),
            priority: Priority::Normal,
            prompt_tokens: 1,
            output_tokens: 1,
            first_token: ttft.map(|ttft| Micros::from_millis(at + ttft)),
            last: Micros::from_millis(at),
            completed,
        };
        let borders = [(Micros::from_millis(100), Arm::InForce), (Micros::from_millis(200), Arm::OnTrial)];
        let requests = [
            past(50, Some(1), Some(true)),
            past(150, Some(500), Some(true)),
            past(199, Some(501), None),
            past(200, Some(10), None),
            past(210, None, None),
            past(220, None, Some(false)),
        ];
        let slo = Slo { ttft_ms: Some(500.0), ..Slo::default() };
        let trial = tally(requests.iter(), Micros::from_millis(100), &borders, &slo);
        assert_eq!((trial.in_force.requests, trial.in_force.kept), (2, 1));
        assert_eq!((trial.on_trial.requests, trial.on_trial.kept), (1, 1));
    }
}
