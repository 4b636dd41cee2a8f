//! The files of a crate import each other in no circle: whoever reads one needs to read what it imports, and that has an end.
//!
//! What a file takes from the modules that it is in does not count: a module declares its children, and children see what is theirs. Tests do
//! not count either. A name that a module only passes on counts as what it stands for.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::Visit;
use syn::{File, Item, ItemMod, UseTree};

use crate::repository::Repository;
use crate::source::{self, PathUse, is_test_only};
use crate::violation::Violation;

/// How often a name may be passed on from module to module.
const PASSES_MAX: usize = 16;

/// A module's path from its crate's root.
type Module = Vec<String>;

/// What the files of a crate say, by the module that each is.
#[derive(Default)]
struct Crate {
    files: BTreeMap<Module, Source>,
}

struct Source {
    /// Its path in the repository.
    path: String,
    /// What it imports, or names by a path, beside its tests.
    uses: Vec<PathUse>,
    /// Names that it takes from elsewhere, and so passes on to those who see it: each with its path.
    passes: Vec<(String, Vec<String>)>,
}

/// The rule.
pub fn check(repository: &Repository) -> Vec<Violation> {
    let violations = |own: &Crate| own.circles().iter().filter_map(|circle| own.violation(circle)).collect::<Vec<_>>();
    crates(repository).values().flat_map(violations).collect()
}

/// A module in words.
fn shown(module: &[String]) -> String {
    if module.is_empty() { "crate".into() } else { module.join("::") }
}

/// All crates, by the names of their folders. A file that is not Rust is told by other rules.
fn crates(repository: &Repository) -> BTreeMap<String, Crate> {
    let mut all: BTreeMap<String, Crate> = BTreeMap::new();
    let mut tests: BTreeSet<(String, Module)> = BTreeSet::new();
    for (path, text) in repository.rust_files_below("crates/") {
        let Some((name, inside)) = path["crates/".len()..].split_once("/src/") else { continue };
        let Ok(file) = syn::parse_file(text) else { continue };
        // A program beside a library is a crate of its own.
        if inside == "main.rs" && repository.files.contains_key(&format!("crates/{name}/src/lib.rs")) {
            continue;
        }
        let module = module_of(inside);
        tests.extend(test_modules(&file, &module).into_iter().map(|module| (name.to_string(), module)));
        let uses = source::paths(&file).into_iter().filter(|path| !path.in_tests).collect();
        let source = Source { path: path.into(), uses, passes: passes(&file) };
        all.entry(name.into()).or_default().files.insert(module, source);
    }
    for (name, own) in &mut all {
        own.files.retain(|module, _| !(0..=module.len()).any(|end| tests.contains(&(name.clone(), module[..end].to_vec()))));
    }
    all
}

/// The module that a file is, from the crate's root.
fn module_of(inside: &str) -> Module {
    let inside = inside.trim_end_matches(".rs");
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    if matches!(inside, "lib" | "main") { Vec::new() } else { inside.split('/').map(str::to_owned).collect() }
}

/// The modules of other files that a file has for tests only.
fn test_modules(file: &File, module: &[String]) -> Vec<Module> {
    let is_tests = |item: &ItemMod| item.content.is_none() && is_test_only(&item.attrs);
    let modules = file.items.iter().filter_map(|item| if let Item::Mod(item) = item { Some(item) } else { None });
    modules.filter(|item| is_tests(item)).map(|item| module.iter().cloned().chain([item.ident.to_string()]).collect()).collect()
}

/// Names that the file takes from elsewhere, outside of modules within it.
fn passes(file: &File) -> Vec<(String, Vec<String>)> {
    struct Names(Vec<(String, Vec<String>)>);

    impl Names {
        fn add(&mut self, tree: &UseTree, prefix: &[String]) {
            let with = |name: &str| prefix.iter().cloned().chain([name.to_owned()]).collect::<Vec<_>>();
            match tree {
                UseTree::Path(path) => self.add(&path.tree, &with(&path.ident.to_string())),
                UseTree::Name(name) if name.ident == "self" => self.0.extend(prefix.last().map(|last| (last.clone(), prefix.to_vec()))),
                UseTree::Name(name) => self.0.push((name.ident.to_string(), with(&name.ident.to_string()))),
                UseTree::Rename(rename) => self.0.push((rename.rename.to_string(), with(&rename.ident.to_string()))),
                UseTree::Glob(_) => {}
                UseTree::Group(group) => group.items.iter().for_each(|item| self.add(item, prefix)),
            }
        }
    }

    impl<'ast> Visit<'ast> for Names {
        fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
            self.add(&item.tree, &[]);
        }

        fn visit_item_mod(&mut self, _: &'ast ItemMod) {}
    }

    let mut names = Names(Vec::new());
    names.visit_file(file);
    names.0
}

impl Crate {
    /// The file that something written in `home` stands in.
    fn target(&self, home: &[String], used: &PathUse) -> Option<Module> {
        let inside: Module = home.iter().chain(&used.modules).cloned().collect();
        self.follow(&absolute(&inside, &used.segments, self)?, PASSES_MAX)
    }

    /// The file that a path from the root leads to, through names that are only passed on.
    fn follow(&self, path: &[String], passes: usize) -> Option<Module> {
        let end = (0..=path.len()).rev().find(|&end| self.files.contains_key(&path[..end]))?;
        let module = path[..end].to_vec();
        let Some(name) = path.get(end).filter(|_| passes > 0) else { return Some(module) };
        let Some((_, passed)) = self.files[&module].passes.iter().find(|(own, _)| own == name) else { return Some(module) };
        let Some(mut further) = absolute(&module, passed, self) else {
            // Passed on from another crate: nobody's here.
            return None;
        };
        further.extend_from_slice(&path[end + 1..]);
        self.follow(&further, passes - 1)
    }

    /// Each file, with the files that it imports; without those of the modules that it is in.
    fn edges(&self) -> BTreeMap<&Module, BTreeMap<Module, usize>> {
        let mut edges: BTreeMap<&Module, BTreeMap<Module, usize>> = BTreeMap::new();
        for (home, source) in &self.files {
            let own = edges.entry(home).or_default();
            for used in &source.uses {
                if let Some(target) = self.target(home, used).filter(|target| !home.starts_with(target)) {
                    own.entry(target).or_insert(used.line);
                }
            }
        }
        edges
    }

    /// Sets of files of which each reaches each other.
    fn circles(&self) -> Vec<Vec<Module>> {
        let edges = self.edges();
        let reached: BTreeMap<&Module, BTreeSet<&Module>> = edges.keys().map(|from| (*from, reach(&edges, from))).collect();
        let mut circles: Vec<Vec<Module>> = Vec::new();
        for from in edges.keys() {
            let with: Vec<Module> = reached[from].iter().filter(|to| reached[**to].contains(*from)).map(|to| (*to).clone()).collect();
            if with.len() > 1 && !circles.iter().any(|circle| circle.contains(from)) {
                circles.push(with);
            }
        }
        circles
    }

    /// What a circle is told by: the imports within it.
    fn violation(&self, circle: &[Module]) -> Option<Violation> {
        let edges = self.edges();
        let within: Vec<String> = circle
            .iter()
            .flat_map(|from| {
                let targets = edges[from].iter().filter(|(to, _)| circle.contains(to));
                targets.map(move |(to, line)| format!("{}:{line} imports {}", shown(from), shown(to)))
            })
            .collect();
        let first = &self.files[circle.first()?];
        let what = format!("{} files import each other in a circle: {}", circle.len(), within.join(", "));
        Some(Violation::of_file(&first.path, what))
    }
}

/// All files that one reaches.
fn reach<'a>(edges: &'a BTreeMap<&'a Module, BTreeMap<Module, usize>>, from: &Module) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&Module> = edges.get(from).into_iter().flat_map(BTreeMap::keys).collect();
    while let Some(module) = next.pop() {
        if found.insert(module) {
            next.extend(edges.get(module).into_iter().flat_map(BTreeMap::keys));
        }
    }
    found
}

/// A path as it is from the crate's root, where it leads into the crate.
fn absolute(inside: &[String], segments: &[String], of: &Crate) -> Option<Module> {
    match segments.first()?.as_str() {
        "crate" => Some(segments[1..].to_vec()),
        "super" | "self" => {
            let mut module = inside.to_vec();
            let mut rest = segments;
            while let Some((first, others)) = rest.split_first() {
                match first.as_str() {
                    "super" => drop(module.pop()),
                    "self" => {}
                    _ => break,
                }
                rest = others;
            }
            module.extend_from_slice(rest);
            Some(module)
        }
        // A child of the module that it is written in.
        first => {
            let child: Module = inside.iter().cloned().chain([first.to_owned()]).collect();
            of.files.contains_key(&child).then(|| inside.iter().chain(segments).cloned().collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::with_files;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(String, &str)> = files.iter().map(|(path, text)| (format!("crates/a/src/{path}"), *text)).collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        check(&with_files(&files)).iter().map(ToString::to_string).collect()
    }

    const ROOT: (&str, &str) = ("lib.rs", "mod one; mod two; mod three;");

    #[test]
    fn imports_with_an_end_are_fine() {
        let files =
            [ROOT, ("one.rs", "use crate::two::T;"), ("two.rs", "use super::three::U; pub struct T;"), ("three.rs", "pub struct U;")];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn a_circle_of_two_and_one_of_three_are_found_however_they_are_written() {
        let two = [ROOT, ("one.rs", "use crate::two::T; pub struct O;"), ("two.rs", "fn f() { super::one::f() } pub struct T;")];
        let said = found(&two);
        assert_eq!(said, ["crates/a/src/one.rs: 2 files import each other in a circle: one:1 imports two, two:1 imports one"]);
        let three = [
            ROOT,
            ("one.rs", "use crate::{\n    two::{self, T},\n};"),
            ("two.rs", "fn f() { assert!(crate::three::OK) }"),
            ("three.rs", "use super::*;\nuse super::one::O;"),
        ];
        assert!(found(&three)[0].contains("3 files import each other in a circle: one:2 imports two"), "{:?}", found(&three));
    }

    #[test]
    fn a_module_and_its_children_may_know_each_other_and_children_may_not_go_in_circles() {
        let family =
            [("lib.rs", "mod one;"), ("one.rs", "mod a; mod b; use a::A; pub struct O;"), ("one/a.rs", "use super::O; pub struct A;")];
        assert_eq!(found(&[family[0], family[1], family[2], ("one/b.rs", "use super::a::A;")]), [""; 0]);
        let circle = [family[0], family[1], ("one/a.rs", "use super::b::B;"), ("one/b.rs", "use super::a::A;")];
        assert!(found(&circle)[0].contains("one::a:1 imports one::b"), "{:?}", found(&circle));
    }

    #[test]
    fn a_circle_through_a_child_is_one_of_its_module() {
        let files = [
            ("lib.rs", "mod one; mod two;"),
            ("one.rs", "mod a; use a::A;"),
            ("one/a.rs", "use crate::two::T;"),
            ("two.rs", "use crate::one::O;"),
        ];
        assert!(found(&files)[0].contains("3 files import each other"), "{:?}", found(&files));
    }

    #[test]
    fn a_name_that_is_passed_on_counts_as_what_it_stands_for() {
        let root = ("lib.rs", "mod one; mod two; pub use one::O; pub use two::T as Two;");
        let files = [root, ("one.rs", "use crate::Two;"), ("two.rs", "use crate::O;")];
        assert!(found(&files)[0].contains("one:1 imports two, two:1 imports one"), "{:?}", found(&files));
        let defined = [("lib.rs", "mod one; mod two; pub struct O;"), ("one.rs", "use crate::two::T;"), ("two.rs", "use crate::O;")];
        assert_eq!(found(&defined), [""; 0]);
    }

    #[test]
    fn tests_may_import_what_they_like() {
        let inside = "pub struct T;\n#[cfg(test)]\nmod tests {\n    use crate::one::O;\n}";
        assert_eq!(found(&[ROOT, ("one.rs", "use crate::two::T;"), ("two.rs", inside)]), [""; 0]);
        let beside = "#[cfg(test)]\nmod tests;";
        let files = [ROOT, ("one.rs", "use crate::two::T;"), ("two.rs", beside), ("two/tests.rs", "use crate::one::O;")];
        assert_eq!(found(&files), [""; 0]);
    }
}
