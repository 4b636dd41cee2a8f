//! Pictures as figures for papers: as wide as a column, in letters of 8 points like those of the text, without title. As SVG, which names families
//! of fonts, and, with the feature `pdf`, as PDF, which has the letters in it that it shows. No fonts come with Fanin: the first family counts that the
//! machine has.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use fanin_plan::Plan;
use fanin_plan::run::Finished;

use crate::plot::{self, Style};

/// A kind of paper.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Paper {
    /// Of a column, in points.
    width: u32,
    /// The same as it stands in SVG.
    width_text: &'static str,
    /// Families of fonts, the first that there is.
    fonts: &'static str,
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

/// Writes the plan's pictures into a folder, each as `NAME.svg` and, with the feature `pdf`, `NAME.pdf`; the folder is made where it is missing.
///
/// # Errors
/// Those of drawing and of writing files; for PDF that no font is there.
pub fn write(folder: &Path, plan: &Plan, finished: &[Finished], paper: Paper) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    #[cfg(feature = "pdf")]
    let options = pdf::options(paper)?;
    for (name, chart) in plot::charts(plan, finished)? {
        let what = || format!("figure {name}");
        let svg = sized(&chart.svg(&Style::paper(paper.width, paper.fonts)).with_context(what)?, paper);
        #[cfg(feature = "pdf")]
        fs::write(folder.join(format!("{name}.pdf")), pdf::of(&svg, &options).with_context(what)?).with_context(what)?;
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

/// As PDF.
#[cfg(feature = "pdf")]
mod pdf {
    use anyhow::{Context, Result, anyhow, bail};
    use svg2pdf::usvg::{self, fontdb};
    use svg2pdf::{ConversionOptions, PageOptions};

    use super::Paper;

    /// The machine's fonts, and which of them is meant.
    pub fn options(paper: Paper) -> Result<usvg::Options<'static>> {
        let mut options = usvg::Options { dpi: 72.0, ..usvg::Options::default() };
        let fonts = options.fontdb_mut();
        fonts.load_system_fonts();
        let has = |family: &&str| {
            let families = &[fontdb::Family::Name(family)];
            fonts.query(&fontdb::Query { families, ..fontdb::Query::default() }).is_some()
        };
        let Some(found) = paper.fonts.split(", ").filter(|family| *family != "serif").find(has) else {
            bail!("the machine has none of the fonts {}: expected one, such as of Debian's fonts-liberation", paper.fonts);
        };
        fonts.set_serif_family(found);
        options.font_family = found.into();
        Ok(options)
    }

    /// A picture with its letters.
    pub fn of(svg: &str, options: &usvg::Options<'_>) -> Result<Vec<u8>> {
        let tree = usvg::Tree::from_str(svg, options).context("SVG")?;
        svg2pdf::to_pdf(&tree, ConversionOptions::default(), PageOptions { dpi: 72.0 }).map_err(|error| anyhow!("PDF: {error}"))
    }
}

#[cfg(all(test, feature = "pdf"))]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_as_wide_as_a_column_and_has_its_letters() {
        let style = Style::paper(IEEE.width, IEEE.fonts);
        let picture = |size: &str| {
            let letters = "<text x=\"40\" y=\"80\" font-size=\"32\" font-family=\"Times New Roman, serif\">goodput</text>";
            format!("<svg {size} viewBox=\"0 0 {} {}\" xmlns=\"http://www.w3.org/2000/svg\">{letters}</svg>", style.width, style.height)
        };
        let svg = sized(&picture(&format!("width=\"{}\" height=\"{}\"", style.width, style.height)), IEEE);
        assert!(svg.starts_with("<svg width=\"3.5in\" height=\"2.188in\" viewBox"), "{svg}");
        // A machine without fonts is told so.
        let options = match pdf::options(IEEE) {
            Ok(options) => options,
            Err(error) => return assert!(error.to_string().contains("expected one, such as of Debian's fonts-liberation"), "{error}"),
        };
        let (once, again) = (pdf::of(&svg, &options).unwrap(), pdf::of(&svg, &options).unwrap());
        assert_eq!(once, again, "the same bytes");
        let text = String::from_utf8_lossy(&once);
        assert!(text.contains("/MediaBox [0 0 252 157.5") && text.contains("/FontFile"), "its size, and its letters are in it");
    }
}
