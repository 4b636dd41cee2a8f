//! Rules about text: how long a file may be, and what must not be written anywhere.

use crate::repository::Repository;
use crate::violation::Violation;

/// The longest file of code, in lines. One that grows past it tells more than one story.
const LINES_MAX: usize = 800;

/// Which files are code.
const CODE: &[&str] = &[".rs", ".py", ".pyi", ".c", ".cc", ".cpp", ".h", ".sh", ".p4"];

/// What belongs to somebody's machine and not into the repository: absolute paths and package registries' hosts. Spelled in halves,
/// because this file is searched like any other.
const FORBIDDEN: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/tm", "p/t-"),
    concat!("/tm", "p/bash_jobs"),
    concat!("static.crates", ".io"),
    concat!("index.crates", ".io"),
    concat!("pypi", ".org"),
    concat!("files.python", "hosted.org"),
    concat!("registry.npmjs", ".org"),
    concat!("proxy.golang", ".org"),
    concat!("repo1.maven", ".org"),
    concat!("deb.debian", ".org"),
];

/// All rules about text.
pub fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in &repository.files {
        let lines = text.lines().count();
        if lines > LINES_MAX && CODE.iter().any(|ending| path.ends_with(ending)) {
            violations.push(Violation::of_file(path, format!("has {lines} lines; at most {LINES_MAX} are allowed")));
        }
        for (index, line) in text.lines().enumerate() {
            if let Some(word) = FORBIDDEN.iter().find(|word| line.contains(**word)) {
                violations.push(Violation::of_line(path, index + 1, format!("{word} does not belong into the repository")));
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::with_files;

    #[test]
    fn code_may_have_800_lines_and_no_more() {
        let exact = "a\n".repeat(800);
        let more = "a\n".repeat(801);
        assert_eq!(check(&with_files(&[("a.rs", &exact)])), []);
        assert_eq!(check(&with_files(&[("data.csv", &more)])), []);
        assert_eq!(check(&with_files(&[("a.rs", &more)])), [Violation::of_file("a.rs", "has 801 lines; at most 800 are allowed")]);
    }

    #[test]
    fn every_forbidden_word_is_found_with_its_line() {
        for word in FORBIDDEN {
            let text = format!("one\nsee {word}main\n");
            let found = check(&with_files(&[("docs/a.md", &text)]));
            assert_eq!(found, [Violation::of_line("docs/a.md", 2, format!("{word} does not belong into the repository"))]);
        }
    }
}
