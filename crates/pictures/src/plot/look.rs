//! How what belongs together is drawn.

use plotters::style::RGBColor;

/// Told apart also by people who do not see all colours (Okabe and Ito).
const PALETTE: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(120, 120, 120),
    RGBColor(0, 0, 0),
];

/// How a group is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// Its colour's number.
    pub color: usize,
    /// Its kind of line's number: 0 is solid.
    pub dash: usize,
}

impl Look {
    /// Its colour.
    pub fn rgb(self) -> RGBColor {
        PALETTE[self.color % PALETTE.len()]
    }

    /// Length of a dash and of the gap after it, in pixels.
    pub fn dashes(self) -> Option<(u32, u32)> {
        [None, Some((7, 4)), Some((2, 3)), Some((12, 3))][self.dash % 4]
    }
}
