//! Results as CSV: which fields of a run's record are columns, and of what kind.

use std::io::Write;

use fanin_core::{DropReason, RetransmitReason, Tally};

use crate::plan::Plan;
use crate::results::RunRecord;

/// A JSON value as it stands in a CSV cell: texts without quotes, null as nothing.
pub(crate) fn cell(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => String::new(),
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// What the cells of a column hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ColumnKind {
    /// Texts.
    Text,
    /// Whole numbers from 0.
    Count,
    /// Numbers.
    Number,
    /// Texts, and no column where no run has one.
    TextIfAny,
    /// Numbers, and no column where no run has one.
    IfAny,
    /// Yes or no.
    Flag,
    /// A column for each key that points set, of any kind.
    Params,
    /// A column for each reason that occurred: how often.
    Reasons,
}

/// Fields of the JSON that are columns of the CSV, in order.
const COLUMNS: &[(&str, ColumnKind)] = &[
    ("series", ColumnKind::Text),
    ("system", ColumnKind::Text),
    ("seed", ColumnKind::Count),
    ("repetition", ColumnKind::Count),
    ("params", ColumnKind::Params),
    ("collective", ColumnKind::TextIfAny),
    ("ran", ColumnKind::TextIfAny),
    ("hosts", ColumnKind::Count),
    ("workers", ColumnKind::Count),
    ("message_bytes", ColumnKind::Count),
    ("congested", ColumnKind::Flag),
    ("completion_us", ColumnKind::Number),
    ("goodput_gbps", ColumnKind::Number),
    ("simulated_bytes", ColumnKind::IfAny),
    ("steady_error", ColumnKind::IfAny),
    ("iteration_us", ColumnKind::Number),
    ("communication_us", ColumnKind::Number),
    ("jct_us", ColumnKind::Number),
    ("jct_us_p50", ColumnKind::IfAny),
    ("jct_us_p99", ColumnKind::IfAny),
    ("jct_us_max", ColumnKind::IfAny),
    ("slowdown_mean", ColumnKind::IfAny),
    ("slowdown_p99", ColumnKind::IfAny),
    ("slowdown_max", ColumnKind::IfAny),
    ("fairness", ColumnKind::IfAny),
    ("fairness_min", ColumnKind::IfAny),
    ("unfair_us", ColumnKind::IfAny),
    ("link_utilization_mean", ColumnKind::Number),
    ("switch_bytes_peak", ColumnKind::Count),
    ("cores_busy", ColumnKind::Number),
    ("cores_locked", ColumnKind::Number),
    ("core_wait_us", ColumnKind::Number),
    ("cluster_bytes_peak", ColumnKind::IfAny),
    ("cluster_waits", ColumnKind::IfAny),
    ("recirculation_busy", ColumnKind::IfAny),
    ("switch_bytes_mean", ColumnKind::Number),
    ("leaf_bytes_mean", ColumnKind::Number),
    ("leaf_bytes_peak", ColumnKind::Count),
    ("leaf_slot_us", ColumnKind::Number),
    ("leaf_slots_per_packet", ColumnKind::Number),
    ("leaf_bytes_by_model", ColumnKind::Number),
    ("completion_by_model_us", ColumnKind::Number),
    ("links_idle", ColumnKind::Number),
    ("links_busy", ColumnKind::Number),
    ("links_between", ColumnKind::Number),
    ("links_70_to_90", ColumnKind::Number),
    ("queue_bytes_peak", ColumnKind::Count),
    ("census", ColumnKind::Text),
    ("packet_hops", ColumnKind::Count),
    ("link_bytes", ColumnKind::Count),
    ("packets_dropped", ColumnKind::Count),
    ("drops", ColumnKind::Reasons),
    ("packets_retransmitted", ColumnKind::Count),
    ("retransmissions", ColumnKind::Reasons),
    ("blocks_begun_anew", ColumnKind::Count),
    ("begun_anew", ColumnKind::Reasons),
    ("counts", ColumnKind::Reasons),
    ("collided_share", ColumnKind::Number),
    ("leader_packets_per_block", ColumnKind::Number),
    ("block_us_p50", ColumnKind::Number),
    ("block_us_p99", ColumnKind::Number),
    ("block_us_max", ColumnKind::Number),
    ("operation_us_p50", ColumnKind::Number),
    ("operation_us_p99", ColumnKind::Number),
    ("operation_us_max", ColumnKind::Number),
    ("packets_marked", ColumnKind::Count),
    ("packets_trimmed", ColumnKind::Count),
    ("events", ColumnKind::Count),
    ("background_gbps", ColumnKind::Number),
    ("simulated_us", ColumnKind::Number),
    ("ended", ColumnKind::Text),
    ("failure", ColumnKind::Text),
    ("wall_s", ColumnKind::Number),
];

/// A column of the CSV.
pub(crate) struct CsvColumn {
    field: &'static str,
    /// Where the field is a table.
    key: Option<String>,
    pub(crate) kind: ColumnKind,
}

impl CsvColumn {
    pub(crate) fn name(&self) -> String {
        self.key.as_ref().map_or(self.field.to_string(), |key| format!("{}.{key}", self.field))
    }

    /// Whether it is a field's column for a key.
    pub(crate) fn is(&self, field: &str, key: &str) -> bool {
        self.field == field && self.key.as_deref() == Some(key)
    }

    /// Its value in a row of the JSON.
    pub(crate) fn value<'r>(&self, row: &'r serde_json::Value) -> Option<&'r serde_json::Value> {
        let field = row.get(self.field)?;
        self.key.as_ref().map_or(Some(field), |key| field.get(key))
    }
}

/// The columns that any run of a plan could have, whatever happened in it: those of parts of a large plan are the same. Without `wall_s`, so that
/// a run's row depends on plan and seed only.
pub(crate) fn all_columns(plan: &Plan) -> Vec<CsvColumn> {
    let mut columns = Vec::new();
    for &(field, kind) in COLUMNS.iter().filter(|(field, _)| *field != "wall_s") {
        let keys: Vec<String> = match (kind, field) {
            (ColumnKind::Params, _) => params(plan),
            (ColumnKind::Reasons, "drops") => DropReason::ALL.iter().map(|reason| reason.name().into()).collect(),
            (ColumnKind::Reasons, "retransmissions") => RetransmitReason::ALL.iter().map(|reason| reason.name().into()).collect(),
            (ColumnKind::Reasons, "counts") => Tally::ALL.iter().map(|tally| tally.name().into()).collect(),
            // By generation, which is a number: in all it is `blocks_begun_anew`.
            (ColumnKind::Reasons, _) => continue,
            _ => {
                columns.push(CsvColumn { field, key: None, kind });
                continue;
            }
        };
        columns.extend(keys.into_iter().map(|key| CsvColumn { field, key: Some(key), kind }));
    }
    columns
}

/// Keys that points of a plan set, in the order of the plan.
fn params(plan: &Plan) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for (key, _) in plan.points.iter().flat_map(|point| &point.params) {
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    keys
}

/// The columns that these records have.
pub(crate) fn columns(records: &[&RunRecord], rows: &[serde_json::Value]) -> Vec<CsvColumn> {
    let mut columns = Vec::new();
    for &(field, kind) in COLUMNS {
        let mut keys: Vec<String> = match kind {
            // In the order of the plan.
            ColumnKind::Params => records.iter().flat_map(|record| record.params.iter().map(|(key, _)| key.clone())).collect(),
            ColumnKind::Reasons => rows.iter().filter_map(|row| row[field].as_object()).flat_map(|table| table.keys().cloned()).collect(),
            ColumnKind::IfAny | ColumnKind::TextIfAny if rows.iter().all(|row| row.get(field).is_none()) => continue,
            _ => {
                columns.push(CsvColumn { field, key: None, kind });
                continue;
            }
        };
        let mut seen = std::collections::BTreeSet::new();
        keys.retain(|key| seen.insert(key.clone()));
        columns.extend(keys.into_iter().map(|key| CsvColumn { field, key: Some(key), kind }));
    }
    columns
}

/// Writes records as CSV: the plain fields of the JSON under the same names, `params.KEY` for what points set, `drops.REASON` and
/// `retransmissions.REASON` for reasons that occurred in any run. Lists by job are in the JSON only.
///
/// # Errors
/// Those of `out`.
pub fn write_csv(records: &[&RunRecord], out: &mut dyn Write) -> csv::Result<()> {
    let rows: Vec<serde_json::Value> = records.iter().map(|record| serde_json::to_value(record).expect("a record is plain data")).collect();
    let columns = columns(records, &rows);
    let mut writer = csv::Writer::from_writer(out);
    writer.write_record(columns.iter().map(CsvColumn::name))?;
    for row in &rows {
        let cells = columns.iter().map(|column| match (column.value(row), column.kind) {
            (Some(value), _) => cell(value),
            (None, ColumnKind::Reasons) => "0".into(),
            (None, _) => String::new(),
        });
        writer.write_record(cells)?;
    }
    writer.flush()?;
    Ok(())
}
