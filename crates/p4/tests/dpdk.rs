//! The programs for DPDK's pipeline are what their templates and the formats make.

use std::fs;
use std::path::Path;

use fanin_p4::dpdk;

#[test]
fn programs_are_made_from_their_templates() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dataplanes/dpdk");
    for program in dpdk::PROGRAMS {
        let template = fs::read_to_string(folder.join(format!("{program}.spec.in"))).unwrap();
        let made = dpdk::expand(&template, &dpdk::numbers(program).unwrap()).unwrap();
        let path = folder.join(format!("{program}.spec"));
        if std::env::var_os("FANIN_WRITE").is_some() {
            fs::write(&path, &made).unwrap();
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(made == kept, "{} is stale: FANIN_WRITE=1 cargo test -p fanin-p4 --test dpdk writes it", path.display());
    }
}
