//! Line charts as SVG text.

use std::fmt::Write;

/// A named line.
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// What a chart says beside its lines.
pub struct Chart {
    pub title: String,
    pub x: &'static str,
    pub y: &'static str,
    pub lines: Vec<Line>,
}

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 28.0;
const BOTTOM: f64 = 40.0;
/// Told apart also by who sees few colours (Okabe and Ito).
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#b0a000"];
const TICKS: usize = 5;

impl Chart {
    /// An `<svg>` element; nothing outside it is needed.
    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x_max = nice(points().map(|(x, _)| *x).fold(0.0, f64::max));
        let y_max = nice(points().map(|(_, y)| *y).fold(0.0, f64::max));
        let x = |value: f64| LEFT + value / x_max * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - value / y_max * (HEIGHT - TOP - BOTTOM);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"11\">\n<text x=\"{LEFT}\" y=\"16\" font-size=\"13\">{}</text>\n",
            escaped(&self.title)
        );
        for tick in 0..=TICKS {
            let share = tick as f64 / TICKS as f64;
            let (at_x, at_y) = (x(share * x_max), y(share * y_max));
            let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {at_y:.1}H{right}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
                 <text x=\"{at_x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                LEFT - 4.0,
                at_y + 4.0,
                short(share * y_max),
                bottom + 14.0,
                short(share * x_max)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><text x=\"4\" y=\"{}\">{}</text>",
            WIDTH - RIGHT,
            HEIGHT - 8.0,
            escaped(self.x),
            TOP - 2.0,
            escaped(self.y)
        );
        for (line, colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            let path: Vec<String> = line.points.iter().map(|(px, py)| format!("{:.1},{:.1}", x(*px), y(*py))).collect();
            let _ = writeln!(
                svg,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"><title>{}</title></polyline>",
                path.join(" "),
                escaped(&line.name)
            );
        }
        svg + "</svg>\n"
    }

    /// Names and colours of the lines.
    pub fn legend(&self) -> String {
        let entry = |(line, colour): (&Line, &&str)| {
            format!("<span><i style=\"background:{colour}\"></i>{}</span>", escaped(&line.name))
        };
        self.lines.iter().zip(COLOURS.iter().cycle()).map(entry).collect()
    }
}

/// The next of 1, 2, 5 times a power of ten; 1 for nothing.
fn nice(value: f64) -> f64 {
    if !(value > 0.0 && value.is_finite()) {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|step| step * power).into_iter().find(|step| *step >= value).unwrap_or(10.0 * power)
}

fn short(value: f64) -> String {
    if value >= 10_000.0 {
        format!("{:.0}k", value / 1e3)
    } else if value >= 10.0 || value == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}

pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_holds_its_lines_and_nothing_foreign() {
        let line = Line { name: "a<b>".into(), points: vec![(0.0, 0.0), (60.0, 900.0)] };
        let chart = Chart { title: "x & y".into(), x: "seconds", y: "ms", lines: vec![line] };
        let svg = chart.svg();
        // The last point is at the right end and at 9/10 of the height.
        assert!(svg.contains("points=\"58.0,220.0 328.0,47.2\""), "{svg}");
        assert!(svg.contains("x &amp; y") && svg.contains("a&lt;b&gt;") && !svg.contains("a<b>"));
        assert!(chart.legend().contains("a&lt;b&gt;"));
    }

    #[test]
    fn axes_end_at_round_numbers() {
        for (value, expected) in [(0.0, 1.0), (0.7, 1.0), (1.0, 1.0), (1.1, 2.0), (23.0, 50.0), (990.0, 1000.0)] {
            assert!((nice(value) - expected).abs() < 1e-9, "{value}: {}", nice(value));
        }
        assert_eq!(nice(f64::NAN), 1.0);
    }
}
