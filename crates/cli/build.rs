//! The program carries the examples in it: it is built anew when one of them changes.

fn main() {
    println!("cargo::rerun-if-changed=../../examples");
}
