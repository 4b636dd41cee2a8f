//! Title, legend, axes: what every picture shares. The legend stands above the axes, where no data is.

use anyhow::Result;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::data::Group;
use super::look::Look;

/// Of all text.
pub const FONT: &str = "sans-serif";
/// Text.
pub const INK: RGBColor = RGBColor(40, 40, 40);
/// Text of less weight.
pub const MUTED: RGBColor = RGBColor(110, 110, 110);
const GRID: RGBColor = RGBColor(225, 225, 225);
/// Mean width of a character as a share of the font's size: what a legend's entry needs.
const CHARACTER: f64 = 0.53;

/// How large a picture is, and in what letters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Style {
    /// In pixels.
    pub width: u32,
    /// In pixels.
    pub height: u32,
    /// Families of the letters, the first that there is.
    pub font: &'static str,
    /// Pixels of all letters; `None` for several sizes.
    letters: Option<i32>,
    /// Everything else is larger by this than on the page.
    factor: f64,
    /// With title and note: figures of papers have captions instead.
    has_title: bool,
}

impl Style {
    /// For pages.
    pub const PAGE: Style = Style { width: 860, height: 500, font: FONT, letters: None, factor: 1.0, has_title: true };

    /// For papers, with four pixels a point: `width` in points, letters of 8 points.
    pub const fn paper(width: u32, font: &'static str) -> Style {
        Style { width: width * 4, height: width * 4 * 5 / 8, font, letters: Some(32), factor: 2.1, has_title: false }
    }

    fn px(&self, pixels: i32) -> i32 {
        (f64::from(pixels) * self.factor).round() as i32
    }

    fn letters(&self, pixels: i32) -> i32 {
        self.letters.unwrap_or(pixels)
    }

    fn text(&self, pixels: i32, color: &RGBColor) -> TextStyle<'static> {
        (self.font, self.letters(pixels)).into_font().color(color)
    }

    /// How wide a text is, about.
    fn width_of(&self, text: &str) -> i32 {
        (text.chars().count() as f64 * f64::from(self.letters(14)) * CHARACTER) as i32
    }
}

const LEFT: i32 = 16;
const LEGEND_ROW: i32 = 22;

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
    /// In the axis' unit.
    pub places: Vec<f64>,
    /// What stands there.
    pub labels: Vec<String>,
}

impl Ticks {
    /// Labels that are the numbers themselves.
    pub fn of(places: Vec<f64>) -> Ticks {
        Ticks { labels: places.iter().map(|place| short_number(*place)).collect(), places }
    }
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
    style: &Style,
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
        let canvas = SVGBackend::with_string(&mut text, (style.width, style.height)).into_drawing_area();
        canvas.fill(&WHITE)?;
        let top = heading(style, &canvas, frame, looks)?;
        let mut chart = ChartBuilder::on(&canvas)
            .margin_top(top)
            .margin_right(style.px(20))
            .margin_bottom(style.px(if frame.x_label.is_empty() { 6 } else { 26 }))
            .margin_left(style.px(8))
            .x_label_area_size(style.px(30))
            .y_label_area_size(style.px(64))
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
            .label_style((style.font, style.letters(14), &INK))
            .axis_desc_style((style.font, style.letters(15), &INK))
            .draw()?;
        x_axis(style, &canvas, &chart, frame, ticks)?;
        y_names(style, &canvas, &chart, frame)?;
        data(&mut ChartPen { style, canvas: &canvas, chart: &mut chart })?;
        canvas.present()?;
    }
    Ok(text)
}

/// Title, note and legend; gives the height that they take.
fn heading(style: &Style, canvas: &Canvas<'_>, frame: &Frame<'_>, looks: &[Look]) -> Result<i32> {
    let left = style.px(LEFT);
    let mut y = style.px(4);
    if style.has_title {
        let title = (style.font, style.letters(20)).into_font().style(FontStyle::Bold).color(&INK);
        canvas.draw(&Text::new(frame.title.to_string(), (left, 12), title))?;
        y = 40;
        if !frame.note.is_empty() {
            canvas.draw(&Text::new(frame.note.to_string(), (left, y), style.text(13, &MUTED)))?;
            y += 22;
        }
    }
    if frame.groups.iter().all(|group| group.label.is_empty()) {
        return Ok(y + style.px(4));
    }
    let mut x = left;
    y += style.px(4);
    for (group, look) in frame.groups.iter().zip(looks) {
        let width = style.px(34) + style.width_of(&group.label) + style.px(16);
        if x + width > style.width as i32 && x > left {
            (x, y) = (left, y + style.px(LEGEND_ROW));
        }
        sample(style, canvas, (x, y + style.px(8)), *look)?;
        canvas.draw(&Text::new(group.label.clone(), (x + style.px(34), y + style.px(1)), style.text(14, &INK)))?;
        x += width;
    }
    Ok(y + style.px(LEGEND_ROW) + style.px(8))
}

/// A piece of a group's line in the legend.
fn sample(style: &Style, canvas: &Canvas<'_>, (x, y): (i32, i32), look: Look) -> Result<()> {
    let mut at = 0;
    let (dash, gap) = look.dashes().map_or((26, 0), |(dash, gap)| (dash as i32, gap as i32));
    while at < 26 {
        let end = (at + dash).min(26);
        let corners = [(x + style.px(at), y - style.px(2)), (x + style.px(end), y + style.px(2))];
        canvas.draw(&Rectangle::new(corners, look.rgb().filled()))?;
        at = end + gap;
    }
    Ok(())
}

/// Names along the vertical axis.
fn y_names<Y: Ranged<ValueType = f64>>(style: &Style, canvas: &Canvas<'_>, chart: &Chart<'_, '_, Y>, frame: &Frame<'_>) -> Result<()> {
    let area = chart.plotting_area();
    let left = area.get_pixel_range().0.start;
    let letters = style.text(13, &INK).pos(Pos::new(HPos::Right, VPos::Center));
    for (index, name) in frame.names.iter().enumerate() {
        let (_, y) = area.map_coordinate(&(chart.x_range().start, index as f64 + 0.5));
        canvas.draw(&Text::new(name.clone(), (left - style.px(6), y), letters.clone()))?;
    }
    Ok(())
}

/// Labels of the horizontal axis where the data is, and what it shows.
fn x_axis<Y: Ranged<ValueType = f64>>(
    style: &Style,
    canvas: &Canvas<'_>,
    chart: &Chart<'_, '_, Y>,
    frame: &Frame<'_>,
    ticks: &Ticks,
) -> Result<()> {
    let area = chart.plotting_area();
    let (x_pixels, y_pixels) = area.get_pixel_range();
    let x_range = chart.x_range();
    let centered = style.text(14, &INK).pos(Pos::new(HPos::Center, VPos::Top));
    let mut right_end = i32::MIN;
    for (place, label) in ticks.places.iter().zip(&ticks.labels) {
        let share = (place - x_range.start) / (x_range.end - x_range.start);
        let x = x_pixels.start + (share * f64::from(x_pixels.end - x_pixels.start)).round() as i32;
        let half = (label.chars().count() as f64 * f64::from(style.letters(14)) * CHARACTER / 2.0) as i32;
        canvas.draw(&PathElement::new([(x, y_pixels.end), (x, y_pixels.end + style.px(5))], MUTED))?;
        // A label that would touch its neighbour is left out; its tick stays.
        if x - half > right_end + 4 {
            canvas.draw(&Text::new(label.clone(), (x, y_pixels.end + style.px(9)), centered.clone()))?;
            right_end = x + half;
        }
    }
    if !frame.x_label.is_empty() {
        let middle = (x_pixels.start + x_pixels.end) / 2;
        let letters = style.text(15, &INK).pos(Pos::new(HPos::Center, VPos::Top));
        canvas.draw(&Text::new(frame.x_label.to_string(), (middle, y_pixels.end + style.px(31)), letters))?;
    }
    Ok(())
}

struct ChartPen<'c, 'a, 'b, Y: Ranged<ValueType = f64>> {
    style: &'c Style,
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
        self.chart.draw_series([PathElement::new([(x, low), (x, high)], color.stroke_width(self.style.px(1) as u32))])?;
        Ok(())
    }

    fn line(&mut self, points: Vec<(f64, f64)>, look: Look) -> Result<()> {
        let style = look.rgb().stroke_width(self.style.px(2) as u32);
        match look.dashes() {
            None => self.chart.draw_series(LineSeries::new(points, style))?,
            Some((dash, gap)) => self.chart.draw_series(DashedLineSeries::new(
                points,
                self.style.px(dash as i32) as u32,
                self.style.px(gap as i32) as u32,
                style,
            ))?,
        };
        Ok(())
    }

    fn dot(&mut self, point: (f64, f64), look: Look) -> Result<()> {
        self.chart.draw_series([Circle::new(point, self.style.px(4), look.rgb().filled())])?;
        Ok(())
    }

    fn label(&mut self, text: &str, point: (f64, f64), color: RGBColor) -> Result<()> {
        let (x, y) = self.chart.plotting_area().map_coordinate(&point);
        let letters = self.style.text(13, &color).pos(Pos::new(HPos::Center, VPos::Center));
        self.canvas.draw(&Text::new(text.to_string(), (x, y - self.style.px(9)), letters))?;
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
