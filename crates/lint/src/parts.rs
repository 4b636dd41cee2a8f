//! Tests that are one program name each of their files: a file that `tests/main.rs` does not name would never run, and nobody would notice.

use crate::repository::Repository;
use crate::violation::Violation;

/// The root of a crate's tests that are one program.
const ROOT: &str = "/tests/main.rs";

/// The rule.
pub fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (root, text) in repository.rust_files_below("crates/").filter(|(path, _)| path.ends_with(ROOT)) {
        let folder = &root[..root.len() - "main.rs".len()];
        let parts =
            repository.rust_files_below(folder).filter(|(path, _)| *path != root).filter_map(|(path, _)| part(&path[folder.len()..]));
        for part in parts {
            if !text.lines().any(|line| line.trim() == format!("mod {part};")) {
                violations.push(Violation::of_file(root, format!("`mod {part};` is missing: its tests would never run")));
            }
        }
    }
    violations
}

/// The module that a file is the root of; none where it is part of another.
fn part(inside: &str) -> Option<&str> {
    match inside.split_once('/') {
        None => inside.strip_suffix(".rs"),
        Some((folder, "mod.rs")) => Some(folder),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::with_files;

    #[test]
    fn a_file_of_tests_that_no_program_has_is_found() {
        let whole = [
            ("crates/a/tests/main.rs", "mod one;\n#[cfg(feature = \"x\")]\nmod two;\n"),
            ("crates/a/tests/one.rs", ""),
            ("crates/a/tests/two/mod.rs", ""),
            ("crates/a/tests/two/part.rs", ""),
            ("crates/b/tests/alone.rs", ""),
        ];
        assert!(check(&with_files(&whole)).is_empty());
        let with_stray: Vec<_> = whole.into_iter().chain([("crates/a/tests/three.rs", ""), ("crates/a/tests/four/mod.rs", "")]).collect();
        let found: Vec<String> = check(&with_files(&with_stray)).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("crates/a/tests/main.rs: `mod four;` is missing"), "{found:?}");
        assert!(found[1].contains("`mod three;`"), "{found:?}");
    }
}
