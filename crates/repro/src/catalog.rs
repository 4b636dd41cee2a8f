//! Where experiments are: in the program itself, so that it works wherever it is installed, or in a folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fanin_plan::{PlanError, files};
use include_dir::{Dir, include_dir};

use super::coverage::{self, Entry};

/// What a full run gave, beside the figure's plan.
pub const RECORD_FILE: &str = "verdicts.json";

static EMBEDDED: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../experiments");

/// The folder of a figure with networks that are listed cable by cable.
const NETWORKS: &str = "networks";

/// All experiments.
pub enum Catalog {
    /// Those that the program was built with.
    Embedded,
    /// Those in this folder.
    Folder(PathBuf),
}

/// One figure of a paper.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Figure {
    /// The paper's folder.
    pub paper: String,
    /// The figure's folder.
    pub name: String,
    /// Names of its files in errors, without the file's own name.
    place: String,
    /// `plan.toml`.
    pub plan: String,
    /// `claims.toml`.
    pub claims: String,
    /// `README.md`; empty where there is none.
    pub readme: String,
    /// `verdicts.json`, what a full run gave.
    pub recorded: Option<String>,
}

impl Figure {
    /// The name of one of its files, for errors.
    pub fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.place)
    }

    /// One of these texts.
    #[cfg(test)]
    pub fn given(plan: &str, claims: &str) -> Figure {
        let (readme, recorded) = (String::new(), None);
        Figure {
            paper: "paper".into(),
            name: "figure".into(),
            place: "figure".into(),
            plan: plan.into(),
            claims: claims.into(),
            readme,
            recorded,
        }
    }
}

impl Catalog {
    /// Folders below a path, sorted.
    fn folders(&self, path: &str) -> Vec<String> {
        let mut names: Vec<String> = match self {
            Catalog::Embedded => {
                let dir = if path.is_empty() { Some(&EMBEDDED) } else { EMBEDDED.get_dir(path) };
                dir.into_iter().flat_map(Dir::dirs).filter_map(|dir| Some(dir.path().file_name()?.to_str()?.to_string())).collect()
            }
            Catalog::Folder(folder) => {
                let entries = fs::read_dir(folder.join(path)).into_iter().flatten().flatten();
                entries.filter(|entry| entry.path().is_dir()).filter_map(|entry| entry.file_name().into_string().ok()).collect()
            }
        };
        names.sort();
        names
    }

    fn read(&self, path: &str) -> Option<String> {
        match self {
            Catalog::Embedded => Some(EMBEDDED.get_file(path)?.contents_utf8()?.to_string()),
            Catalog::Folder(folder) => fs::read_to_string(folder.join(path)).ok(),
        }
    }

    fn has(&self, path: &str) -> bool {
        match self {
            Catalog::Embedded => EMBEDDED.get_file(path).is_some(),
            Catalog::Folder(folder) => folder.join(path).is_file(),
        }
    }

    /// The networks in files that a figure's plan may name, by name: texts beside it in a folder of that name.
    pub fn networks(&self, paper: &str, figure: &str) -> BTreeMap<String, String> {
        let path = format!("{paper}/{figure}/{NETWORKS}");
        let names: Vec<PathBuf> = match self {
            Catalog::Embedded => EMBEDDED.get_dir(&path).into_iter().flat_map(Dir::files).map(|file| file.path().to_path_buf()).collect(),
            Catalog::Folder(folder) => fs::read_dir(folder.join(&path)).into_iter().flatten().flatten().map(|entry| entry.path()).collect(),
        };
        let names = names.iter().filter_map(|name| name.file_name()?.to_str());
        names.filter_map(|name| Some((format!("{NETWORKS}/{name}"), self.read(&format!("{path}/{name}"))?))).collect()
    }

    /// Papers that there are figures of.
    pub fn papers(&self) -> Vec<String> {
        self.folders("").into_iter().filter(|paper| !self.figures(paper).is_empty()).collect()
    }

    /// A paper's figures: folders with a plan.
    pub fn figures(&self, paper: &str) -> Vec<String> {
        self.folders(paper).into_iter().filter(|figure| self.has(&format!("{paper}/{figure}/plan.toml"))).collect()
    }

    /// Another file of a figure.
    ///
    /// # Errors
    /// [`PlanError`] where it is missing.
    pub fn beside(&self, figure: &Figure, file: &str) -> Result<String, PlanError> {
        let text = self.read(&format!("{}/{}/{file}", figure.paper, figure.name));
        text.ok_or_else(|| PlanError::new(&figure.file(file), "expected a text that can be read"))
    }

    /// What a paper shows, figure by figure, and which claims cover it; empty where there is no such list.
    ///
    /// # Errors
    /// [`PlanError`] where the list is not as it must be.
    pub fn coverage(&self, paper: &str) -> Result<Vec<Entry>, PlanError> {
        let path = format!("{paper}/{}", coverage::FILE);
        let file = match self {
            Catalog::Embedded => Path::new("experiments").join(&path),
            Catalog::Folder(folder) => folder.join(&path),
        };
        self.read(&path).map_or(Ok(Vec::new()), |text| coverage::parse(&file.display().to_string(), &text))
    }

    /// Whether there is such a file, by its path below all experiments.
    #[cfg(test)]
    pub fn holds(&self, path: &str) -> bool {
        self.has(path)
    }

    /// One figure.
    ///
    /// # Errors
    /// [`PlanError`] where a file is missing.
    pub fn figure(&self, paper: &str, name: &str) -> Result<Figure, PlanError> {
        let place = match self {
            Catalog::Embedded => Path::new("experiments").join(paper).join(name),
            Catalog::Folder(folder) => folder.join(paper).join(name),
        };
        let place = place.display().to_string();
        let read = |file: &str| {
            let path = format!("{paper}/{name}/{file}");
            self.read(&path).ok_or_else(|| PlanError::new(&format!("{place}/{file}"), "expected a text that can be read"))
        };
        let (plan, claims) = (read("plan.toml")?, read("claims.toml")?);
        let (readme, recorded) = (read("README.md").unwrap_or_default(), read(RECORD_FILE).ok());
        let networks = self.networks(paper, name);
        if matches!(self, Catalog::Embedded) && !networks.is_empty() {
            files::bring(
                &format!("{place}/plan.toml"),
                networks.into_iter().map(|(name, text)| (name, text.into_bytes().into())).collect(),
            );
        }
        Ok(Figure { paper: paper.into(), name: name.into(), place, plan, claims, readme, recorded })
    }
}
