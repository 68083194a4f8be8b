//! Plots of the last minutes, as SVG within a page: colours and fonts come from the style sheet.

use std::time::Duration;

use maud::{Markup, html};

use crate::looks::sampler::SHOWN;

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 150.0;
const LEFT: f64 = 68.0;
const RIGHT: f64 = 6.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 22.0;
/// Approximate number of lines of the grid above the axis.
const TICKS: f64 = 3.0;
/// Number of colours in the style sheet.
pub const COLOURS: usize = 8;

/// A line: its colour, and runs of points without a gap between them. A point is an age and a
/// value.
pub struct Line {
    pub colour: usize,
    pub runs: Vec<Vec<(Duration, f64)>>,
}

pub struct Plot<'a> {
    pub title: &'a str,
    /// Shows a value in words.
    pub say: fn(f64) -> String,
    /// Set if ticks are in units such as KiB. Otherwise they are 1, 2 or 5 times a power of ten.
    pub is_bytes: bool,
    /// Least value at the top of the axis.
    pub least: f64,
    pub lines: Vec<Line>,
}

/// Returns the next 1, 2 or 5 times a power of ten.
fn nice(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= step * 0.999);
    factor.unwrap_or(10.0) * power
}

/// Rounds a step up like [`nice`], in units of bytes.
fn nice_bytes(step: f64) -> f64 {
    let unit = 1024_f64.powf(step.max(1.0).log(1024.0).floor());
    nice(step / unit) * unit
}

fn x(ago: Duration) -> f64 {
    let share = 1.0 - (ago.as_secs_f64() / SHOWN.as_secs_f64()).min(1.0);
    LEFT + share * (WIDTH - LEFT - RIGHT)
}

fn y(value: f64, top: f64) -> f64 {
    HEIGHT - BOTTOM - (value / top).clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
}

pub fn show(plot: &Plot<'_>) -> Markup {
    let values = || plot.lines.iter().flat_map(|line| line.runs.iter().flatten());
    let highest = values().map(|(_, value)| *value).fold(0.0, f64::max);
    let step = highest.max(plot.least) / TICKS;
    let step = if plot.is_bytes { nice_bytes(step) } else { nice(step) };
    let top = (highest.max(plot.least) / step).ceil() * step;
    let ticks = (0..=(top / step).round() as u32).map(|tick| f64::from(tick) * step);
    let ticks: Vec<f64> = ticks.collect();
    let label = match values().next() {
        None => format!("{} over the last 5 minutes: nothing was measured yet", plot.title),
        Some(_) => {
            format!("{} over the last 5 minutes: at most {}", plot.title, (plot.say)(highest))
        }
    };
    html! {
        figure class="plot" {
            figcaption { (plot.title) }
            svg viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) role="img" aria-label=(label) {
                @for tick in &ticks {
                    @let at = format!("{:.1}", y(*tick, top));
                    line class="grid" x1=(LEFT) x2=(WIDTH - RIGHT) y1=(at) y2=(at) {}
                    text x=(LEFT - 6.0) y=(at) dy="4" text-anchor="end" { ((plot.say)(*tick)) }
                }
                text x=(LEFT) y=(HEIGHT - 5.0) { "5 min ago" }
                text x=(WIDTH - RIGHT) y=(HEIGHT - 5.0) text-anchor="end" { "now" }
                @for line in &plot.lines {
                    @for run in &line.runs {
                        polyline class={ "c" (line.colour % COLOURS) } points=(points(run, top)) {}
                    }
                }
            }
        }
    }
}

fn points(run: &[(Duration, f64)], top: f64) -> String {
    let point = |(ago, value): &(Duration, f64)| format!("{:.1},{:.1}", x(*ago), y(*value, top));
    let points: Vec<String> = run.iter().map(point).collect();
    match &points[..] {
        // A line of one point would be invisible.
        [only] => format!("{only} {only}"),
        _ => points.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(runs: Vec<Vec<(Duration, f64)>>) -> String {
        let line = Line { colour: 9, runs };
        let say = |value| format!("{value}");
        let lines = vec![line];
        show(&Plot { title: "Requests", say, is_bytes: false, least: 1.0, lines }).into_string()
    }

    #[test]
    fn values_are_where_the_axis_says() {
        let ago = Duration::from_secs;
        let text = shown(vec![vec![(ago(300), 0.0), (ago(150), 10.0)], vec![(ago(0), 5.0)]]);
        let bottom = HEIGHT - BOTTOM;
        assert!(text.contains(&format!("points=\"68.0,{bottom:.1} 201.0,")), "{text}");
        assert_eq!(text.matches("<polyline").count(), 2, "the gap is no line");
        assert!(text.contains("class=\"c1\"") && text.contains("at most 10"), "{text}");
        assert!(text.contains(">5</text>") && text.contains(">10</text>"), "{text}");
    }

    #[test]
    fn ticks_of_bytes_are_of_their_units() {
        let kib = 1024.0;
        assert_eq!(
            [1.0, 300.0, 3.0 * kib, 15.0 * kib].map(nice_bytes),
            [1.0, 500.0, 5.0 * kib, 20.0 * kib]
        );
    }

    #[test]
    fn a_plot_of_nothing_has_its_axis() {
        let text = shown(Vec::new());
        assert!(text.contains("nothing was measured yet") && !text.contains("NaN"), "{text}");
    }
}
