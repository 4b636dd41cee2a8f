//! Links from documents to files of the repository lead somewhere.

use crate::repository::Repository;
use crate::violation::Violation;

/// The rule. Links to other sites are not followed.
pub fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (path, text) in repository.files.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (index, line) in text.lines().enumerate() {
            for target in targets(line).filter(|target| !is_elsewhere(target)) {
                let file = target.split('#').next().unwrap_or(target);
                if !exists(repository, &resolve(path, file)) {
                    violations.push(Violation::of_line(path, index + 1, format!("the link to {target} leads nowhere")));
                }
            }
        }
    }
    violations
}

/// The targets of the inline links of a line: what stands between `](` and `)`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

fn is_elsewhere(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:") || target.starts_with('#')
}

/// `target` as seen from the document at `path`, relative to the root.
fn resolve(path: &str, target: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// There is a file or a folder at `path`.
fn exists(repository: &Repository, path: &str) -> bool {
    let folder = format!("{path}/");
    repository.files.contains_key(path) || repository.files.keys().any(|file| file.starts_with(&folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::with_files;

    fn lines(text: &str) -> Vec<usize> {
        let repository = with_files(&[("docs/a.md", text), ("docs/img/b.svg", ""), ("README.md", "")]);
        check(&repository).into_iter().map(|violation| violation.line.unwrap()).collect()
    }

    #[test]
    fn files_folders_anchors_and_other_sites_are_fine() {
        assert_eq!(lines("![b](img/b.svg) and [r](../README.md#top), [i](img), [h](#here), [x](https://example.org/a.md)"), [0; 0]);
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        assert_eq!(lines("fine\n[b](img/b.svg) [c](img/c.svg)"), [2]);
        assert_eq!(lines("[r](README.md)"), [1]);
    }
}
