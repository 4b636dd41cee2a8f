//! What a model gives: a row for each combination of its parameters.

use std::io::{self, Write};

use comfy_table::{CellAlignment, ContentArrangement, Table};
use fanin_models::{Model, ModelError};
use fanin_plan::computed::Computed;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::table::{Cells, STYLE, number_text};

/// A model's parameters and quantities, row by row.
pub struct Rows {
    model: &'static Model,
    rows: Vec<(Vec<f64>, Vec<f64>)>,
}

impl Rows {
    /// All combinations of these values.
    ///
    /// # Errors
    /// [`ModelError`] for the first that cannot be evaluated.
    pub fn of(model: &'static Model, values: &[Vec<f64>]) -> Result<Rows, ModelError> {
        let mut combinations = vec![Vec::new()];
        for values in values {
            combinations = combinations
                .into_iter()
                .flat_map(|head: Vec<f64>| values.iter().map(move |&value| head.iter().copied().chain([value]).collect()))
                .collect();
        }
        let row = |parameters: Vec<f64>| model.evaluate(&parameters).map(|quantities| (parameters, quantities));
        Ok(Rows { model, rows: combinations.into_iter().map(row).collect::<Result<_, _>>()? })
    }

    /// The points of a plan.
    pub fn of_plan(plan: &Computed) -> Rows {
        let rows = plan.points.iter().map(|point| (point.parameters.clone(), point.quantities.clone())).collect();
        Rows { model: plan.model, rows }
    }

    fn keys(&self) -> impl Iterator<Item = &'static str> + use<> {
        let model = self.model;
        model.parameters.iter().map(|parameter| parameter.key).chain(model.quantities.iter().map(|quantity| quantity.key))
    }

    /// How many columns are parameters.
    pub fn parameters(&self) -> usize {
        self.model.parameters.len()
    }

    /// The parameters of a row, with their names where they have some.
    fn texts<'a>(&'a self, parameters: &'a [f64]) -> impl Iterator<Item = String> + 'a {
        self.model.parameters.iter().zip(parameters).map(|(parameter, &value)| self.model.text(parameter, value))
    }

    /// The table for people, without its form.
    pub fn cells(&self) -> Cells {
        let row = |(parameters, quantities): &(Vec<f64>, Vec<f64>)| {
            self.texts(parameters).chain(quantities.iter().map(|value| number_text(*value))).collect()
        };
        Cells { header: self.keys().map(String::from).collect(), rows: self.rows.iter().map(row).collect() }
    }

    /// What the columns are: a line each.
    pub fn legend(&self) -> String {
        let line = |key, title, equation| format!("{key}: {title}{equation}\n");
        let parameters = self.model.parameters.iter().map(|one| line(one.key, one.title, String::new()));
        let quantities = self.model.quantities.iter().map(|one| line(one.key, one.title, format!(", equation {}", one.equation)));
        parameters.chain(quantities).collect()
    }

    /// For people: a table, and below it what its columns are.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
        let cells = self.cells();
        table.set_header(cells.header).add_rows(cells.rows);
        table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        let lines: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        format!("{}\n{lines}{}", self.model.title, self.legend())
    }

    /// One object a row.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let lines: Result<Vec<String>, _> = self.rows.iter().map(|row| serde_json::to_string(&Object { rows: self, row })).collect();
        write!(out, "[\n{}\n]\n", lines?.join(",\n"))
    }

    /// One line a row.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_csv(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut writer = csv::Writer::from_writer(out);
        writer.write_record(self.keys())?;
        for (parameters, quantities) in &self.rows {
            writer.write_record(self.texts(parameters).chain(quantities.iter().map(f64::to_string)))?;
        }
        writer.flush()
    }
}

/// A row as an object, with its keys in the order of the columns.
struct Object<'a> {
    rows: &'a Rows,
    row: &'a (Vec<f64>, Vec<f64>),
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Rows { model, .. } = self.rows;
        let mut map = serializer.serialize_map(None)?;
        for (parameter, value) in model.parameters.iter().zip(&self.row.0) {
            match model.names(parameter.key) {
                Some(_) => map.serialize_entry(parameter.key, &model.text(parameter, *value))?,
                None => map.serialize_entry(parameter.key, value)?,
            }
        }
        for (quantity, value) in model.quantities.iter().zip(&self.row.1) {
            map.serialize_entry(quantity.key, value)?;
        }
        map.end()
    }
}
