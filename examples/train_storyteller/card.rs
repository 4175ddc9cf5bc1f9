//! The model card: figures, the curve as a picture, real samples.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;
use serde_json::Value;

use crate::corpus::BROAD_STEPS;
use crate::train::Point;

/// What the card says beside the judge's report.
pub struct Figures {
    pub parameters: usize,
    pub words: usize,
    pub tokens_per_step: usize,
    pub bytes: u64,
}

/// A curve's name, colour and value at a point.
type Line = (&'static str, RGBColor, fn(&Point) -> f64);

/// What the card shows beside stories.
pub const OTHER_PROMPTS: [&str; 12] = [
    "Hello!",
    "Who are you?",
    "Count to 12.",
    "Continue the list: Monday, Tuesday, Wednesday",
    "Repeat after me: a golden key in a quiet valley",
    "What is an otter?",
    "What is the opposite of hot?",
    "Name three fruits.",
    "What is 3 plus 4?",
    "Describe Pip the fox as JSON.",
    "Bo the bear lives in a green valley. Ida the owl likes nuts. Where does Bo live?",
    "Explain quantum physics.",
];

const POINTED: &str = " In the steps
after that the mix is pointed: most documents are requests that say who, where and what, because a broad mix rewards doing
as asked in only two or three tokens of a document; from step 3600 on, three in five documents are small skills.";

const SECOND_COSINE: &str = " at step 2600, then a second cosine from four tenths to three hundredths of the peak";

/// Draws the three losses over the tokens seen.
pub fn draw_curve(curve: &[Point], file: &Path) -> Result<()> {
    let fail = |e: &dyn std::fmt::Display| anyhow!("drawing {}: {e}", file.display());
    let most = curve.last().context("the curve is empty")?.tokens / 1e6;
    let lowest = curve.iter().map(|p| p.unseen_seeds.min(p.train)).fold(f64::MAX, f64::min);
    let highest = curve.iter().map(|p| p.train).fold(0.0, f64::max).min(4.0);
    let area = SVGBackend::new(file, (760, 420)).into_drawing_area();
    area.fill(&WHITE).map_err(|e| fail(&e))?;
    let mut chart = ChartBuilder::on(&area)
        .caption("Loss of the storyteller", ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..most, (lowest * 0.9)..highest)
        .map_err(|e| fail(&e))?;
    chart
        .configure_mesh()
        .x_desc("million tokens")
        .y_desc("cross entropy per token (nats)")
        .light_line_style(TRANSPARENT)
        .axis_desc_style(("sans-serif", 17))
        .label_style(("sans-serif", 16))
        .draw()
        .map_err(|e| fail(&e))?;
    let lines: [Line; 3] = [
        ("training rows", RGBColor(150, 150, 150), |p| p.train),
        ("unseen grammar seeds", RGBColor(20, 90, 170), |p| p.unseen_seeds),
        ("unseen combinations", RGBColor(200, 80, 20), |p| p.unseen_combinations),
    ];
    for (name, color, value) in lines {
        let points = curve.iter().map(|p| (p.tokens / 1e6, value(p))).filter(|(_, loss)| *loss <= highest);
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)))
            .map_err(|e| fail(&e))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .label_font(("sans-serif", 16))
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
        .map_err(|e| fail(&e))?;
    area.present().map_err(|e| fail(&e))
}

/// The text of MODEL_CARD.md.
pub fn text(figures: &Figures, curve: &[Point], report: &Value, others: &[(String, String)]) -> Result<String> {
    let last = curve.last().context("the curve is empty")?;
    let of = |key: &str| format!("{} of {}", report[key], report["stories"]);
    let asked =
        |what: &str| format!("{} of {} that asked", report[format!("{what}_present")], report[format!("{what}_asked")]);
    let rows = [
        ("parameters", figures.parameters.to_string()),
        ("weights", format!("bf16 safetensors, {:.1} MB", figures.bytes as f64 / 1e6)),
        ("tokens seen", format!("{:.2} million, none twice", last.tokens / 1e6)),
        ("steps", format!("{} of {} tokens", last.step, figures.tokens_per_step)),
        ("wall time", format!("{:.0} minutes on two shared CPU cores", last.seconds / 60.0)),
        ("different words in the corpus", format!("{} from the tables, besides invented names", figures.words)),
        ("loss, training rows", format!("{:.3}", last.train)),
        ("loss, unseen grammar seeds", format!("{:.3}", last.unseen_seeds)),
        ("loss, unseen combinations", format!("{:.3}", last.unseen_combinations)),
        ("stories ended before 300 tokens", of("ended_before_300_tokens")),
        ("stories with the name asked for", of("name_present")),
        ("stories about the kind of character asked for", asked("kind")),
        ("stories at the place asked for", asked("place")),
        ("stories about the wish asked for", asked("wish")),
        ("stories that differ from every story of the corpus", of("new_text")),
        ("... and combine character, place and wish as never before", of("new_text_and_combination")),
    ];
    let table: String =
        rows.iter().fold(String::new(), |table, (what, value)| table + &format!("| {what} | {value} |\n"));
    let mut samples = String::new();
    for story in report["samples"].as_array().context("the judge's report has no samples")?.iter().take(20) {
        let (prompt, text) =
            (story["prompt"].as_str().unwrap_or_default(), story["story"].as_str().unwrap_or_default());
        write!(samples, "**{prompt}**\n\n> {}\n\n", text.replace('\n', "\n> "))?;
    }
    let mut talk = String::new();
    for (prompt, answer) in others {
        writeln!(talk, "| {} | {} |", prompt.replace('|', "\\|"), answer.replace('|', "\\|").replace('\n', " "))?;
    }
    let (pointed, second) = if last.step > BROAD_STEPS { (POINTED, SECOND_COSINE) } else { ("", "") };
    Ok(include_str!("card.md")
        .replace("{pointed}", pointed)
        .replace("{second}", second)
        .replace("{table}", table.trim_end())
        .replace("{steps}", &last.step.to_string())
        .replace("{stories}", &report["corpus_stories"].to_string())
        .replace("{samples}", samples.trim_end())
        .replace("{talk}", talk.trim_end()))
}
