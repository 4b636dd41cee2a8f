//! `fanin model`: formulas of papers, as tables. What a model takes and gives stands in [`fanin_models::MODELS`]; each is a subcommand.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::builder::EnumValueParser;
use clap::{Arg, ArgMatches, Command, FromArgMatches, Subcommand, ValueEnum};
use fanin_models::{MODELS, Model, Parameter, model};
use fanin_pictures::rows::Rows;

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
