//! A picture before it is drawn: what stands on its axes, in numbers. SVG, the page and the figures of papers are all made from it.

use std::ops::Range;

use anyhow::Result;
use plotters::prelude::IntoLogRange;

use super::data::{Group, Spread};
use super::frame::{self, Frame, Pen, Style, Ticks};
use super::look::Look;

/// Corners of the parts of a line, which is interrupted between them.
pub type Parts = Vec<Vec<(f64, f64)>>;

/// What is drawn inside the axes, by group.
pub enum Marks {
    /// A bar for each of the axis' places, where there is a number.
    Bars(Vec<Vec<Option<Spread>>>),
    /// A line through the medians at the axis' places.
    Points(Vec<Vec<Option<Spread>>>),
    /// Lines from corner to corner; with a dot at each where that is wanted.
    Corners(Vec<Parts>, bool),
    /// Rectangles in rows.
    Blocks(Vec<Block>),
}

/// A rectangle in a row.
pub struct Block {
    /// From left to right.
    pub x: Range<f64>,
    /// From bottom to top: row 0 is from 0 to 1.
    pub y: Range<f64>,
    /// The group that it belongs to.
    pub group: usize,
}

/// A picture.
pub struct Chart {
    /// Above everything.
    pub title: String,
    /// Under the title; may be empty.
    pub note: String,
    /// Under the axis; may be empty.
    pub x_label: String,
    /// Beside the axis.
    pub y_label: String,
    /// What is told apart; a single one may have no name.
    pub groups: Vec<Group>,
    /// How each is drawn.
    pub looks: Vec<Look>,
    /// Names of rows, from below, in place of numbers.
    pub names: Vec<String>,
    /// From where to where.
    pub x: Range<f64>,
    /// From where to where.
    pub y: Range<f64>,
    /// The vertical axis is logarithmic.
    pub log: bool,
    /// Labels of the horizontal axis.
    pub ticks: Ticks,
    /// The data.
    pub marks: Marks,
}

impl Chart {
    /// Draws it.
    ///
    /// # Errors
    /// Those of drawing.
    pub fn svg(&self, style: &Style) -> Result<String> {
        let frame = Frame {
            title: &self.title,
            note: &self.note,
            x_label: &self.x_label,
            y_label: &self.y_label,
            groups: &self.groups,
            names: &self.names,
        };
        let data = |pen: &mut dyn Pen| self.paint(pen);
        if self.log {
            frame::render(style, &frame, &self.looks, (self.x.clone(), self.y.clone().log_scale()), &self.ticks, data)
        } else {
            frame::render(style, &frame, &self.looks, (self.x.clone(), self.y.clone()), &self.ticks, data)
        }
    }

    fn paint(&self, pen: &mut dyn Pen) -> Result<()> {
        match &self.marks {
            Marks::Bars(spreads) => bars(pen, spreads, &self.looks),
            Marks::Points(spreads) => points(pen, &self.ticks.places, spreads, &self.looks),
            Marks::Corners(lines, has_dots) => corners(pen, lines, *has_dots, &self.looks),
            Marks::Blocks(blocks) => {
                blocks.iter().try_for_each(|block| pen.block(block.x.clone(), block.y.clone(), self.looks[block.group]))
            }
        }
    }
}

fn bars(pen: &mut dyn Pen, spreads: &[Vec<Option<Spread>>], looks: &[Look]) -> Result<()> {
    let width = 0.8 / spreads.len() as f64;
    for (group, (spreads, look)) in spreads.iter().zip(looks).enumerate() {
        for (category, spread) in spreads.iter().enumerate() {
            let left = category as f64 + 0.1 + group as f64 * width;
            let center = left + width / 2.0;
            let Some(spread) = spread else {
                pen.label("failed", (center, 0.0), frame::MUTED)?;
                continue;
            };
            pen.bar(left + width * 0.04..left + width * 0.96, spread.middle, *look)?;
            if spread.high > spread.low {
                pen.whisker(center, (spread.low, spread.high), frame::INK)?;
            }
            pen.label(&frame::short_number(spread.middle), (center, spread.high), frame::INK)?;
        }
    }
    Ok(())
}

fn points(pen: &mut dyn Pen, places: &[f64], spreads: &[Vec<Option<Spread>>], looks: &[Look]) -> Result<()> {
    for (spreads, look) in spreads.iter().zip(looks) {
        let drawn: Vec<(f64, &Spread)> =
            places.iter().zip(spreads).filter_map(|(x, spread)| spread.as_ref().map(|spread| (*x, spread))).collect();
        pen.line(drawn.iter().map(|(x, spread)| (*x, spread.middle)).collect(), *look)?;
        for (x, spread) in drawn {
            if spread.high > spread.low {
                pen.whisker(x, (spread.low, spread.high), look.rgb())?;
            }
            pen.dot((x, spread.middle), *look)?;
        }
    }
    Ok(())
}

fn corners(pen: &mut dyn Pen, lines: &[Parts], has_dots: bool, looks: &[Look]) -> Result<()> {
    for (parts, look) in lines.iter().zip(looks) {
        for part in parts {
            pen.line(part.clone(), *look)?;
            if has_dots {
                part.iter().try_for_each(|&corner| pen.dot(corner, *look))?;
            }
        }
    }
    Ok(())
}
