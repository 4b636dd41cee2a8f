//! probe
#![cfg(feature = "kernel")]
#[test]
fn loads() {
    libbpf_rs_print();
    let kernel = fanin_xdp::Kernel::load();
    println!("{:?}", kernel.as_ref().map(|_| ()).map_err(|e| e.to_string()));
    kernel.unwrap();
}
fn libbpf_rs_print() {}
