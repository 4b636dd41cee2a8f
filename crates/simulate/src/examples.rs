//! `fanin examples`, and examples by name: they are in the program, so that they are there wherever it is installed.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use fanin_plan::{Plan, PlanError, run};
use include_dir::{Dir, include_dir};

static EMBEDDED: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../examples");

/// What errors of a name that there is not begin with.
const ARGUMENT: &str = "--example";

/// List the examples that are in the program, or write them all into a folder.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES_HELP)]
pub struct ExamplesArgs {
    /// Writes all examples, with what belongs to them, into this folder, which must be new or empty.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

const EXAMPLES_HELP: &str = "\
Examples:
  fanin examples
  fanin examples --out examples
  fanin sim --example quickstart";

/// Runs the command: 0 if all is well, 2 if the folder cannot be written to.
pub fn run(args: &ExamplesArgs) -> ExitCode {
    let Some(folder) = &args.out else {
        for name in names() {
            println!("{name}: {}", about(&text(&name).unwrap_or_default()));
        }
        return ExitCode::SUCCESS;
    };
    match write_into(folder) {
        Ok(()) => {
            println!("{}", folder.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: --out {}: {error:#}", folder.display());
            ExitCode::from(2)
        }
    }
}

fn write_into(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).context("expected a folder that can be written to")?;
    let is_empty = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
    ensure!(is_empty, "expected a folder that is new or empty");
    EMBEDDED.extract(folder).context("expected a folder that can be written to")
}

/// Names of all plans, sorted.
pub fn names() -> Vec<String> {
    let plans = EMBEDDED.files().map(include_dir::File::path).filter(|path| path.extension().is_some_and(|ending| ending == "toml"));
    let mut names: Vec<String> = plans.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    names
}

fn text(name: &str) -> Option<String> {
    Some(EMBEDDED.get_file(format!("{name}.toml"))?.contents_utf8()?.to_owned())
}

/// The first sentence of the words that a plan begins with.
fn about(text: &str) -> String {
    let words: Vec<&str> = text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim).collect();
    let words = words.join(" ");
    words.split_once(". ").map_or(words.trim_end_matches('.').to_owned(), |(first, _)| first.to_owned())
}

/// A plan of the examples, and where its files are for as long as it runs.
pub struct Example {
    /// The plan, read and checked.
    pub plan: Plan,
    _folder: Option<Folder>,
}

impl Example {
    /// Reads an example. Where it needs files beside it, they are laid into a temporary folder, in which the process is from then on.
    ///
    /// # Errors
    /// [`PlanError`] where there is no example of that name, or a change does not fit.
    pub fn load(name: &str, sets: &[String], seed: Option<u64>) -> Result<Example, PlanError> {
        let text = text(name).ok_or_else(|| PlanError::new(ARGUMENT, format!("{name:?}: expected one of {}", names().join(", "))))?;
        let file = format!("examples/{name}.toml");
        let read = || Plan::parse(&file, &text, sets, seed).and_then(|plan| run::check(&plan).map(|()| plan));
        if let Ok(plan) = read() {
            return Ok(Example { plan, _folder: None });
        }
        let failed =
            |error: io::Error| PlanError::new(ARGUMENT, format!("{name}: its files cannot be laid into a temporary folder: {error}"));
        let folder = Folder::enter().map_err(failed)?;
        Ok(Example { plan: read()?, _folder: Some(folder) })
    }
}

/// A temporary folder with `examples` in it, in which the process is.
struct Folder {
    path: PathBuf,
    before: Option<PathBuf>,
}

impl Folder {
    fn enter() -> io::Result<Folder> {
        let path = env::temp_dir().join(format!("fanin-examples-{}", std::process::id()));
        let folder = Folder { before: env::current_dir().ok(), path };
        let examples = folder.path.join("examples");
        fs::create_dir_all(&examples)?;
        EMBEDDED.extract(&examples)?;
        env::set_current_dir(&folder.path)?;
        Ok(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // The folder may be gone by now, and nothing needs it.
            let _ = env::set_current_dir(before);
        }
        // A folder left behind is no reason to fail.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_examples_have_names_and_words() {
        let names = names();
        assert!(["quickstart", "loss", "shapes", "jobs"].iter().all(|name| names.iter().any(|known| known == name)), "{names:?}");
        for name in names {
            let about = about(&text(&name).unwrap());
            assert!(about.len() > 20 && !about.contains(". "), "{name}: {about}");
        }
    }
}
