//! Pictures as figures for papers: as wide as a column, in letters of 8 points like those of the text, without title. As SVG, which names families
//! of fonts, and as PDF where whoever calls can make it: that takes some forty crates, which a first result does without.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use fanin_plan::Plan;
use fanin_plan::computed::Computed;
use fanin_plan::run::Finished;

use crate::plot::chart::Chart;
use crate::plot::{self, Style};

/// A kind of paper.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Paper {
    /// Of a column, in points.
    width: u32,
    /// The same as it stands in SVG.
    width_text: &'static str,
    /// Families of fonts, the first that there is.
    pub fonts: &'static str,
}

/// IEEE's conferences and transactions: columns of 3.5 in, Times.
pub const IEEE: Paper = Paper {
    width: 252,
    width_text: "3.5in",
    fonts: "Times New Roman, Times, Nimbus Roman, TeX Gyre Termes, STIX Two Text, Liberation Serif, DejaVu Serif, serif",
};

/// ACM's `acmart` in two columns: 3.33 in, Libertine.
pub const ACM: Paper = Paper {
    width: 240,
    width_text: "3.33in",
    fonts: "Linux Libertine O, Linux Libertine, Libertinus Serif, Liberation Serif, DejaVu Serif, serif",
};

/// Makes PDF of SVG whose letters are those of a paper.
pub type ToPdf = fn(&str, Paper) -> Result<Vec<u8>>;

/// Writes the plan's pictures into a folder, each as `NAME.svg` and, with `to_pdf`, `NAME.pdf`; the folder is made where it is missing.
///
/// # Errors
/// Those of drawing, of `to_pdf` and of writing files.
pub fn write(folder: &Path, plan: &Plan, finished: &[Finished], paper: Paper, to_pdf: Option<ToPdf>) -> Result<()> {
    write_charts(folder, plot::charts(plan, finished)?, paper, to_pdf)
}

/// The same of results that are computed and not simulated.
///
/// # Errors
/// As [`write()`].
pub fn write_computed(folder: &Path, plan: &Computed, paper: Paper, to_pdf: Option<ToPdf>) -> Result<()> {
    write_charts(folder, plot::computed_charts(plan)?, paper, to_pdf)
}

fn write_charts(folder: &Path, charts: Vec<(String, Chart)>, paper: Paper, to_pdf: Option<ToPdf>) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    for (name, chart) in charts {
        let what = || format!("figure {name}");
        let svg = sized(&chart.svg(&Style::paper(paper.width, paper.fonts)).with_context(what)?, paper);
        if let Some(to_pdf) = to_pdf {
            fs::write(folder.join(format!("{name}.pdf")), to_pdf(&svg, paper).with_context(what)?).with_context(what)?;
        }
        fs::write(folder.join(format!("{name}.svg")), svg).with_context(what)?;
    }
    Ok(())
}

/// The same picture with its size on paper: pixels become units of it.
fn sized(svg: &str, paper: Paper) -> String {
    let style = Style::paper(paper.width, paper.fonts);
    let height_in = f64::from(style.height) / f64::from(style.width) * f64::from(paper.width) / 72.0;
    let pixels = format!("width=\"{}\" height=\"{}\"", style.width, style.height);
    svg.replacen(&pixels, &format!("width=\"{}\" height=\"{height_in:.3}in\"", paper.width_text), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_as_wide_as_a_column() {
        for (paper, size) in
            [(IEEE, "<svg width=\"3.5in\" height=\"2.188in\" viewBox"), (ACM, "<svg width=\"3.33in\" height=\"2.083in\" viewBox")]
        {
            let style = Style::paper(paper.width, paper.fonts);
            let svg = format!("<svg width=\"{}\" height=\"{}\" viewBox=\"0 0 1 1\"></svg>", style.width, style.height);
            assert!(sized(&svg, paper).starts_with(size), "{}", sized(&svg, paper));
        }
    }
}
