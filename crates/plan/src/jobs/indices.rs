//! Indices of sparse vectors from a file, as the largest elements of real gradients give them: a line a rank.

use std::io::{BufRead, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use fanin_systems::System;

use super::prepared::PreparedJob;
use crate::reading::tree::Origin;
use crate::reading::{PlanError, Refuse, files};

/// What a file has at most.
const BYTES_MAX: u64 = 1 << 30;

/// Reads the file that a job names, and lets its system know how dense the vectors are, unless the plan says it.
///
/// # Errors
/// [`PlanError`] with the key, or the file and its line.
pub fn apply(refuse: &Refuse<'_>, job: &mut PreparedJob) -> Result<(), PlanError> {
    let path = format!("jobs[{}].indices", job.entry);
    let Some(name) = &job.settings.common.indices else { return Ok(()) };
    if job.system.density().is_none() {
        let sparse = System::names_of("or", |system| system.sparsity().is_some());
        return Err(refuse.at(&path, format!("no such key without {sparse}, whose vectors are sparse")));
    }
    for key in ["overlap", "picks", "tensor"] {
        let other = format!("jobs[{}].{key}", job.entry);
        if refuse.has(&other) {
            return Err(refuse.at(&other, "no such key beside indices"));
        }
    }
    let text = files::read(refuse.file, name, BYTES_MAX).map_err(|error| match error.kind() {
        ErrorKind::InvalidInput | ErrorKind::FileTooLarge => refuse.at(&path, format!("a file of at most {} MiB", BYTES_MAX >> 20)),
        _ => refuse.at(&path, format!("a file that can be read: {error}")),
    })?;
    let elements = job.settings.common.message_bytes(job.op.dtype.bytes() as u64) / job.op.dtype.bytes() as u64;
    let lists = read(&files::path(refuse.file, name), &text[..], elements)?;
    if lists.len() != job.hosts.len() {
        return Err(refuse.at(&path, format!("a file with a line for each of {} workers; it has {}", job.hosts.len(), lists.len())));
    }
    let all: u64 = lists.iter().map(|list| list.len() as u64).sum();
    if all == 0 {
        return Err(refuse.at(&path, "a file with at least one index"));
    }
    if !refuse.has(&format!("jobs[{}].density", job.entry)) {
        job.system = job.system.at_density(all as f64 / (elements as f64 * lists.len() as f64));
    }
    job.indices = Some(lists.into());
    Ok(())
}

/// The lists of a file for vectors of so many elements.
fn read(file: &Path, text: impl BufRead, elements: u64) -> Result<Vec<Box<[u64]>>, PlanError> {
    let shown: Arc<str> = file.display().to_string().into();
    let mut lists = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let wrong = |what: String| PlanError::new(&shown, what).at(Origin::Row(shown.clone(), line));
        let text = text.map_err(|error| wrong(format!("cannot be read: {error}")))?;
        if text.trim_start().starts_with('#') {
            continue;
        }
        let mut list: Vec<u64> = Vec::new();
        for word in text.split([' ', ',', '\t']).filter(|word| !word.is_empty()) {
            match word.parse() {
                Ok(index) if index < elements => list.push(index),
                _ => return Err(wrong(format!("index {word:?}: expected a whole number below {elements}, the length of the vector"))),
            }
        }
        list.sort_unstable();
        if let Some(pair) = list.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(wrong(format!("index {}: expected each index once in a line", pair[0])));
        }
        lists.push(list.into());
    }
    Ok(lists)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is taken is below the vector's length, and each index once in a line.
    #[test]
    fn indices_fuzzed() {
        bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| match read(Path::new("indices.csv"), bytes, 1_000) {
            Ok(lists) => {
                assert!(lists.iter().all(|list| list.windows(2).all(|two| two[0] < two[1]) && list.last().is_none_or(|last| *last < 1_000)))
            }
            Err(error) => assert!(error.to_string().contains("indices.csv")),
        });
    }
}
