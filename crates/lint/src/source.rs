//! The paths that a Rust file names: in `use` items, in code, and in the arguments of macros.

use proc_macro2::{Spacing, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, File, ItemMod, ItemUse, Macro, Meta, Path, UseTree};

/// A path as it is written in a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathUse {
    /// Its segments; a glob ends with `*`.
    pub segments: Vec<String>,
    /// The line, from 1.
    pub line: usize,
    /// The modules inside the file that it is written in.
    pub modules: Vec<String>,
    /// It is below a `#[cfg(test)]` module.
    pub in_tests: bool,
}

impl PathUse {
    /// The path begins with these segments.
    pub fn begins_with(&self, prefix: &[&str]) -> bool {
        self.segments.len() >= prefix.len() && self.segments.iter().zip(prefix).all(|(segment, wanted)| segment == wanted)
    }
}

/// Every path in `file`.
pub fn paths(file: &File) -> Vec<PathUse> {
    let mut collector = Collector::default();
    collector.visit_file(file);
    collector.found
}

/// Whether `attributes` contain `#[cfg(test)]`, alone or in an `all(..)`.
pub fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition == "test" || (condition.starts_with("all") && condition.contains("test") && !condition.contains("not"))
        }
        _ => false,
    })
}

#[derive(Default)]
struct Collector {
    found: Vec<PathUse>,
    modules: Vec<String>,
    test_depth: usize,
}

impl Collector {
    fn add(&mut self, segments: Vec<String>, line: usize) {
        if !segments.is_empty() {
            self.found.push(PathUse { segments, line, modules: self.modules.clone(), in_tests: self.test_depth > 0 });
        }
    }

    fn add_use(&mut self, tree: &UseTree, prefix: &[String]) {
        let with = |name: &str| prefix.iter().cloned().chain([name.to_owned()]).collect::<Vec<_>>();
        let line = tree.span().start().line;
        match tree {
            UseTree::Path(path) => self.add_use(&path.tree, &with(&path.ident.to_string())),
            UseTree::Name(name) if name.ident == "self" => self.add(prefix.to_vec(), line),
            UseTree::Name(name) => self.add(with(&name.ident.to_string()), line),
            UseTree::Rename(rename) => self.add(with(&rename.ident.to_string()), line),
            UseTree::Glob(_) => self.add(with("*"), line),
            UseTree::Group(group) => group.items.iter().for_each(|item| self.add_use(item, prefix)),
        }
    }

    /// Macro arguments have no syntax of their own: a path is whatever looks like one.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut segments: Vec<String> = Vec::new();
        let mut line = 0;
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.add(std::mem::take(&mut segments), line);
                        line = ident.span().start().line;
                    }
                    segments.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && (colons == 1 || punct.spacing() == Spacing::Joint) => colons += 1,
                other => {
                    self.add(std::mem::take(&mut segments), line);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.add(segments, line);
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        let test_only = is_test_only(&module.attrs);
        self.modules.push(module.ident.to_string());
        self.test_depth += usize::from(test_only);
        visit::visit_item_mod(self, module);
        self.test_depth -= usize::from(test_only);
        self.modules.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add_use(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast Path) {
        self.add(path.segments.iter().map(|segment| segment.ident.to_string()).collect(), path.span().start().line);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'ast Macro) {
        visit::visit_macro(self, invocation);
        self.add_tokens(invocation.tokens.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        paths(&syn::parse_file(text).unwrap()).into_iter().map(|path| path.segments.join("::")).collect()
    }

    #[test]
    fn groups_globs_renames_and_self_are_taken_apart() {
        let names = found("use std::{fmt::{self, Debug}, time as clock, net::*};");
        assert_eq!(names, ["std::fmt", "std::fmt::Debug", "std::time", "std::net::*"]);
    }

    #[test]
    fn types_generics_expressions_and_macro_arguments_are_seen() {
        let text = "fn f(a: Vec<std::a::A>) -> b::B { c::d::<e::E>(); assert_eq!(g::h(i::J { k: l::m! [n::o] }), 1) }";
        let names = found(text);
        for name in ["std::a::A", "b::B", "c::d", "e::E", "g::h", "i::J", "l::m", "n::o"] {
            assert!(names.iter().any(|found| found == name), "{name} is not in {names:?}");
        }
    }

    #[test]
    fn lines_modules_and_test_code_are_told() {
        let text = "mod inner {\n    use a::b;\n}\n#[cfg(test)]\nmod tests {\n    use super::c;\n}\n";
        let all = paths(&syn::parse_file(text).unwrap());
        let at = |name: &str| all.iter().find(|path| path.segments.join("::") == name).unwrap();
        assert_eq!((at("a::b").line, at("a::b").in_tests), (2, false));
        assert_eq!(at("a::b").modules, ["inner"]);
        assert_eq!((at("super::c").line, at("super::c").in_tests), (6, true));
    }

    #[test]
    fn only_conditions_on_test_count_as_test_code() {
        let attributes = |text: &str| syn::parse_str::<ItemMod>(&format!("{text} mod m {{}}")).unwrap().attrs;
        assert!(is_test_only(&attributes("#[cfg(test)]")));
        assert!(is_test_only(&attributes("#[cfg(all(test, unix))]")));
        assert!(!is_test_only(&attributes("#[cfg(not(test))]")));
        assert!(!is_test_only(&attributes("#[cfg(unix)]")));
    }
}
