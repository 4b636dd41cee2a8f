//! `fanin model`: formulas of papers, as tables. What a model takes and gives stands in [`fanin_models::MODELS`]; each is a subcommand.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::builder::EnumValueParser;
use clap::{Arg, ArgMatches, Command, FromArgMatches, Subcommand, ValueEnum};
use comfy_table::{CellAlignment, ContentArrangement, Table};
use fanin_models::{MODELS, Model, ModelError, Parameter, model};
use fanin_plan::computed::Computed;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::repro::output::number_text;
use crate::table::{Cells, STYLE};

/// Values of one parameter, and rows of one table, at most.
const VALUES_MAX: usize = 100_000;

/// Output formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// A row for each combination.
    Csv,
    /// An array with an object for each combination, each on a line of its own.
    Json,
}

/// A model, and what it is evaluated for.
#[derive(Clone)]
pub struct ModelArgs {
    model: &'static Model,
    /// By parameter: its values.
    values: Vec<Vec<f64>>,
    format: Format,
}

impl std::fmt::Debug for ModelArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelArgs").field("model", &self.model.name).field("values", &self.values).finish_non_exhaustive()
    }
}

const LISTS: &str = "\
A LIST is numbers and ranges with commas between them: 2,4,8 or 2..32 (steps of one, for whole numbers) or 0..1:0.2 (steps of 0.2);
or names, where a parameter has names.
There is a row for each combination; the last parameter runs fastest.
Exit codes: 0 all is well, 2 the input is wrong.";

fn command(model: &'static Model) -> Command {
    let argument = |parameter: &'static Parameter| {
        let usual = model.text(parameter, parameter.usual);
        let help = format!("{}: {} [default: {usual}]", parameter.title, model.expected(parameter));
        Arg::new(parameter.key)
            .long(parameter.key)
            .value_name("LIST")
            .allow_negative_numbers(true)
            .help(help)
            .value_parser(move |text: &str| list(model, parameter, text))
    };
    let format =
        Arg::new("format").long("format").value_parser(EnumValueParser::<Format>::new()).default_value("table").help("What to print");
    let quantities: String =
        model.quantities.iter().map(|one| format!("  {}: {} (equation {})\n", one.key, one.title, one.equation)).collect();
    Command::new(model.name)
        .about(model.title)
        .long_about(format!("{}\n\n{}", model.title, model.about))
        .args(model.parameters.iter().map(argument))
        .arg(format)
        .after_help(format!("Columns:\n{quantities}\n{LISTS}"))
}

impl Subcommand for ModelArgs {
    fn augment_subcommands(command_of_all: Command) -> Command {
        command_of_all.subcommands(MODELS.iter().map(command)).subcommand_required(true).arg_required_else_help(true)
    }

    fn augment_subcommands_for_update(command_of_all: Command) -> Command {
        Self::augment_subcommands(command_of_all)
    }

    fn has_subcommand(name: &str) -> bool {
        model(name).is_some()
    }
}

impl FromArgMatches for ModelArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let chosen = matches.subcommand().and_then(|(name, given)| Some((model(name)?, given)));
        let (model, given) = chosen.ok_or_else(|| clap::Error::new(clap::error::ErrorKind::MissingSubcommand))?;
        let of = |parameter: &Parameter| given.get_one::<Vec<f64>>(parameter.key).cloned().unwrap_or_else(|| vec![parameter.usual]);
        let format = given.get_one("format").copied().unwrap_or(Format::Table);
        Ok(ModelArgs { model, values: model.parameters.iter().map(of).collect(), format })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Reads numbers and ranges, or names.
fn list(model: &Model, parameter: &Parameter, text: &str) -> Result<Vec<f64>, String> {
    if let Some(names) = model.names(parameter.key) {
        let place = |part: &str| names.iter().position(|name| *name == part.trim()).map(|place| place as f64);
        return text
            .split(',')
            .map(|part| place(part).ok_or_else(|| format!("{part:?}: expected {}", model.expected(parameter))))
            .collect();
    }
    let number = |text: &str| text.trim().parse::<f64>().map_err(|_| format!("{text:?}: expected {parameter}"));
    let mut values = Vec::new();
    for part in text.split(',') {
        let Some((low, rest)) = part.split_once("..") else {
            values.push(number(part)?);
            continue;
        };
        let (high, step) = match rest.split_once(':') {
            Some((high, step)) => (high, number(step)?),
            None if parameter.whole => (rest, 1.0),
            None => return Err(format!("{part:?}: expected a step, such as {part}:0.1")),
        };
        let (low, high) = (number(low)?, number(high)?);
        let steps = ((high - low) / step + 1e-9).floor();
        if !(step > 0.0 && steps >= 0.0) {
            return Err(format!("{part:?}: expected LOW..HIGH:STEP with HIGH at least LOW and STEP above 0"));
        }
        if steps >= VALUES_MAX as f64 {
            return Err(format!("{part:?}: expected at most {VALUES_MAX} values"));
        }
        // Sums of decimal steps, without what is left over in the last binary digits.
        if values.len() + steps as usize >= VALUES_MAX {
            return Err(format!("{text:?}: expected at most {VALUES_MAX} values"));
        }
        values.extend((0..=steps as u32).map(|index| ((low + f64::from(index) * step) * 1e12).round() / 1e12));
    }
    Ok(values)
}

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
    fn of(model: &'static Model, values: &[Vec<f64>]) -> Result<Rows, ModelError> {
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

    /// For people.
    fn text(&self) -> String {
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

/// Runs the command: 0 if all is well, 2 if the input is wrong.
pub fn run(args: &ModelArgs) -> ExitCode {
    let count = args.values.iter().try_fold(1usize, |product, values| product.checked_mul(values.len())).unwrap_or(usize::MAX);
    if count > VALUES_MAX {
        eprintln!("error: {count} combinations: expected at most {VALUES_MAX}");
        return ExitCode::from(2);
    }
    let rows = match Rows::of(args.model, &args.values) {
        Ok(rows) => rows,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let written = match args.format {
        Format::Table => out.write_all(rows.text().as_bytes()),
        Format::Csv => rows.write_csv(&mut out),
        Format::Json => rows.write_json(&mut out),
    };
    match written.and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("error: standard output: {error}");
            ExitCode::from(1)
        }
        _ => ExitCode::SUCCESS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(key: &str, text: &str) -> Result<Vec<f64>, String> {
        let steady = model("a2tp").expect("a model");
        list(steady, &steady.parameters[steady.parameter(key).expect("a parameter")], text)
    }

    #[test]
    fn lists_are_numbers_and_ranges() {
        assert_eq!(read("flows", "2"), Ok(vec![2.0]));
        assert_eq!(read("flows", "2,8..10, 32"), Ok(vec![2.0, 8.0, 9.0, 10.0, 32.0]));
        assert_eq!(read("flows", "2..9:3"), Ok(vec![2.0, 5.0, 8.0]));
        assert_eq!(read("threshold", "0..0.5:0.1"), Ok(vec![0.0, 0.1, 0.2, 0.3, 0.4, 0.5]));
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        for (text, expected) in [
            ("x", "\"x\": expected a number from 0 to below 1"),
            ("0..0.5", "\"0..0.5\": expected a step, such as 0..0.5:0.1"),
            ("0.5..0:0.1", "\"0.5..0:0.1\": expected LOW..HIGH:STEP with HIGH at least LOW and STEP above 0"),
            ("0..1:0", "\"0..1:0\": expected LOW..HIGH:STEP with HIGH at least LOW and STEP above 0"),
            ("0..1:nan", "\"0..1:nan\": expected LOW..HIGH:STEP with HIGH at least LOW and STEP above 0"),
            ("0..1:1e-9", "\"0..1:1e-9\": expected at most 100000 values"),
        ] {
            assert_eq!(read("threshold", text), Err(expected.to_string()));
        }
    }
}
