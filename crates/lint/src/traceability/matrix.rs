//! The rows, and the table that is rendered from them.

use std::fmt::Write;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::ROWS;
use crate::repository::Repository;

/// All tables, in the order of their files' names.
pub struct Matrix {
    pub(super) tables: Vec<Table>,
}

/// The rows of one system or subject.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// The file, relative to the root.
    #[serde(skip)]
    pub(super) path: String,
    /// The heading.
    title: String,
    /// What the clauses are clauses of.
    source: String,
    /// The rows.
    #[serde(default, rename = "row")]
    pub(super) rows: Vec<Row>,
}

/// One clause.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    /// Where the clause is found.
    pub(super) clause: String,
    /// What it says, in a sentence.
    pub(super) what: String,
    /// The items that implement it, as `FILE::ITEM`.
    pub(super) code: Vec<String>,
    /// The tests that show it, as `FILE::ITEM`.
    pub(super) test: Vec<String>,
    /// A deviation and its reason.
    #[serde(default)]
    note: String,
}

impl Row {
    /// What a message calls the row.
    pub(super) fn name(&self) -> String {
        format!("{}: {}", self.clause, self.what)
    }
}

/// `FILE::ITEM`, taken apart.
pub(super) struct Reference<'a> {
    /// The file, relative to the root.
    pub(super) path: &'a str,
    /// The item, such as `Type::method`.
    pub(super) item: &'a str,
}

impl<'a> Reference<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, String> {
        match text.split_once("::") {
            Some((path, item)) if !path.is_empty() && !item.is_empty() => Ok(Reference { path, item }),
            _ => Err("expected FILE::ITEM".to_owned()),
        }
    }
}

impl Matrix {
    /// Reads every table.
    pub fn load(repository: &Repository) -> Result<Self> {
        let files = repository.files.iter().filter(|(path, _)| path.starts_with(ROWS) && path.ends_with(".toml"));
        let tables = files.map(|(path, text)| {
            let table: Table = toml::from_str(text).with_context(|| path.clone())?;
            Ok(Table { path: path.clone(), ..table })
        });
        Ok(Matrix { tables: tables.collect::<Result<_>>()? })
    }

    /// The table for readers, in Markdown.
    pub fn render(&self) -> String {
        let mut text = String::from(
            "# Traceability\n\n\
             <!-- Rendered from docs/traceability/*.toml by `make traceability`. Edit the rows there. -->\n\n\
             Each clause of a description, the item that implements it and the test that shows it. `make lint` fails on a row that is\n\
             empty or leads nowhere, and on a handler without a row.\n",
        );
        for table in &self.tables {
            let _ = write!(text, "\n## {}\n\n{}\n\n", table.title, table.source);
            text.push_str("| clause | what it says | code | test | note |\n|---|---|---|---|---|\n");
            for row in &table.rows {
                let _ = writeln!(
                    text,
                    "| {} | {} | {} | {} | {} |",
                    cell(&row.clause),
                    cell(&row.what),
                    links(&row.code),
                    links(&row.test),
                    cell(&row.note)
                );
            }
        }
        text
    }
}

/// Text that does not end a cell.
fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|").replace('\n', " ")
}

fn links(references: &[String]) -> String {
    let links = references.iter().map(|reference| match Reference::parse(reference) {
        Ok(Reference { path, item }) => format!("[`{item}`](../{path})"),
        Err(_) => cell(reference),
    });
    links.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::with_files;

    const TABLE: &str = "docs/traceability/ring.toml";

    #[test]
    fn a_row_is_rendered_with_links_and_its_bars_are_escaped() {
        let rows = r#"
            title = "Ring"
            source = "A book."
            [[row]]
            clause = "1"
            what = "a | b"
            code = ["crates/a.rs::A::on_b", "crates/a.rs::C"]
            test = ["crates/t.rs::d"]
            note = "None."
        "#;
        let text = Matrix::load(&with_files(&[(TABLE, rows)])).unwrap().render();
        let row = "| 1 | a \\| b | [`A::on_b`](../crates/a.rs), [`C`](../crates/a.rs) | [`d`](../crates/t.rs) | None. |\n";
        assert!(text.contains("\n## Ring\n\nA book.\n") && text.ends_with(row), "{text}");
    }

    #[test]
    fn a_misspelt_key_is_an_error_that_names_the_file() {
        let rows = "title = \"Ring\"\nsource = \"A book.\"\n[[row]]\nclause = \"1\"\nwhat = \"a\"\ncode = []\ntests = []\n";
        let error = format!("{:#}", Matrix::load(&with_files(&[(TABLE, rows)])).err().unwrap());
        assert!(error.contains(TABLE) && error.contains("tests"), "{error}");
    }
}
