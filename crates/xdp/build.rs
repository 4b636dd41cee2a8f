//! Compiles the programs for the kernel, where the feature `kernel` asks for them.

use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCES: &str = "../../dataplanes/xdp";
const NEEDED: &str = "the feature `kernel` (`xdp` of the program) compiles programs for the kernel with clang, and needs libbpf's headers. On Debian and \
     Ubuntu: apt install clang libbpf-dev libelf-dev zlib1g-dev pkg-config. CLANG names another compiler";

fn main() {
    println!("cargo::rerun-if-changed={SOURCES}");
    println!("cargo::rerun-if-env-changed=CLANG");
    if std::env::var_os("CARGO_FEATURE_KERNEL").is_none() {
        return;
    }
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    compile("switch", &folder.join("switch.bpf.o"));
}

fn compile(program: &str, object: &Path) {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the architecture");
    // Where Debian keeps asm/types.h.
    let headers = format!("-I/usr/include/{arch}-linux-gnu");
    let source = format!("{SOURCES}/{program}.bpf.c");
    let arguments = ["-O2", "-g", "-Wall", "-Werror", "-target", "bpf", "-mcpu=v3", &headers, "-c", &source, "-o"];
    match Command::new(&clang).args(arguments).arg(object).status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{clang} cannot compile {source} ({status}): {NEEDED}"),
        Err(error) => panic!("cannot run {clang}: {error}: {NEEDED}"),
    }
}
