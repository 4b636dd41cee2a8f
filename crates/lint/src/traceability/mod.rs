//! Each clause of a system's description -> the item that implements it -> the test that shows it. The rows are data
//! (`docs/traceability/*.toml`); `docs/traceability.md` is rendered from them.

mod items;
mod matrix;

pub use matrix::Matrix;

use std::collections::BTreeMap;

use self::items::Item;
use self::matrix::{Reference, Row, Table};
use crate::isolation;
use crate::repository::Repository;
use crate::violation::Violation;

/// The folder of the rows.
pub const ROWS: &str = "docs/traceability/";

/// The rendered table.
pub const RENDERED: &str = "docs/traceability.md";

/// All rules about traceability: no empty row, none that leads nowhere, no system without rows, no handler without a row, and the
/// rendered table is up to date.
pub fn check(matrix: &Matrix, repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut index = Index::new(repository);
    for table in &matrix.tables {
        for row in &table.rows {
            check_row(table, row, &mut index, &mut violations);
        }
    }
    for system in isolation::systems(repository) {
        check_system(&system, matrix, &mut index, &mut violations);
    }
    if repository.files.get(RENDERED) != Some(&matrix.render()) {
        violations.push(Violation::of_file(RENDERED, "is out of date: run `make traceability`"));
    }
    violations
}

/// The items of the files that were asked for so far.
struct Index<'a> {
    repository: &'a Repository,
    items: BTreeMap<String, Result<Vec<Item>, String>>,
}

impl<'a> Index<'a> {
    fn new(repository: &'a Repository) -> Self {
        Index { repository, items: BTreeMap::new() }
    }

    /// The items of the file at `path`, or why there are none.
    fn items(&mut self, path: &str) -> &Result<Vec<Item>, String> {
        let files = &self.repository.files;
        self.items.entry(path.to_owned()).or_insert_with(|| match files.get(path) {
            Some(text) => items::of_file(path, text),
            None => Err("no such file".to_owned()),
        })
    }
}

fn check_row(table: &Table, row: &Row, index: &mut Index<'_>, violations: &mut Vec<Violation>) {
    let mut complain = |message: String| violations.push(Violation::of_file(&table.path, format!("row \"{}\": {message}", row.name())));
    for (field, text) in [("clause", &row.clause), ("what", &row.what)] {
        if text.trim().is_empty() {
            complain(format!("{field} is empty"));
        }
    }
    for (field, references, is_test) in [("code", &row.code, false), ("test", &row.test, true)] {
        if references.is_empty() {
            complain(format!("{field} is empty"));
        }
        for reference in references {
            if let Err(message) = look_up(reference, is_test, index) {
                complain(format!("{field} {reference}: {message}"));
            }
        }
    }
}

/// Whether the item that a reference names exists and is, or is not, a test.
fn look_up(reference: &str, is_test: bool, index: &mut Index<'_>) -> Result<(), String> {
    let reference = Reference::parse(reference)?;
    let items = index.items(reference.path).as_ref().map_err(Clone::clone)?;
    let mut named = items.iter().filter(|item| item.is_named(reference.item)).peekable();
    if named.peek().is_none() {
        return Err("no such item in this file".to_owned());
    }
    match (named.any(|item| item.test == is_test), is_test) {
        (true, _) => Ok(()),
        (false, true) => Err("is not a test".to_owned()),
        (false, false) => Err("is a test and implements nothing".to_owned()),
    }
}

/// A system has a table, and each of its handlers is in it.
fn check_system(system: &str, matrix: &Matrix, index: &mut Index<'_>, violations: &mut Vec<Violation>) {
    let path = format!("{ROWS}{system}.toml");
    let Some(table) = matrix.tables.iter().find(|table| table.path == path) else {
        violations.push(Violation::of_file(path, format!("is missing: every system in {} has one", isolation::SYSTEMS)));
        return;
    };
    let named: Vec<Reference<'_>> =
        table.rows.iter().flat_map(|row| &row.code).filter_map(|reference| Reference::parse(reference).ok()).collect();
    let repository = index.repository;
    for (file, _) in repository.rust_files_below(isolation::SYSTEMS) {
        let inside = &file[isolation::SYSTEMS.len()..];
        if !inside.strip_prefix(system).is_some_and(|rest| rest.starts_with('/') || rest == ".rs") {
            continue;
        }
        let items = match index.items(file) {
            Ok(items) => items,
            Err(message) => {
                violations.push(Violation::of_file(file, message));
                continue;
            }
        };
        for handler in items.iter().filter(|item| !item.test && item.is_handler()) {
            if !named.iter().any(|reference| reference.path == file && handler.is_named(reference.item)) {
                violations.push(Violation::of_file(&table.path, format!("has no row for the handler {file}::{}", handler.name())));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::with_files;

    const SWITCH: &str = "crates/protocols/src/tree/switch.rs";
    const TESTS: &str = "crates/protocols/tests/tree.rs";
    const TABLE: &str = "docs/traceability/tree.toml";

    const GOOD_ROW: &str = r#"
        title = "Static trees"
        source = "The text."
        [[row]]
        clause = "5 switch"
        what = "Sums."
        code = ["crates/protocols/src/tree/switch.rs::TreeSwitch::on_packet"]
        test = ["crates/protocols/tests/tree.rs::sums"]
    "#;

    /// A repository with one system, one handler, one test and these rows, rendered; and what is wrong with it.
    fn messages(rows: &str) -> Vec<String> {
        check_files(rows, &[])
    }

    fn check_files(rows: &str, more: &[(&str, &str)]) -> Vec<String> {
        let mut repository = with_files(&[
            (SWITCH, "pub struct TreeSwitch;\nimpl TreeSwitch { fn on_packet(&mut self) {} }"),
            (TESTS, "#[test]\nfn sums() {}\nfn helper() {}"),
            (TABLE, rows),
        ]);
        for (path, text) in more {
            repository.files.insert((*path).to_owned(), (*text).to_owned());
        }
        let matrix = Matrix::load(&repository).unwrap();
        repository.files.insert(RENDERED.to_owned(), matrix.render());
        check(&matrix, &repository).into_iter().map(|violation| format!("{}: {}", violation.path, violation.message)).collect()
    }

    #[test]
    fn a_complete_matrix_passes() {
        assert_eq!(messages(GOOD_ROW), [""; 0]);
    }

    #[test]
    fn a_row_without_code_test_or_text_is_empty() {
        let name = format!("{TABLE}: row \"5 switch: Sums.\":");
        let no_test = GOOD_ROW.replace("\"crates/protocols/tests/tree.rs::sums\"", "");
        assert_eq!(messages(&no_test), [format!("{name} test is empty")]);
        let no_text = GOOD_ROW.replace("\"Sums.\"", "\" \"");
        assert_eq!(messages(&no_text), [format!("{TABLE}: row \"5 switch:  \": what is empty")]);
        let no_code = GOOD_ROW.replace("\"crates/protocols/src/tree/switch.rs::TreeSwitch::on_packet\"", "");
        assert!(messages(&no_code).contains(&format!("{name} code is empty")));
    }

    #[test]
    fn references_to_missing_files_and_items_dangle() {
        for (from, to, complaint) in [
            ("tree.rs::sums", "trees.rs::sums", "no such file"),
            ("tree.rs::sums", "tree.rs::summs", "no such item in this file"),
            ("tree.rs::sums", "tree.rs::helper", "is not a test"),
            ("tree.rs::sums", "tree.rs", "expected FILE::ITEM"),
        ] {
            let found = messages(&GOOD_ROW.replace(from, to));
            assert!(found.len() == 1 && found[0].ends_with(complaint), "{to}: {found:?}");
        }
        let code_is_a_test = GOOD_ROW.replace("code = [", "code = [\"crates/protocols/tests/tree.rs::sums\", ");
        assert!(messages(&code_is_a_test)[0].ends_with("is a test and implements nothing"));
    }

    #[test]
    fn a_system_without_a_table_is_found() {
        let found = check_files(GOOD_ROW, &[("crates/protocols/src/ring/mod.rs", "")]);
        assert_eq!(found, ["docs/traceability/ring.toml: is missing: every system in crates/protocols/src/ has one"]);
    }

    #[test]
    fn a_handler_without_a_row_is_found() {
        let worker = "pub struct W;\nimpl Node for W { fn on_timeout(&mut self) {} }\n#[cfg(test)]\nmod tests { fn on_nothing() {} }";
        let found = check_files(GOOD_ROW, &[("crates/protocols/src/tree/worker.rs", worker)]);
        assert_eq!(found, [format!("{TABLE}: has no row for the handler crates/protocols/src/tree/worker.rs::W::on_timeout")]);
    }

    #[test]
    fn a_table_that_was_not_rendered_again_is_stale() {
        let mut repository = with_files(&[(TABLE, "title = \"A\"\nsource = \"B\"\n")]);
        let matrix = Matrix::load(&repository).unwrap();
        let stale = [Violation::of_file(RENDERED, "is out of date: run `make traceability`")];
        assert_eq!(check(&matrix, &repository), stale);
        repository.files.insert(RENDERED.to_owned(), matrix.render() + "edited by hand\n");
        assert_eq!(check(&matrix, &repository), stale);
        repository.files.insert(RENDERED.to_owned(), matrix.render());
        assert_eq!(check(&matrix, &repository), []);
    }
}
