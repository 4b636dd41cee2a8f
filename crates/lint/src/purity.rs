//! What must not appear in crates that compute: modules of the standard library with clocks, threads, sockets or files, and hash maps
//! (their order is random). Clippy forbids single types and methods there (`crates/core/clippy.toml`); this rule forbids whole modules,
//! and sees to it that the clippy rules and `#![forbid(unsafe_code)]` are in place.

use crate::repository::{Package, Repository};
use crate::source;
use crate::violation::Violation;

/// Crates without input, output, clocks and randomness of the system.
const PURE: &[&str] = &["core", "wire", "protocols", "sim", "processor", "models"];

/// Crates that may use `unsafe`.
const MAY_BE_UNSAFE: &[&str] = &["fanin-c", "fanin-foreign", "fanin-leftovers", "fanin-nccl", "fanin-net", "fanin-py", "fanin-vectors"];

/// Forbidden prefixes of paths, and why.
const FORBIDDEN: &[(&[&str], &str)] = &[
    (&["std", "time"], "drivers pass the time in"),
    (&["std", "thread"], "threads belong to drivers"),
    (&["std", "net"], "sockets belong to net"),
    (&["std", "os"], "the operating system belongs to net"),
    (&["std", "fs"], "files belong to the program"),
    (&["std", "env"], "settings come from the caller"),
    (&["std", "process"], "processes belong to the program"),
    (&["std", "collections", "HashMap"], "its order differs from run to run"),
    (&["std", "collections", "HashSet"], "its order differs from run to run"),
    (&["std", "collections", "hash_map"], "its order differs from run to run"),
    (&["std", "collections", "hash_set"], "its order differs from run to run"),
    (&["std", "collections", "*"], "it brings hash maps in"),
    (&["std", "*"], "it hides what is imported"),
];

/// Files of pure crates that may have threads: one simulation runs in parts, one a thread, whose results do not depend on how many there are.
const MAY_HAVE_THREADS: &[&str] = &["crates/sim/src/parts/meeting.rs", "crates/sim/src/parts/windows.rs"];

/// The clippy rules of all pure crates.
const RULES: &str = "crates/core/clippy.toml";

/// All rules about purity.
pub fn check(repository: &Repository) -> Vec<Violation> {
    let mut violations = Vec::new();
    for name in PURE {
        check_modules(repository, &format!("crates/{name}/src/"), &mut violations);
        let own = format!("crates/{name}/clippy.toml");
        if repository.files.get(&own) != repository.files.get(RULES) || !repository.files.contains_key(RULES) {
            violations.push(Violation::of_file(own, format!("must be the same as {RULES}: a symbolic link to it")));
        }
    }
    for package in &repository.packages {
        check_unsafe(repository, package, &mut violations);
    }
    violations
}

fn check_modules(repository: &Repository, folder: &str, violations: &mut Vec<Violation>) {
    for (path, text) in repository.rust_files_below(folder) {
        let file = match syn::parse_file(text) {
            Ok(file) => file,
            Err(error) => {
                violations.push(Violation::of_line(path, error.span().start().line, format!("not Rust: {error}")));
                continue;
            }
        };
        let all_tests = path.ends_with("/tests.rs") || path.contains("/tests/");
        let may_thread = MAY_HAVE_THREADS.contains(&path);
        let is_free = |used: &&source::PathUse| used.in_tests || all_tests || may_thread && used.begins_with(&["std", "thread"]);
        for used in source::paths(&file).iter().filter(|used| !is_free(used)) {
            if let Some((prefix, reason)) = FORBIDDEN.iter().find(|(prefix, _)| used.begins_with(prefix)) {
                violations.push(Violation::of_line(path, used.line, format!("{} is not for this crate: {reason}", prefix.join("::"))));
            }
        }
    }
}

fn check_unsafe(repository: &Repository, package: &Package, violations: &mut Vec<Violation>) {
    if MAY_BE_UNSAFE.contains(&package.name.as_str()) {
        return;
    }
    for root in &package.roots {
        let forbids = repository.files.get(root).is_some_and(|text| {
            syn::parse_file(text).is_ok_and(|file| {
                file.attrs.iter().any(|attribute| {
                    attribute.path().is_ident("forbid")
                        && attribute.parse_args::<syn::Path>().is_ok_and(|lint| lint.is_ident("unsafe_code"))
                })
            })
        });
        if !forbids {
            violations.push(Violation::of_file(root, "must begin with #![forbid(unsafe_code)]"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::with_files;

    /// The rules in their places, and one more file.
    fn repository(path: &str, text: &str) -> Repository {
        let rules = "too-many-lines-threshold = 80";
        with_files(&[
            ("crates/core/clippy.toml", rules),
            ("crates/wire/clippy.toml", rules),
            ("crates/protocols/clippy.toml", rules),
            ("crates/sim/clippy.toml", rules),
            ("crates/processor/clippy.toml", rules),
            ("crates/models/clippy.toml", rules),
            (path, text),
        ])
    }

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(&repository(path, text)).into_iter().map(|violation| violation.line.unwrap()).collect()
    }

    #[test]
    fn every_forbidden_module_is_found_in_every_pure_crate() {
        for name in PURE {
            let path = format!("crates/{name}/src/lib.rs");
            for (prefix, _) in FORBIDDEN {
                let text = format!("\nuse {};", prefix.join("::"));
                assert_eq!(lines(&path, &text), [2], "{path}: {text}");
            }
        }
    }

    #[test]
    fn a_path_in_code_counts_as_an_import_does() {
        assert_eq!(lines("crates/sim/src/a.rs", "fn f() {\n    std::thread::spawn(|| ());\n}"), [2]);
        assert_eq!(lines("crates/sim/src/parts/windows.rs", "use std::thread;\nuse std::time::Instant;"), [2]);
        assert_eq!(lines("crates/sim/src/a.rs", "fn f() {\n    println!(\"{:?}\", std::time::Instant::now());\n}"), [2]);
    }

    #[test]
    fn ordinary_modules_test_code_and_other_crates_are_left_alone() {
        assert_eq!(lines("crates/sim/src/a.rs", "use std::collections::BTreeMap;\nuse std::fmt;\nuse crate::time::Instant;"), [0; 0]);
        assert_eq!(lines("crates/sim/src/a.rs", "#[cfg(test)]\nmod tests {\n    use std::thread;\n}"), [0; 0]);
        assert_eq!(lines("crates/sim/src/queue/tests.rs", "use std::thread;"), [0; 0]);
        assert_eq!(lines("crates/net/src/a.rs", "use std::net::UdpSocket;"), [0; 0]);
    }

    #[test]
    fn a_pure_crate_without_the_clippy_rules_is_found() {
        let mut repository = repository("a", "");
        repository.files.insert("crates/sim/clippy.toml".to_owned(), String::new());
        repository.files.remove("crates/wire/clippy.toml");
        let paths: Vec<String> = check(&repository).into_iter().map(|violation| violation.path).collect();
        assert_eq!(paths, ["crates/wire/clippy.toml", "crates/sim/clippy.toml"]);
    }

    #[test]
    fn every_crate_but_net_must_forbid_unsafe_code() {
        let count = |package: &str, text: &str| {
            let mut repository = repository("crates/x/src/lib.rs", text);
            repository.packages =
                vec![Package { name: package.to_owned(), roots: vec!["crates/x/src/lib.rs".to_owned()], ..Package::default() }];
            check(&repository).len()
        };
        assert_eq!(count("fanin-sim", "//! Text.\n#![forbid(unsafe_code)]\n"), 0);
        assert_eq!(count("fanin-sim", "//! Text.\n"), 1);
        assert_eq!(count("fanin-sim", "//! #![forbid(unsafe_code)]\n"), 1);
        assert_eq!(count("fanin-sim", "#![deny(unsafe_code)]\n"), 1);
        assert_eq!(count("fanin-sim", "mod a {\n    #![forbid(unsafe_code)]\n}\n"), 1);
        assert_eq!(count("fanin-net", "//! Text.\n"), 0);
    }
}
