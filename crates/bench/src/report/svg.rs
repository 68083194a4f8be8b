//! Plots of lines, as SVG that stands alone.

use std::fmt::Write as _;

/// Contents of one plot.
#[derive(Default)]
pub struct Plot {
    pub title: String,
    pub x_label: String,
    pub y_label: String,
    /// Marks of the x axis and their labels; made from the points if there are none.
    pub x_ticks: Vec<(f64, String)>,
    pub is_y_log: bool,
    pub lines: Vec<Line>,
}

pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    /// Index of its colour in the palette.
    pub color: usize,
    pub is_dashed: bool,
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 46.0;
const LEGEND_LINE: f64 = 18.0;
const TICKS: f64 = 5.0;
/// Colours that people with colour blindness can distinguish (Okabe and Ito).
const PALETTE: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d1f"];

/// Conversion of values to pixels.
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
    is_y_log: bool,
}

impl Frame {
    fn of(plot: &Plot) -> Option<Frame> {
        let points = || plot.lines.iter().flat_map(|line| &line.points);
        let bounds = |numbers: &mut dyn Iterator<Item = f64>| {
            let start = (f64::INFINITY, f64::NEG_INFINITY);
            let (low, high) = numbers.fold(start, |(low, high), n| (low.min(n), high.max(n)));
            (low <= high).then_some((low, high))
        };
        let ticks = plot.x_ticks.iter().map(|(x, _)| *x);
        let (x_low, x_high) = bounds(&mut points().map(|(x, _)| *x).chain(ticks))?;
        let y = if plot.is_y_log {
            let (low, high) = bounds(&mut points().map(|(_, y)| *y).filter(|y| *y > 0.0))?;
            let low = low.log10().floor();
            (low, high.log10().ceil().max(low + 1.0))
        } else {
            (0.0, bounds(&mut points().map(|(_, y)| *y))?.1.max(1e-9) * 1.05)
        };
        let x = if x_low < x_high { (x_low, x_high) } else { (x_low - 0.5, x_high + 0.5) };
        Some(Frame { x, y, is_y_log: plot.is_y_log })
    }

    fn x(&self, x: f64) -> f64 {
        LEFT + (x - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, y: f64) -> f64 {
        let y = if self.is_y_log { y.max(1e-12).log10() } else { y };
        let share = ((y - self.y.0) / (self.y.1 - self.y.0)).clamp(0.0, 1.0);
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }

    fn y_ticks(&self) -> Vec<f64> {
        if self.is_y_log {
            return (self.y.0 as i32..=self.y.1 as i32).map(|power| 10_f64.powi(power)).collect();
        }
        let step = nice(self.y.1 / TICKS);
        (0..).map(|n| f64::from(n) * step).take_while(|y| *y <= self.y.1).collect()
    }
}

/// Returns the next 1, 2 or 5 times a power of ten.
fn nice(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= step * 0.999);
    factor.unwrap_or(10.0) * power
}

/// Returns the plot as an element of a page; nothing without points.
pub fn render(plot: &Plot) -> String {
    let Some(frame) = Frame::of(plot) else { return String::new() };
    let height = HEIGHT + LEGEND_LINE * plot.lines.len() as f64;
    let mut out = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\">\
         <text x=\"{LEFT}\" y=\"20\" class=\"title\">{}</text>",
        escape(&plot.title)
    );
    axes(&mut out, plot, &frame);
    for line in &plot.lines {
        let color = PALETTE[line.color % PALETTE.len()];
        let dash = if line.is_dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        let points: Vec<String> = line
            .points
            .iter()
            .map(|(x, y)| format!("{:.1},{:.1}", frame.x(*x), frame.y(*y)))
            .collect();
        let _ = write!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"{dash}/>",
            points.join(" ")
        );
        if !line.is_dashed {
            for (x, y) in &line.points {
                let (x, y) = (frame.x(*x), frame.y(*y));
                let _ =
                    write!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>");
            }
        }
    }
    legend(&mut out, plot);
    out + "</svg>\n"
}

fn axes(out: &mut String, plot: &Plot, frame: &Frame) {
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for tick in frame.y_ticks() {
        let (y, label) = (frame.y(tick), short(tick));
        let _ = write!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" class=\"grid\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    let mut ticks = plot.x_ticks.clone();
    if ticks.is_empty() {
        // Only measured lines count: a dashed line is cut off at the edge of the plot.
        let measured = plot.lines.iter().filter(|line| !line.is_dashed);
        let points = measured.flat_map(|line| &line.points);
        ticks = points.map(|(x, _)| (*x, short(*x))).collect();
        ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
        ticks.dedup_by(|a, b| a.0 == b.0);
    }
    let mut free = f64::NEG_INFINITY;
    for (tick, label) in ticks {
        let x = frame.x(tick);
        if x < free {
            continue;
        }
        free = x + 36.0;
        let label = escape(&label);
        let _ = write!(
            out,
            "<line x1=\"{x:.1}\" y1=\"{bottom}\" x2=\"{x:.1}\" y2=\"{:.1}\" class=\"axis\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            bottom + 4.0,
            bottom + 18.0
        );
    }
    let _ = write!(
        out,
        "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" class=\"axis\" fill=\"none\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
         <text transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        f64::midpoint(LEFT, right),
        bottom + 38.0,
        escape(&plot.x_label),
        f64::midpoint(TOP, bottom),
        escape(&plot.y_label)
    );
}

fn legend(out: &mut String, plot: &Plot) {
    for (number, line) in plot.lines.iter().enumerate() {
        let y = HEIGHT + LEGEND_LINE * number as f64;
        let color = PALETTE[line.color % PALETTE.len()];
        let dash = if line.is_dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        let _ = write!(
            out,
            "<line x1=\"{LEFT}\" y1=\"{y}\" x2=\"{:.1}\" y2=\"{y}\" stroke=\"{color}\" \
             stroke-width=\"2\"{dash}/><text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            LEFT + 24.0,
            LEFT + 30.0,
            y + 4.0,
            escape(&line.name)
        );
    }
}

/// Returns a number for a tick.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{}M", value / 1e6),
        v if v >= 1e4 => format!("{}k", value / 1e3),
        _ => format!("{}", (value * 1e6).round() / 1e6),
    }
}

/// Escapes a text for a page.
pub fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<(f64, f64)>, is_y_log: bool) -> Plot {
        let line = Line { name: "a<b".to_owned(), points, color: 0, is_dashed: false };
        Plot { is_y_log, lines: vec![line], ..Plot::default() }
    }

    #[test]
    fn points_are_where_their_values_are() {
        let text = render(&plot(vec![(0.0, 0.0), (10.0, 100.0)], false));
        let full = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) / 1.05;
        let wanted = format!("points=\"70.0,{:.1} 624.0,{full:.1}\"", HEIGHT - BOTTOM);
        assert!(text.contains(&wanted), "{text}");
        assert!(text.contains("a&lt;b") && !text.contains("a<b"));
        let text = render(&plot(vec![(1.0, 1.0), (2.0, 10.0), (3.0, 100.0)], true));
        let middle = f64::midpoint(TOP, HEIGHT - BOTTOM);
        assert!(text.contains(&format!("347.0,{middle:.1}")), "{text}");
    }

    #[test]
    fn ticks_are_of_what_was_measured() {
        let mut both = plot(vec![(1.0, 10.0), (100.0, 90.0)], false);
        let points = vec![(1.0, 10.0), (5.855895, 100.0)];
        both.lines.push(Line { name: "ideal".to_owned(), points, color: 1, is_dashed: true });
        let text = render(&both);
        assert!(text.contains(">100</text>") && !text.contains("5.855895"), "{text}");
    }

    #[test]
    fn a_plot_of_nothing_or_of_one_point_is_no_trouble() {
        assert_eq!(render(&plot(Vec::new(), false)), "");
        for is_y_log in [false, true] {
            let text = render(&plot(vec![(5.0, 7.0)], is_y_log));
            assert!(text.contains("<circle") && !text.contains("NaN"), "{text}");
        }
    }
}
