//! Title, legend, axes: what every picture shares. The legend stands above the axes, where no data is.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::data::Group;
use super::look::Look;

const WIDTH: u32 = 860;
const HEIGHT: u32 = 500;
/// Of all text.
pub const FONT: &str = "sans-serif";
/// Text.
pub const INK: RGBColor = RGBColor(40, 40, 40);
/// Text of less weight.
pub const MUTED: RGBColor = RGBColor(110, 110, 110);
const GRID: RGBColor = RGBColor(225, 225, 225);
const LEFT: i32 = 16;
const LEGEND_ROW: i32 = 22;
/// Mean width of a character as a share of the font's size: what a legend's entry needs.
const CHARACTER: f64 = 0.53;

/// What is written around the data.
pub struct Frame<'a> {
    /// Above everything.
    pub title: &'a str,
    /// Under the title; may be empty.
    pub note: &'a str,
    /// Under the axis; may be empty.
    pub x_label: &'a str,
    /// Beside the axis.
    pub y_label: &'a str,
    /// For the legend, which is left out for a single group without a name.
    pub groups: &'a [Group],
    /// Names along the vertical axis, at 0.5, 1.5, ..., in place of numbers.
    pub names: &'a [String],
}

/// Where the horizontal axis has labels.
pub struct Ticks {
    pub places: Vec<f64>,
    pub labels: Vec<String>,
}

/// What data is drawn with, in the units of the axes.
pub trait Pen {
    /// A rectangle.
    fn block(&mut self, x: std::ops::Range<f64>, y: std::ops::Range<f64>, look: Look) -> Result<()>;
    /// A bar from 0 to `height`.
    fn bar(&mut self, x: std::ops::Range<f64>, height: f64, look: Look) -> Result<()>;
    /// A thin line from the lowest to the highest value.
    fn whisker(&mut self, x: f64, range: (f64, f64), color: RGBColor) -> Result<()>;
    /// A line in a group's look.
    fn line(&mut self, points: Vec<(f64, f64)>, look: Look) -> Result<()>;
    /// A dot.
    fn dot(&mut self, point: (f64, f64), look: Look) -> Result<()>;
    /// A short text centred above a point.
    fn label(&mut self, text: &str, point: (f64, f64), color: RGBColor) -> Result<()>;
}

type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, Y>>;

/// Draws a picture; `data` draws what is inside the axes.
pub fn render<Y>(
    frame: &Frame<'_>,
    looks: &[Look],
    (x_range, y_range): (std::ops::Range<f64>, Y),
    ticks: &Ticks,
    data: impl FnOnce(&mut dyn Pen) -> Result<()>,
) -> Result<String>
where
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut text = String::new();
    {
        let canvas = SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)).into_drawing_area();
        canvas.fill(&WHITE)?;
        let top = heading(&canvas, frame, looks)?;
        let mut chart = ChartBuilder::on(&canvas)
            .margin_top(top)
            .margin_right(20)
            .margin_bottom(if frame.x_label.is_empty() { 6 } else { 26 })
            .margin_left(8)
            .x_label_area_size(30)
            .y_label_area_size(64)
            .build_cartesian_2d(x_range, y_range)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(MUTED)
            .x_labels(0)
            .y_labels(if frame.names.is_empty() { 7 } else { 0 })
            .y_label_formatter(&|value| short_number(*value))
            .y_desc(frame.y_label)
            .label_style((FONT, 14, &INK))
            .axis_desc_style((FONT, 15, &INK))
            .draw()?;
        x_axis(&canvas, &chart, frame, ticks)?;
        y_names(&canvas, &chart, frame)?;
        data(&mut ChartPen { canvas: &canvas, chart: &mut chart })?;
        canvas.present()?;
    }
    Ok(text)
}

/// Title, note and legend; gives the height that they take.
fn heading(canvas: &Canvas<'_>, frame: &Frame<'_>, looks: &[Look]) -> Result<i32> {
    canvas.draw(&Text::new(frame.title.to_string(), (LEFT, 12), (FONT, 20).into_font().style(FontStyle::Bold).color(&INK)))?;
    let mut y = 40;
    if !frame.note.is_empty() {
        canvas.draw(&Text::new(frame.note.to_string(), (LEFT, y), (FONT, 13).into_font().color(&MUTED)))?;
        y += 22;
    }
    if frame.groups.iter().all(|group| group.label.is_empty()) {
        return Ok(y + 4);
    }
    let mut x = LEFT;
    y += 4;
    for (group, look) in frame.groups.iter().zip(looks) {
        let width = 34 + (group.label.chars().count() as f64 * 14.0 * CHARACTER) as i32 + 16;
        if x + width > WIDTH as i32 && x > LEFT {
            (x, y) = (LEFT, y + LEGEND_ROW);
        }
        sample(canvas, (x, y + 8), *look)?;
        canvas.draw(&Text::new(group.label.clone(), (x + 34, y + 1), (FONT, 14).into_font().color(&INK)))?;
        x += width;
    }
    Ok(y + LEGEND_ROW + 8)
}

/// A piece of a group's line in the legend.
fn sample(canvas: &Canvas<'_>, (x, y): (i32, i32), look: Look) -> Result<()> {
    let mut at = 0;
    let (dash, gap) = look.dashes().map_or((26, 0), |(dash, gap)| (dash as i32, gap as i32));
    while at < 26 {
        let end = (at + dash).min(26);
        canvas.draw(&Rectangle::new([(x + at, y - 2), (x + end, y + 2)], look.rgb().filled()))?;
        at = end + gap;
    }
    Ok(())
}

/// Names along the vertical axis.
fn y_names<Y: Ranged<ValueType = f64>>(canvas: &Canvas<'_>, chart: &Chart<'_, '_, Y>, frame: &Frame<'_>) -> Result<()> {
    let area = chart.plotting_area();
    let left = area.get_pixel_range().0.start;
    let style = (FONT, 13).into_font().color(&INK).pos(Pos::new(HPos::Right, VPos::Center));
    for (index, name) in frame.names.iter().enumerate() {
        let (_, y) = area.map_coordinate(&(chart.x_range().start, index as f64 + 0.5));
        canvas.draw(&Text::new(name.clone(), (left - 6, y), style.clone()))?;
    }
    Ok(())
}

/// Labels of the horizontal axis where the data is, and what it shows.
fn x_axis<Y: Ranged<ValueType = f64>>(canvas: &Canvas<'_>, chart: &Chart<'_, '_, Y>, frame: &Frame<'_>, ticks: &Ticks) -> Result<()> {
    let area = chart.plotting_area();
    let (x_pixels, y_pixels) = area.get_pixel_range();
    let x_range = chart.x_range();
    let centered = (FONT, 14).into_font().color(&INK).pos(Pos::new(HPos::Center, VPos::Top));
    let mut right_end = i32::MIN;
    for (place, label) in ticks.places.iter().zip(&ticks.labels) {
        let share = (place - x_range.start) / (x_range.end - x_range.start);
        let x = x_pixels.start + (share * f64::from(x_pixels.end - x_pixels.start)).round() as i32;
        let half = (label.chars().count() as f64 * 14.0 * CHARACTER / 2.0) as i32;
        canvas.draw(&PathElement::new([(x, y_pixels.end), (x, y_pixels.end + 5)], MUTED))?;
        // A label that would touch its neighbour is left out; its tick stays.
        if x - half > right_end + 4 {
            canvas.draw(&Text::new(label.clone(), (x, y_pixels.end + 9), centered.clone()))?;
            right_end = x + half;
        }
    }
    if !frame.x_label.is_empty() {
        let middle = (x_pixels.start + x_pixels.end) / 2;
        let style = (FONT, 15).into_font().color(&INK).pos(Pos::new(HPos::Center, VPos::Top));
        canvas.draw(&Text::new(frame.x_label.to_string(), (middle, y_pixels.end + 31), style))?;
    }
    Ok(())
}

struct ChartPen<'c, 'a, 'b, Y: Ranged<ValueType = f64>> {
    canvas: &'c Canvas<'b>,
    chart: &'c mut Chart<'a, 'b, Y>,
}

impl<'a, 'b: 'a, Y: Ranged<ValueType = f64>> Pen for ChartPen<'_, 'a, 'b, Y> {
    fn block(&mut self, x: std::ops::Range<f64>, y: std::ops::Range<f64>, look: Look) -> Result<()> {
        self.chart.draw_series([Rectangle::new([(x.start, y.start), (x.end, y.end)], look.rgb().filled())])?;
        Ok(())
    }

    fn bar(&mut self, x: std::ops::Range<f64>, height: f64, look: Look) -> Result<()> {
        self.chart.draw_series([Rectangle::new([(x.start, 0.0), (x.end, height)], look.rgb().filled())])?;
        Ok(())
    }

    fn whisker(&mut self, x: f64, (low, high): (f64, f64), color: RGBColor) -> Result<()> {
        self.chart.draw_series([PathElement::new([(x, low), (x, high)], color.stroke_width(1))])?;
        Ok(())
    }

    fn line(&mut self, points: Vec<(f64, f64)>, look: Look) -> Result<()> {
        let style = look.rgb().stroke_width(2);
        match look.dashes() {
            None => self.chart.draw_series(LineSeries::new(points, style))?,
            Some((dash, gap)) => self.chart.draw_series(DashedLineSeries::new(points, dash, gap, style))?,
        };
        Ok(())
    }

    fn dot(&mut self, point: (f64, f64), look: Look) -> Result<()> {
        self.chart.draw_series([Circle::new(point, 4, look.rgb().filled())])?;
        Ok(())
    }

    fn label(&mut self, text: &str, point: (f64, f64), color: RGBColor) -> Result<()> {
        let (x, y) = self.chart.plotting_area().map_coordinate(&point);
        let style = (FONT, 13).into_font().color(&color).pos(Pos::new(HPos::Center, VPos::Center));
        self.canvas.draw(&Text::new(text.to_string(), (x, y - 9), style))?;
        Ok(())
    }
}

/// A number with as many digits as a reader needs.
pub fn short_number(value: f64) -> String {
    let magnitude = value.abs();
    match magnitude {
        0.0 => "0".into(),
        1e6.. => format!("{}M", trimmed(value / 1e6, 1)),
        1e4.. => format!("{}k", trimmed(value / 1e3, 1)),
        100.0.. => trimmed(value, 0),
        10.0.. => trimmed(value, 1),
        0.1.. => trimmed(value, 2),
        _ => format!("{value:.1e}"),
    }
}

fn trimmed(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown: Vec<String> = [0.0, 94.34, 9.0, 0.25, 355.7, 12_500.0, 4_194_304.0, 0.001].map(short_number).to_vec();
        assert_eq!(shown, ["0", "94.3", "9", "0.25", "356", "12.5k", "4.2M", "1.0e-3"]);
    }
}
