//! What the page's scripts draw, as JSON in the page. Lines of many corners are thinned, and the page says by how many.

use serde_json::{Value, json};

use crate::plot::chart::{Chart, Marks, Parts};
use crate::plot::data::Spread;

/// Corners of all lines of a figure that are kept, about: more than a wide screen has pixels for.
const CORNERS_MAX: usize = 24_000;
/// Corners of a line that are kept in any case, about.
const CORNERS_MIN: usize = 400;
/// Digits of numbers.
const DIGITS: i32 = 6;

/// JSON that can stand in a script element.
pub fn in_page(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c")
}

/// A figure for the page.
pub fn figure(name: &str, chart: &Chart) -> Value {
    let groups = chart.groups.iter().zip(&chart.looks);
    let groups: Vec<Value> =
        groups.map(|(group, look)| json!({ "label": group.label, "color": look.color % 8, "dash": look.dash % 4 })).collect();
    let (mut corners, mut left_out) = (0, 0);
    let (kind, data, dots) = match &chart.marks {
        Marks::Bars(spreads) => ("bars", spreads_of(spreads), false),
        Marks::Points(spreads) => ("points", spreads_of(spreads), true),
        Marks::Corners(lines, has_dots) => {
            let most = (CORNERS_MAX / lines.len().max(1)).max(CORNERS_MIN);
            let of_line = |parts: &Parts| {
                let all: usize = parts.iter().map(Vec::len).sum();
                let parts = thinned(parts, most);
                corners += all;
                left_out += all - parts.iter().map(Vec::len).sum::<usize>();
                line(&parts)
            };
            ("corners", lines.iter().map(of_line).collect(), *has_dots)
        }
        Marks::Blocks(blocks) => {
            let of_block = |block: &crate::plot::chart::Block| {
                json!([rounded(block.x.start), rounded(block.x.end), block.y.start, block.y.end, block.group])
            };
            ("blocks", blocks.iter().map(of_block).collect(), false)
        }
    };
    json!({
        "name": name, "title": chart.title, "note": chart.note, "x": chart.x_label, "y": chart.y_label, "log": chart.log,
        "xr": [chart.x.start, chart.x.end], "yr": [chart.y.start, chart.y.end],
        "ticks": { "places": chart.ticks.places, "labels": chart.ticks.labels },
        "names": chart.names, "groups": groups, "kind": kind, "dots": dots, "data": data, "corners": corners, "left_out": left_out,
    })
}

fn spreads_of(spreads: &[Vec<Option<Spread>>]) -> Vec<Value> {
    let one = |spread: &Option<Spread>| match spread {
        Some(Spread { low, middle, high }) => json!([rounded(*low), rounded(*middle), rounded(*high)]),
        None => Value::Null,
    };
    spreads.iter().map(|spreads| spreads.iter().map(one).collect()).collect()
}

/// Two lists: along and up. Where the line is interrupted there is a corner without a height.
fn line(parts: &Parts) -> Value {
    let (mut along, mut up) = (Vec::new(), Vec::new());
    for (number, part) in parts.iter().enumerate() {
        if let Some((x, _)) = part.first().filter(|_| number > 0) {
            along.push(rounded(*x));
            up.push(Value::Null);
        }
        along.extend(part.iter().map(|(x, _)| rounded(*x)));
        up.extend(part.iter().map(|(_, y)| rounded(*y)));
    }
    json!([along, up])
}

/// At most about `most` corners: of neighbours the first, the lowest, the highest and the last stay, so peaks do.
fn thinned(parts: &Parts, most: usize) -> Parts {
    let all: usize = parts.iter().map(Vec::len).sum();
    if all <= most {
        return parts.clone();
    }
    let together = (all * 4).div_ceil(most);
    let of_part = |part: &Vec<(f64, f64)>| {
        let mut kept = Vec::new();
        for corners in part.chunks(together) {
            let by_height = |a: &usize, b: &usize| corners[*a].1.total_cmp(&corners[*b].1);
            let lowest = (0..corners.len()).min_by(by_height).unwrap_or(0);
            let highest = (0..corners.len()).max_by(by_height).unwrap_or(0);
            let mut places = vec![0, lowest, highest, corners.len() - 1];
            places.sort_unstable();
            places.dedup();
            kept.extend(places.into_iter().map(|place| corners[place]));
        }
        kept
    };
    parts.iter().map(of_part).collect()
}

/// A number with as many digits as a picture shows.
pub fn rounded(value: f64) -> Value {
    if value == 0.0 || !value.is_finite() {
        return json!(0);
    }
    let text = format!("{value:.*e}", DIGITS as usize - 1);
    let short: f64 = text.parse().unwrap_or(value);
    if short.fract() == 0.0 && short.abs() < 1e15 { json!(short as i64) } else { json!(short) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_stay_when_lines_are_thinned_and_short_lines_are_whole() {
        let mut corners: Vec<(f64, f64)> = (0..100_000).map(|at| (f64::from(at), 1.0)).collect();
        corners[54_321].1 = 9.0;
        corners[77_777].1 = -3.0;
        let kept = thinned(&vec![corners.clone()], 1_000);
        assert!(kept[0].len() <= 1_000, "{}", kept[0].len());
        assert!(kept[0].contains(&(54_321.0, 9.0)) && kept[0].contains(&(77_777.0, -3.0)));
        assert_eq!((kept[0].first(), kept[0].last()), (corners.first(), corners.last()));
        let short = vec![corners[..900].to_vec()];
        assert_eq!(thinned(&short, 1_000), short);
    }

    #[test]
    fn numbers_are_short_and_scripts_stay_closed() {
        assert_eq!([1.0 / 3.0, 0.0, 1_234_567.0, f64::NAN].map(|value| rounded(value).to_string()), ["0.333333", "0", "1234570", "0"]);
        assert_eq!(in_page(&json!("</script>")), "\"\\u003c/script>\"");
        assert_eq!(line(&vec![vec![(0.0, 1.0), (1.0, 2.0)], vec![(3.0, 1.5)]]), json!([[0, 1, 3, 3], [1, 2, null, 1.5]]));
    }
}
