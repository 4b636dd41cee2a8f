//! No system imports another one: what two of them need moves to `shared`, and `shared` knows none of them.

use std::collections::BTreeSet;

use crate::repository::Repository;
use crate::source::{self, PathUse};
use crate::violation::Violation;

/// The folder of all systems.
pub const SYSTEMS: &str = "crates/protocols/src/";

const SHARED: &str = "shared";

/// The names of the systems: the modules beside `shared`.
pub fn systems(repository: &Repository) -> BTreeSet<String> {
    repository.rust_files_below(SYSTEMS).map(|(path, _)| owner(path)).filter(|name| name != SHARED && name != "lib").collect()
}

/// The top-level module that a file below [`SYSTEMS`] belongs to.
fn owner(path: &str) -> String {
    let inside = &path[SYSTEMS.len()..];
    inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs").to_owned()
}

/// The rule.
pub fn check(repository: &Repository) -> Vec<Violation> {
    let systems = systems(repository);
    let mut violations = Vec::new();
    for (path, text) in repository.rust_files_below(SYSTEMS) {
        let owner = owner(path);
        if owner == "lib" {
            continue;
        }
        let file = match syn::parse_file(text) {
            Ok(file) => file,
            Err(error) => {
                violations.push(Violation::of_line(path, error.span().start().line, format!("not Rust: {error}")));
                continue;
            }
        };
        let home = module_of(path);
        for used in source::paths(&file) {
            let Some(absolute) = resolve(&home, &used) else { continue };
            match absolute.first().map(String::as_str) {
                Some("*") => violations.push(Violation::of_line(path, used.line, "imports every system at once")),
                Some(target) if target != owner && systems.contains(target) => {
                    violations.push(Violation::of_line(
                        path,
                        used.line,
                        format!("{owner} imports {target}: what two systems need belongs in {SHARED}, which imports none"),
                    ));
                }
                _ => {}
            }
        }
    }
    violations
}

/// The module that the file at `path` is, from the crate's root.
fn module_of(path: &str) -> Vec<String> {
    let inside = path[SYSTEMS.len()..].trim_end_matches(".rs");
    let inside = inside.strip_suffix("/mod").unwrap_or(inside);
    inside.split('/').map(str::to_owned).collect()
}

/// The path from the crate's root, if it is known to lead there.
fn resolve(home: &[String], used: &PathUse) -> Option<Vec<String>> {
    let segments = &used.segments;
    match segments[0].as_str() {
        "crate" | "fanin_protocols" => Some(segments[1..].to_vec()),
        "super" | "self" => {
            let mut module: Vec<String> = home.iter().chain(&used.modules).cloned().collect();
            let mut rest = &segments[..];
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
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::with_files;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let repository = with_files(&[
            ("crates/protocols/src/lib.rs", "pub mod ring; pub mod tree; mod shared; pub use crate::tree::A;"),
            ("crates/protocols/src/tree/mod.rs", ""),
            ("crates/protocols/src/ring/mod.rs", ""),
            ("crates/protocols/src/shared/mod.rs", ""),
            (path, text),
        ]);
        let violations = check(&repository);
        assert!(violations.iter().all(|violation| violation.path == path), "{violations:?}");
        violations.into_iter().map(|violation| violation.line.unwrap()).collect()
    }

    const SWITCH: &str = "crates/protocols/src/tree/switch.rs";

    #[test]
    fn systems_are_the_modules_beside_shared() {
        let repository = with_files(&[
            ("crates/protocols/src/lib.rs", ""),
            ("crates/protocols/src/tree/mod.rs", ""),
            ("crates/protocols/src/ps.rs", ""),
            ("crates/protocols/src/shared/slots.rs", ""),
        ]);
        assert_eq!(systems(&repository).into_iter().collect::<Vec<_>>(), ["ps", "tree"]);
    }

    #[test]
    fn own_modules_shared_ones_and_other_crates_are_fine() {
        assert_eq!(lines(SWITCH, "use crate::shared::S;\nuse crate::tree::worker;\nuse super::worker::W;\nuse fanin_core::Node;"), [0; 0]);
    }

    #[test]
    fn another_system_is_refused_however_it_is_named() {
        assert_eq!(lines(SWITCH, "use crate::ring::R;"), [1]);
        assert_eq!(lines(SWITCH, "use crate::{\n    shared::S,\n    ring::R,\n};"), [3]);
        assert_eq!(lines(SWITCH, "use super::super::ring;"), [1]);
        assert_eq!(lines(SWITCH, "use fanin_protocols::ring::R;"), [1]);
        assert_eq!(lines(SWITCH, "fn f() {\n    let _ = crate::ring::R::new();\n}"), [2]);
        assert_eq!(lines(SWITCH, "fn f() {\n    assert!(crate::ring::OK);\n}"), [2]);
        assert_eq!(lines(SWITCH, "mod inner {\n    use super::super::super::ring::R;\n}"), [2]);
        assert_eq!(lines(SWITCH, "use crate::*;"), [1]);
    }

    #[test]
    fn shared_knows_no_system() {
        assert_eq!(lines("crates/protocols/src/shared/slots.rs", "use crate::tree::T;"), [1]);
    }

    #[test]
    fn a_file_that_does_not_parse_is_told_and_not_passed_over() {
        assert_eq!(lines(SWITCH, "fn f() {\n    let = ;\n}"), [2]);
    }
}
