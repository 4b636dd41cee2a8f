//! The named items of a source file, so that a row can be held against them.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{
    Attribute, Fields, ImplItem, ItemConst, ItemEnum, ItemFn, ItemImpl, ItemMacro, ItemMod, ItemStatic, ItemStruct, ItemTrait, ItemType,
};
use syn::{TraitItem, Type};

use crate::source::is_test_only;

/// Macros that declare tests, by the names of functions: proptest's, and that of the tests of protocols.
const DECLARE_TESTS: &[&str] = &["proptest", "right_whatever_happens"];

/// Something in a file that a row can name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// Modules in the file, type and name, such as `["tests", "sums"]` or `["TreeSwitch", "on_packet"]`.
    path: Vec<String>,
    /// It is a test function.
    pub test: bool,
    /// It is a function.
    function: bool,
}

impl Item {
    /// Whether `name` names it: the last segments of its path, separated by `::`.
    pub fn is_named(&self, name: &str) -> bool {
        let wanted: Vec<&str> = name.split("::").collect();
        self.path.len() >= wanted.len() && self.path[self.path.len() - wanted.len()..].iter().zip(wanted).all(|(a, b)| a == b)
    }

    /// It is a function named `on_..` that is not below a module of tests.
    pub fn is_handler(&self) -> bool {
        self.function && self.path.last().is_some_and(|name| name.starts_with("on_"))
    }

    /// Its path, written out.
    pub fn name(&self) -> String {
        self.path.join("::")
    }
}

/// The items of a file, by the language that its name tells.
pub fn of_file(path: &str, text: &str) -> Result<Vec<Item>, String> {
    if path.ends_with(".rs") {
        let file = syn::parse_file(text).map_err(|error| format!("not Rust: line {}: {error}", error.span().start().line))?;
        let mut collector = Collector::default();
        collector.visit_file(&file);
        Ok(collector.found)
    } else if path.ends_with(".py") {
        Ok(of_python(text))
    } else {
        Err("only .rs and .py files have items that can be checked".to_owned())
    }
}

/// Functions and classes of a Python file; what is indented below a class belongs to it.
fn of_python(text: &str) -> Vec<Item> {
    let mut class: Option<String> = None;
    let mut found = Vec::new();
    for line in text.lines() {
        let code = line.trim_start();
        let indented = code.len() < line.len();
        let named = |keyword: &str| {
            let rest = code.strip_prefix(keyword)?;
            Some(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>())
        };
        if let Some(name) = named("def ").or_else(|| named("async def ")) {
            let path = class.iter().filter(|_| indented).cloned().chain([name.clone()]).collect();
            found.push(Item { path, test: name.starts_with("test"), function: true });
        } else if let Some(name) = named("class ").filter(|_| !indented) {
            found.push(Item { path: vec![name.clone()], test: false, function: false });
            class = Some(name);
        }
    }
    found
}

#[derive(Default)]
struct Collector {
    found: Vec<Item>,
    modules: Vec<String>,
    /// How many modules of tests the visit is inside of.
    test_depth: usize,
}

impl Collector {
    fn add(&mut self, names: &[&str]) {
        self.push(names, false, false);
    }

    /// A function; below a module of tests one that is no test either is a helper of tests, and neither code nor test.
    fn add_function(&mut self, names: &[&str], attributes: &[Attribute]) {
        let test = attributes.iter().any(|attribute| attribute.path().segments.last().is_some_and(|last| last.ident == "test"));
        if test || self.test_depth == 0 {
            self.push(names, test, true);
        }
    }

    fn push(&mut self, names: &[&str], test: bool, function: bool) {
        let path = self.modules.iter().cloned().chain(names.iter().map(|name| (*name).to_owned())).collect();
        self.found.push(Item { path, test, function });
    }

    /// The functions that a block of one of [`DECLARE_TESTS`] declares.
    fn add_property_tests(&mut self, tokens: TokenStream) {
        let mut after_fn = false;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if after_fn {
                        self.push(&[&ident.to_string()], true, true);
                    }
                    after_fn = ident == "fn";
                }
                _ => after_fn = false,
            }
        }
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

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.add_function(&[&item.sig.ident.to_string()], &item.attrs);
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        let name = item.ident.to_string();
        self.add(&[&name]);
        if let Fields::Named(fields) = &item.fields {
            for field in fields.named.iter().filter_map(|field| field.ident.as_ref()) {
                self.add(&[&name, &field.to_string()]);
            }
        }
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        let name = item.ident.to_string();
        self.add(&[&name]);
        for variant in &item.variants {
            self.add(&[&name, &variant.ident.to_string()]);
        }
    }

    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        self.add(&[&item.ident.to_string()]);
    }

    fn visit_item_static(&mut self, item: &'ast ItemStatic) {
        self.add(&[&item.ident.to_string()]);
    }

    fn visit_item_type(&mut self, item: &'ast ItemType) {
        self.add(&[&item.ident.to_string()]);
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        let name = item.ident.to_string();
        self.add(&[&name]);
        for part in &item.items {
            match part {
                TraitItem::Fn(function) => self.add_function(&[&name, &function.sig.ident.to_string()], &function.attrs),
                TraitItem::Const(constant) => self.add(&[&name, &constant.ident.to_string()]),
                _ => {}
            }
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let Type::Path(self_type) = item.self_ty.as_ref() else { return };
        let Some(last) = self_type.path.segments.last() else { return };
        let name = last.ident.to_string();
        for part in &item.items {
            match part {
                ImplItem::Fn(function) => self.add_function(&[&name, &function.sig.ident.to_string()], &function.attrs),
                ImplItem::Const(constant) => self.add(&[&name, &constant.ident.to_string()]),
                _ => {}
            }
        }
    }

    fn visit_item_macro(&mut self, item: &'ast ItemMacro) {
        if let Some(name) = &item.ident {
            self.add(&[&name.to_string()]);
        } else if item.mac.path.segments.last().is_some_and(|last| DECLARE_TESTS.iter().any(|name| last.ident == name)) {
            self.add_property_tests(item.mac.tokens.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUST: &str = r#"
        //! fn only_in_a_comment() {}
        pub struct Slot { pub acc: u8 }
        pub enum State { Idle, Busy { since: u8 } }
        pub const LIMIT: usize = 1;
        pub trait Node { fn on_packet(&mut self); }
        impl<P: Payload> Node for Slot<P> { fn on_packet(&mut self) { fn inner() {} let on_x = 1; } }
        fn run() { let text = "fn in_a_string() {}"; }
        #[cfg(test)]
        mod tests {
            fn helper() {}
            #[test]
            fn sums() {}
            proptest! {
                #![proptest_config(config())]
                #[test]
                fn any_order(a in 0..5u8) { f(|x| x); }
            }
            right_whatever_happens!(plans(), 5 cases: fn whatever, fn happens);
        }
    "#;

    fn named(name: &str) -> Option<bool> {
        of_file("a.rs", RUST).unwrap().into_iter().find(|item| item.is_named(name)).map(|item| item.test)
    }

    #[test]
    fn items_of_all_kinds_are_found_by_the_end_of_their_path() {
        for name in ["Slot", "Slot::acc", "State::Busy", "LIMIT", "Node", "Node::on_packet", "Slot::on_packet", "on_packet", "run"] {
            assert_eq!(named(name), Some(false), "{name}");
        }
        for name in ["sums", "tests::sums", "any_order", "whatever", "happens"] {
            assert_eq!(named(name), Some(true), "{name}");
        }
    }

    #[test]
    fn text_locals_helpers_of_tests_and_parts_of_names_are_no_items() {
        for name in ["only_in_a_comment", "in_a_string", "helper", "on_x", "packet", "Busy::State", "lot", "other::run"] {
            assert_eq!(named(name), None, "{name}");
        }
    }

    #[test]
    fn handlers_are_functions_called_on_something() {
        let handlers: Vec<String> = of_file("a.rs", RUST).unwrap().into_iter().filter(Item::is_handler).map(|item| item.name()).collect();
        assert_eq!(handlers, ["Node::on_packet", "Slot::on_packet"]);
    }

    #[test]
    fn python_functions_classes_and_tests_are_found() {
        let text = "class Worker:\n    def submit(self):\n        pass\n\ndef run():\n    # def hidden():\n    pass\n\ndef test_run():\n    pass\n";
        let items = of_file("a.py", text).unwrap();
        let names: Vec<(String, bool)> = items.into_iter().map(|item| (item.name(), item.test)).collect();
        let expected = [("Worker", false), ("Worker::submit", false), ("run", false), ("test_run", true)];
        assert_eq!(names, expected.map(|(name, test)| (name.to_owned(), test)));
    }

    #[test]
    fn other_files_and_broken_ones_are_refused() {
        assert!(of_file("a.toml", "").is_err());
        assert!(of_file("a.rs", "fn (").unwrap_err().starts_with("not Rust: line 1"));
    }
}
