//! The header beside the programs is the one that this crate makes.

use std::fs;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dataplanes/xdp/generated.h");

#[test]
fn the_programs_header_is_made_from_the_formats() {
    let made = fanin_xdp::header::header();
    if std::env::var_os("FANIN_WRITE").is_some() {
        fs::write(PATH, &made).unwrap();
    }
    let kept = fs::read_to_string(PATH).unwrap_or_default();
    assert!(made == kept, "{PATH} is stale: FANIN_WRITE=1 cargo test -p fanin-xdp --test header writes it");
}
