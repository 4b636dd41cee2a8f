//! `figures.toml` of a paper: every figure, table and number of it, and the claims that cover it or why none does.
//!
//! ```toml
//! [[entries]]
//! name = "Fig. 7a"
//! what = "average goodput with and without congestion"
//! claims = ["fig07/idle-alike", "fig07/one-tree-slowed"]
//!
//! [[entries]]
//! name = "Table 1"
//! what = "resources of the prototype"
//! why = "needs a Tofino switch and its compiler"
//! ```

use fanin_plan::PlanError;
use fanin_plan::read::read;
use fanin_plan::tree::Tree;

/// The list's file, in the folder of its paper.
pub const FILE: &str = "figures.toml";

#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    entries: Vec<Entry>,
}

/// Something that a paper shows.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Where in the paper: a figure, a table or a section.
    pub name: String,
    /// What is shown there.
    pub what: String,
    /// The claims that cover it, `FIGURE/CLAIM`; `FIGURE/*` are all of a figure.
    #[serde(default)]
    pub claims: Vec<String>,
    /// Files that cover it without claims of plans: what was run for real. By their paths in the paper's folder.
    #[serde(default)]
    pub files: Vec<String>,
    /// What of it is not covered, and why.
    pub why: Option<String>,
}

impl Entry {
    /// Whether a claim of a figure is one of those that cover it.
    pub fn covers(&self, figure: &str, claim: &str) -> bool {
        self.claims.iter().any(|name| name.split_once('/').is_some_and(|(of, one)| of == figure && (one == "*" || one == claim)))
    }
}

/// Reads a list, in which each entry has claims, files or a reason.
///
/// # Errors
/// [`PlanError`] with file and what was expected.
pub fn parse(file: &str, text: &str) -> Result<Vec<Entry>, PlanError> {
    let List { entries } = read(file, &Tree::parse(file, text)?, &[])?;
    for (index, entry) in entries.iter().enumerate() {
        if entry.claims.is_empty() && entry.files.is_empty() && entry.why.is_none() {
            let what = format!("entries[{index}] = {:?}: expected claims or files that cover it, or why with a reason", entry.name);
            return Err(PlanError::new(file, what));
        }
        if entries[..index].iter().any(|other| other.name == entry.name && other.what == entry.what) {
            return Err(PlanError::new(file, format!("entries[{index}] = {:?}: expected each thing once", entry.name)));
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::super::catalog::Catalog;
    use super::super::tasks::{How, Task, task};
    use super::*;

    fn shipped(paper: &str, quick: bool) -> Vec<Task> {
        let catalog = Catalog::Embedded;
        let how = How { quick, sets: &[], causes: true };
        let one = |name: &String| task(&how, &catalog, catalog.figure(paper, name).unwrap()).unwrap_or_else(|error| panic!("{error}"));
        catalog.figures(paper).iter().map(one).collect()
    }

    /// What runs in full is looked at by the next test.
    #[test]
    fn quick_plans_claims_and_causes_of_all_shipped_figures_are_as_they_must_be() {
        for paper in Catalog::Embedded.papers() {
            assert!(!shipped(&paper, true).is_empty(), "{paper} --quick");
        }
    }

    #[test]
    fn nothing_that_a_paper_shows_is_missing_and_no_claim_is_of_nothing() {
        let mut wrong = Vec::new();
        for paper in Catalog::Embedded.papers() {
            let entries = Catalog::Embedded.coverage(&paper).unwrap_or_else(|error| panic!("{error}"));
            assert!(!entries.is_empty(), "{paper} has no {FILE}");
            let known: Vec<(String, String)> = shipped(&paper, false)
                .iter()
                .flat_map(|task| task.claims.claims.iter().map(|claim| (task.figure.name.clone(), claim.id.clone())).collect::<Vec<_>>())
                .collect();
            for (figure, claim) in &known {
                if !entries.iter().any(|entry| entry.covers(figure, claim)) {
                    wrong.push(format!("{paper}: {figure}/{claim} is in no entry"));
                }
            }
            for entry in &entries {
                let one = |name: &String| Entry { claims: vec![name.clone()], ..entry.clone() };
                let unknown = entry.claims.iter().filter(|name| !known.iter().any(|(figure, claim)| one(name).covers(figure, claim)));
                wrong.extend(unknown.map(|name| format!("{paper}: {} names the claim {name}, which is not there", entry.name)));
                let missing = entry.files.iter().filter(|file| !Catalog::Embedded.holds(&format!("{paper}/{file}")));
                wrong.extend(missing.map(|file| format!("{paper}: {} names the file {file}, which is not there", entry.name)));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn an_entry_without_claims_and_without_a_reason_is_refused() {
        let error = parse("figures.toml", "[[entries]]\nname = \"Fig. 1\"\nwhat = \"a tree\"\n").unwrap_err().to_string();
        assert!(error.contains("entries[0] = \"Fig. 1\": expected claims or files that cover it, or why with a reason"), "{error}");
        let entry = "[[entries]]\nname = \"Fig. 1\"\nwhat = \"a tree\"\nclaims = [\"fig01/*\"]\n";
        assert!(parse("figures.toml", entry).unwrap()[0].covers("fig01", "any"));
        assert!(!parse("figures.toml", entry).unwrap()[0].covers("fig011", "any"));
        assert!(parse("figures.toml", &entry.repeat(2)).is_err(), "each thing once");
    }
}
