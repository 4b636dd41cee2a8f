//! What the rules look at: the workspace's packages and the repository's files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use cargo_metadata::{DependencyKind, MetadataCommand, TargetKind};

/// The repository, read once.
pub struct Repository {
    /// Its root folder.
    pub root: PathBuf,
    /// The members of the workspace.
    pub packages: Vec<Package>,
    /// Text of every file that git tracks or would track, by its path relative to the root. Files that are not text are left out.
    pub files: BTreeMap<String, String>,
}

/// A member of the workspace, as far as rules care.
#[derive(Clone, Debug, Default)]
pub struct Package {
    /// The package's name, such as `fanin-core`.
    pub name: String,
    /// Its manifest, relative to the root.
    pub manifest: String,
    /// Its direct dependencies.
    pub dependencies: Vec<Dependency>,
    /// The features that it declares, without `default` where that is empty.
    pub features: Vec<String>,
    /// The root files of its libraries and programs, relative to the repository's root.
    pub roots: Vec<String>,
}

/// A direct dependency.
#[derive(Clone, Debug)]
pub struct Dependency {
    /// The name of the package depended on.
    pub name: String,
    /// Only for tests, examples and benches.
    pub dev: bool,
    /// It is a member of this workspace.
    pub internal: bool,
    /// Features that are switched on by name.
    pub features: Vec<String>,
}

impl Repository {
    /// Reads the repository that the current folder is in.
    pub fn load() -> Result<Self> {
        let metadata = MetadataCommand::new().no_deps().exec().context("cargo metadata")?;
        let root = metadata.workspace_root.clone().into_std_path_buf();
        let packages = metadata.workspace_packages().into_iter().map(|package| Package::from_metadata(package, &root)).collect();
        let files = read_files(&root)?;
        Ok(Repository { root, packages, files })
    }

    /// The Rust files below `folder`, which ends with a slash.
    pub fn rust_files_below(&self, folder: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter(move |(path, _)| path.starts_with(folder) && path.ends_with(".rs"))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }
}

impl Package {
    fn from_metadata(package: &cargo_metadata::Package, root: &Path) -> Self {
        let dependencies = package.dependencies.iter().map(|dependency| Dependency {
            name: dependency.name.clone(),
            dev: dependency.kind == DependencyKind::Development,
            internal: dependency.path.is_some(),
            features: dependency.features.clone(),
        });
        let features = package.features.iter().filter(|(name, parts)| *name != "default" || !parts.is_empty());
        let roots = package
            .targets
            .iter()
            .filter(|target| target.kind.iter().any(|kind| matches!(kind, TargetKind::Lib | TargetKind::Bin | TargetKind::CDyLib)));
        Package {
            name: package.name.to_string(),
            manifest: relative(package.manifest_path.as_std_path(), root),
            dependencies: dependencies.collect(),
            features: features.map(|(name, _)| name.clone()).collect(),
            roots: roots.map(|target| relative(target.src_path.as_std_path(), root)).collect(),
        }
    }
}

/// `path` as seen from `root`, with forward slashes.
fn relative(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

/// Every text file that is tracked, or new and not ignored. A file that was deleted but not yet from the index is left out.
fn read_files(root: &Path) -> Result<BTreeMap<String, String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git ls-files")?;
    ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    let names = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
    let mut files = BTreeMap::new();
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        let Ok(bytes) = std::fs::read(root.join(name)) else { continue };
        if let Ok(text) = String::from_utf8(bytes) {
            files.insert(name.to_owned(), text);
        }
    }
    Ok(files)
}

/// A repository of the given files, for tests of rules.
#[cfg(test)]
pub fn with_files(files: &[(&str, &str)]) -> Repository {
    let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    Repository { root: PathBuf::new(), packages: Vec::new(), files }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_repository_is_read_with_its_packages_and_files() {
        let repository = Repository::load().unwrap();
        let core = repository.packages.iter().find(|package| package.name == "fanin-core").unwrap();
        assert_eq!(core.manifest, "crates/core/Cargo.toml");
        assert_eq!(core.roots, ["crates/core/src/lib.rs"]);
        let check = repository.packages.iter().find(|package| package.name == "fanin-check").unwrap();
        let protocols = check.dependencies.iter().find(|dependency| dependency.name == "fanin-protocols" && dependency.dev).unwrap();
        assert!(protocols.internal);
        assert_eq!(protocols.features, ["planted-bugs"]);
        let systems = check.dependencies.iter().find(|dependency| dependency.name == "fanin-systems").unwrap();
        assert!(systems.internal && !systems.dev);
        assert!(repository.rust_files_below("crates/core/src/").any(|(path, text)| path.ends_with("time.rs") && text.contains("Instant")));
        assert!(repository.files.keys().all(|path| !path.starts_with("target/")));
    }
}
