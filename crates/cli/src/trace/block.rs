//! One block of an operation: its packets alone, and the tree on which they were added up, as a picture.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use fanin_core::{JobId, NodeId, PacketKind, Wire};
use fanin_plan::Prepared;
use fanin_plan::run::view::levels;
use fanin_sim::trace::Keep;
use fanin_systems::{AnyHeader, LAYOUTS, layout_of};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::frames::Traced;
use fanin_pictures::plot::{FONT, INK, MUTED};

pub use fanin_systems::block_of as of;

/// Keeps packets of one block, of all jobs or of one.
///
/// # Errors
/// No job's packets name blocks, or there is no such job.
pub fn keep(prepared: &Prepared, block: u64, job: Option<u16>) -> Result<Keep<AnyHeader>, String> {
    if let Some(job) = job.filter(|job| usize::from(*job) >= prepared.jobs.len()) {
        return Err(format!("--job {job}: expected 0 to {}, the plan's jobs", prepared.jobs.len() - 1));
    }
    let names = |number: u8| layout_of(number).is_some_and(|layout| layout.block.is_some());
    let mut jobs = (0u16..).zip(&prepared.jobs).filter(|(number, _)| job.is_none_or(|job| job == *number));
    if !jobs.any(|(_, job)| names(job.system.number())) {
        let known: Vec<&str> = LAYOUTS.iter().filter(|(.., layout)| layout.block.is_some()).map(|(_, name, _)| *name).collect();
        return Err(format!("--block {block}: expected a job of a system whose packets name blocks: {}", known.join(", ")));
    }
    Ok(Keep::only(move |of_job: JobId, header: &AnyHeader| job.is_none_or(|job| JobId(job) == of_job) && of(header) == Some(block)))
}

/// What went over one link.
#[derive(Clone, Debug, Default)]
struct Crossing {
    /// Towards the sum, and away from it.
    packets: [u32; 2],
    /// When the last one of each was there, in us.
    last_us: [f64; 2],
}

/// As wide as a page of text, where letters keep their size.
const WIDTH: f64 = 900.0;
const ROW: f64 = 170.0;
const TOP: f64 = 80.0;
/// How far the labels of an arrow that goes up, and of one that goes down, are from the arrow's lower end, as shares of its length: at two heights,
/// and where the arrows of neighbours are far apart.
const LABELS: [f64; 2] = [0.2, 0.42];
/// Towards the sum, and back.
const COLORS: [RGBColor; 2] = [RGBColor(0, 114, 178), RGBColor(213, 94, 0)];

/// Writes a picture of the nodes and links that packets of the block have crossed: hosts below, switches above them by their distance from
/// hosts.
///
/// # Errors
/// The file cannot be written.
pub fn draw(path: &Path, prepared: &Prepared, block: u64, packets: &[Traced]) -> Result<()> {
    let crossings = crossings(prepared, packets);
    let places = places(prepared, crossings.keys());
    let rows = places.values().map(|place| place.1).fold(0.0, f64::max);
    let height = rows + 60.0;
    let mut text = String::new();
    {
        let canvas = SVGBackend::with_string(&mut text, (WIDTH as u32, height as u32)).into_drawing_area();
        canvas.fill(&WHITE)?;
        heading(&canvas, block, packets)?;
        for ((from, to), crossing) in &crossings {
            for way in [0, 1] {
                arrow(&canvas, (places[from], places[to]), crossing, way)?;
            }
        }
        let top = places.values().map(|place| place.1).fold(f64::MAX, f64::min);
        for (node, (x, y)) in &places {
            let at = (*x as i32, *y as i32);
            let is_host = prepared.topology.map.is_host(*node);
            canvas.draw(&Circle::new(at, if is_host { 5 } else { 8 }, INK.filled()))?;
            // Where there are no arrows: below hosts, above the highest switches, beside the others on the outer side.
            let (position, at) = match (is_host, *y <= top, *x < WIDTH / 2.0) {
                (true, ..) => (Pos::new(HPos::Center, VPos::Top), (at.0, at.1 + 10)),
                (false, true, _) => (Pos::new(HPos::Center, VPos::Bottom), (at.0, at.1 - 12)),
                (false, false, true) => (Pos::new(HPos::Right, VPos::Center), (at.0 - 14, at.1)),
                (false, false, false) => (Pos::new(HPos::Left, VPos::Center), (at.0 + 14, at.1)),
            };
            let style = (FONT, 16).into_font().color(&INK).pos(position);
            canvas.draw(&Text::new(prepared.topology.name(*node), at, style))?;
        }
        canvas.present()?;
    }
    std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
}

type Canvas<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn heading(canvas: &Canvas<'_>, block: u64, packets: &[Traced]) -> Result<()> {
    let centre = |size: i32, color: RGBColor| (FONT, size).into_font().color(&color).pos(Pos::new(HPos::Left, VPos::Top));
    canvas.draw(&Text::new(format!("Block {block}"), (20, 12), centre(20, INK)))?;
    let note =
        format!("{} packets on links. Beside an arrow: when its packet arrived, or how many and when the last one did", packets.len());
    canvas.draw(&Text::new(note, (20, 38), centre(15, MUTED)))?;
    for (way, name) in ["towards the sum", "the sum"].into_iter().enumerate() {
        let x = WIDTH as i32 - 290 + 165 * way as i32;
        canvas.draw(&PathElement::new(vec![(x, 22), (x + 24, 22)], COLORS[way].stroke_width(2)))?;
        canvas.draw(&Text::new(name, (x + 30, 15), centre(15, INK)))?;
    }
    Ok(())
}

/// By the ends of links.
fn crossings(prepared: &Prepared, packets: &[Traced]) -> BTreeMap<(NodeId, NodeId), Crossing> {
    let mut crossings: BTreeMap<(NodeId, NodeId), Crossing> = BTreeMap::new();
    for packet in packets {
        let way = match packet.header.kind() {
            PacketKind::Contribution => 0,
            PacketKind::Aggregate => 1,
            _ => continue,
        };
        let cable = &prepared.topology.links[packet.link as usize];
        let crossing = crossings.entry((cable.from, cable.to)).or_default();
        crossing.packets[way] += 1;
        crossing.last_us[way] = packet.at.as_ps() as f64 / 1e6;
    }
    crossings
}

/// Where nodes stand.
fn places<'a>(prepared: &Prepared, links: impl Iterator<Item = &'a (NodeId, NodeId)>) -> BTreeMap<NodeId, (f64, f64)> {
    let levels = levels(&prepared.topology);
    let mut rows: BTreeMap<usize, Vec<NodeId>> = BTreeMap::new();
    for node in links.flat_map(|(from, to)| [*from, *to]) {
        let row = rows.entry(levels.get(&node).copied().unwrap_or(0)).or_default();
        if !row.contains(&node) {
            row.push(node);
        }
    }
    let highest = rows.keys().next_back().copied().unwrap_or(0);
    let mut places = BTreeMap::new();
    for (level, mut row) in rows {
        row.sort_unstable();
        let step = WIDTH / row.len() as f64;
        let y = TOP + 20.0 + ROW * (highest - level) as f64;
        places.extend(row.into_iter().enumerate().map(|(number, node)| (node, ((number as f64 + 0.5) * step, y))));
    }
    places
}

/// An arrow beside the line between two nodes, if anything went that way.
fn arrow(canvas: &Canvas<'_>, (from, to): ((f64, f64), (f64, f64)), crossing: &Crossing, way: usize) -> Result<()> {
    if crossing.packets[way] == 0 {
        return Ok(());
    }
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = dx.hypot(dy).max(1.0);
    let (ux, uy) = (dx / length, dy / length);
    // To the right of its direction, so that both directions of a cable are to be seen.
    let (sx, sy) = (-uy * 4.0, ux * 4.0);
    let at = |share: f64, side: f64| {
        let along = share * (length - 24.0) + 12.0;
        ((from.0 + ux * along + sx * side) as i32, (from.1 + uy * along + sy * side) as i32)
    };
    let color = COLORS[way];
    let width = 1 + crossing.packets[way].min(4) / 2;
    canvas.draw(&PathElement::new(vec![at(0.0, 1.0), at(1.0, 1.0)], color.stroke_width(width)))?;
    let tip = at(1.0, 1.0);
    let back = |side: f64| ((f64::from(tip.0) - ux * 9.0 + sx * side) as i32, (f64::from(tip.1) - uy * 9.0 + sy * side) as i32);
    canvas.draw(&Polygon::new(vec![tip, back(1.0), back(-1.0)], color.filled()))?;
    let label = match crossing.packets[way] {
        1 => format!("{:.2} us", crossing.last_us[way]),
        several => format!("{several}, {:.2} us", crossing.last_us[way]),
    };
    let share = if dy < 0.0 { LABELS[0] } else { 1.0 - LABELS[1] };
    // On the arrow's own side of the line.
    let (side, (x, y)) = (if sx < 0.0 { HPos::Right } else { HPos::Left }, at(share, 2.5));
    let style = (FONT, 14).into_font().color(&color).pos(Pos::new(side, VPos::Center));
    canvas.draw(&Text::new(label, (x, y), style))?;
    Ok(())
}
