//! Figures of papers as PDF, with the letters in it that they show. No fonts come with Fanin: the first family counts that the machine has.

use anyhow::{Context, Result, anyhow, bail};
use fanin_pictures::paper::Paper;
use svg2pdf::usvg::{self, fontdb};
use svg2pdf::{ConversionOptions, PageOptions};

/// Makes PDF of SVG.
///
/// # Errors
/// The machine has none of the paper's fonts.
pub fn of(svg: &str, paper: Paper) -> Result<Vec<u8>> {
    let tree = usvg::Tree::from_str(svg, &options(paper)?).context("SVG")?;
    svg2pdf::to_pdf(&tree, ConversionOptions::default(), PageOptions { dpi: 72.0 }).map_err(|error| anyhow!("PDF: {error}"))
}

/// The machine's fonts, and which of them is meant.
fn options(paper: Paper) -> Result<usvg::Options<'static>> {
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

#[cfg(test)]
mod tests {
    use fanin_pictures::paper::IEEE;

    use super::*;

    #[test]
    fn a_figure_has_its_letters_and_its_size() {
        let letters = "<text x=\"40\" y=\"80\" font-size=\"32\" font-family=\"Times New Roman, serif\">goodput</text>";
        let size = "width=\"3.5in\" height=\"2in\" viewBox=\"0 0 1008 576\" xmlns=\"http://www.w3.org/2000/svg\"";
        let svg = format!("<svg {size}>{letters}</svg>");
        let once = match of(&svg, IEEE) {
            Ok(once) => once,
            // A machine without fonts is told so.
            Err(error) => return assert!(error.to_string().contains("expected one, such as of Debian's fonts-liberation"), "{error}"),
        };
        assert_eq!(once, of(&svg, IEEE).unwrap(), "the same bytes");
        let text = String::from_utf8_lossy(&once);
        assert!(text.contains("/MediaBox [0 0 252 144]") && text.contains("/FontFile"), "its size, and its letters are in it");
    }
}
