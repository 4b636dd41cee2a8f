//! Jobs from a file: an entry of `[[jobs]]` whose `file` is a table in CSV stands for a job for each row of it. A column is a key of `[[jobs]]`,
//! a cell its value as `--set` takes it; where a cell is empty, or there is no such column, what the entry says holds.

use std::io::{ErrorKind, Read};
use std::sync::Arc;

use csv::{ReaderBuilder, StringRecord, Trim};

use crate::reading::tree::{Key, Kind, Origin, Tree};
use crate::reading::{PlanError, files};
use crate::schema::FILE_KEY;

/// As many as a plan has jobs at most.
const ROWS_MAX: usize = 60_000;

/// What a file of so many rows with all keys takes.
const BYTES_MAX: u64 = 64 << 20;

/// Puts the rows of files in the place of the entries of `jobs` that name them; gives for each job that there is then the entry that it comes from.
///
/// # Errors
/// [`PlanError`] with the file, and its line where it is there.
pub fn expand(plan: &str, tree: &mut Tree) -> Result<Vec<usize>, PlanError> {
    let (mut all, mut from) = (Vec::new(), Vec::new());
    let Kind::Table(sections) = &mut tree.kind else { return Ok(from) };
    let Some((_, jobs)) = sections.iter_mut().find(|(key, _)| key.name == "jobs") else { return Ok(from) };
    let Kind::List(listed) = &mut jobs.kind else { return Ok(from) };
    for (index, mut job) in std::mem::take(listed).into_iter().enumerate() {
        match job.take(FILE_KEY) {
            None => all.push(job),
            Some((_, name)) => all.extend(rows(plan, index, &name, &job)?),
        }
        from.resize(all.len(), index);
    }
    *listed = all;
    Ok(from)
}

/// A job for each row of a file.
fn rows(plan: &str, index: usize, name: &Tree, job: &Tree) -> Result<Vec<Tree>, PlanError> {
    let refuse = |what: String| PlanError::new(plan, format!("jobs[{index}].{FILE_KEY} = {name}: {what}")).at(name.origin.clone());
    let Kind::Text(text) = &name.kind else { return Err(refuse("expected the name of a CSV file".into())) };
    let bytes = files::read(plan, text, BYTES_MAX).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput | ErrorKind::FileTooLarge => refuse(format!("expected a file of at most {} MiB", BYTES_MAX >> 20)),
        _ => refuse(format!("cannot be read: {error}")),
    })?;
    let table = Table { shown: files::path(plan, text).display().to_string().into(), job };
    let rows = table.read(&bytes[..])?;
    match rows.is_empty() {
        true => Err(refuse("expected a row for each job below the names of its columns".into())),
        false => Ok(rows),
    }
}

/// A file, and the entry that its rows complete.
struct Table<'a> {
    shown: Arc<str>,
    job: &'a Tree,
}

impl Table<'_> {
    fn error(&self, line: u64, what: impl Into<String>) -> PlanError {
        PlanError::new(&self.shown, what).at(self.origin(line))
    }

    fn origin(&self, line: u64) -> Origin {
        Origin::Row(self.shown.clone(), line as u32)
    }

    fn read(&self, file: impl Read) -> Result<Vec<Tree>, PlanError> {
        let mut reader = ReaderBuilder::new().trim(Trim::All).comment(Some(b'#')).from_reader(file);
        let columns = reader.headers().map_err(|error| self.unreadable(&error))?.clone();
        self.check_columns(&columns)?;
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|error| self.unreadable(&error))?;
            let line = record.position().map_or(0, csv::Position::line);
            if rows.len() == ROWS_MAX {
                return Err(self.error(line, format!("expected at most {ROWS_MAX} jobs")));
            }
            rows.push(self.row(&columns, &record, &self.origin(line)));
        }
        Ok(rows)
    }

    fn unreadable(&self, error: &csv::Error) -> PlanError {
        let line = error.position().map_or(1, csv::Position::line);
        let what = match error.kind() {
            csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                format!(
                    "{len} cells: expected {expected_len}, one for each column; a list is in quotes that follow the comma at once, as in 4us,\"[0, 1, 2]\""
                )
            }
            csv::ErrorKind::Utf8 { .. } => "expected text in UTF-8".into(),
            _ => format!("cannot be read: {error}"),
        };
        self.error(line, what)
    }

    fn check_columns(&self, columns: &StringRecord) -> Result<(), PlanError> {
        for (index, name) in columns.iter().enumerate() {
            if name.is_empty() || name == FILE_KEY {
                return Err(self.error(1, format!("column {} = {name:?}: expected a key of [[jobs]], such as start", index + 1)));
            }
            if columns.iter().take(index).any(|other| other == name) {
                return Err(self.error(1, format!("column {} = {name:?}: expected each key once", index + 1)));
            }
        }
        Ok(())
    }

    fn row(&self, columns: &StringRecord, record: &StringRecord, origin: &Origin) -> Tree {
        let mut row = Tree { kind: self.job.kind.clone(), origin: origin.clone() };
        if let Kind::Table(entries) = &mut row.kind {
            for (name, cell) in columns.iter().zip(record).filter(|(_, cell)| !cell.is_empty()) {
                entries.retain(|(key, _)| key.name != name);
                entries.push((Key { name: name.to_string(), origin: origin.clone() }, Tree::from_cell(cell, origin)));
            }
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fuzzed() {
        let job = Tree::parse("plan.toml", "workers = 4\nmessage = \"1MiB\"\n").expect("a table");
        bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
            let table = Table { shown: "jobs.csv".into(), job: &job };
            if let Err(error) = table.read(bytes) {
                assert!(error.to_string().contains("jobs.csv"), "{error}");
            }
        });
    }
}
