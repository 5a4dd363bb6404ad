//! Pictures of figures, as PNG.

use anyhow::{Context, Result};
use resvg::{tiny_skia, usvg};

use super::{Theme, svg};
use crate::figure::Figure;

/// Draws a figure as PNG, at twice its size; none if it is empty.
///
/// # Errors
///
/// The SVG is invalid, which is a bug.
pub fn encode(figure: &Figure) -> Result<Option<Vec<u8>>> {
    let Some(text) = svg(figure, Theme::White) else { return Ok(None) };
    let mut options = usvg::Options { font_family: "DejaVu Sans".to_owned(), ..usvg::Options::default() };
    options.fontdb_mut().load_font_data(dejavu::sans::regular().to_vec());
    options.fontdb_mut().load_font_data(dejavu::sans::bold().to_vec());
    let tree = usvg::Tree::from_str(&text, &options)?;
    let size = tree.size().to_int_size().scale_by(2.0).context("no size")?;
    let mut pixels = tiny_skia::Pixmap::new(size.width(), size.height()).context("no room")?;
    resvg::render(&tree, tiny_skia::Transform::from_scale(2.0, 2.0), &mut pixels.as_mut());
    Ok(Some(pixels.encode_png()?))
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn a_picture_has_words_on_it_without_any_font_of_the_machine() {
        let mut figure = example(false);
        let with = encode(&figure).ok().flatten().unwrap_or_default();
        assert!(with.starts_with(b"\x89PNG"));
        figure.title = String::new();
        let without = encode(&figure).ok().flatten().unwrap_or_default();
        assert!(with.len() > without.len() + 500, "{} against {} bytes", with.len(), without.len());
    }
}
