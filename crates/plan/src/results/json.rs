//! Records as JSON.

use std::io::{self, Write};

use super::record::RunRecord;

/// Writes records as a JSON array, one object a line. `in_full` adds every worker's time.
///
/// # Errors
/// Those of `out`.
pub fn write_json(records: &[&RunRecord], in_full: bool, out: &mut dyn Write) -> io::Result<()> {
    for (index, record) in records.iter().enumerate() {
        write!(out, "{}", if index == 0 { "[\n" } else { ",\n" })?;
        if in_full {
            serde_json::to_writer(&mut *out, record)?;
        } else {
            let mut brief = (*record).clone();
            for job in &mut brief.jobs {
                job.workers_us.clear();
                job.iterations_us.clear();
            }
            serde_json::to_writer(&mut *out, &brief)?;
        }
    }
    writeln!(out, "{}", if records.is_empty() { "[]" } else { "\n]" })
}
