//! What tests of formats have in common.

use fanin_core::{Malformed, NodeId, Rank, Suspect, Wire};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// The same cases in every run.
pub fn seeded(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(0x5eed), failure_persistence: None, ..ProptestConfig::default() }
}

pub fn suspects() -> impl Strategy<Value = Suspect> {
    prop_oneof![
        Just(Suspect::Unknown),
        any::<u32>().prop_map(|rank| Suspect::Rank(Rank(rank))),
        any::<u32>().prop_map(|node| Suspect::Switch(NodeId(node))),
    ]
}

/// A header that is written and read again is the same, its length is what it says, and nothing behind it is touched or read.
pub fn survives<H: Wire + PartialEq>(header: H) {
    let mut out = [0xa5; 64];
    let length = header.emit(&mut out);
    assert_eq!(length, header.wire_len());
    assert!(length <= H::MAX_LEN);
    assert!(out[length..].iter().all(|byte| *byte == 0xa5));
    assert_eq!(H::parse(&out), Ok((header, length)));
    for short in 0..length {
        assert!(matches!(H::parse(&out[..short]), Err(Malformed::Truncated { .. })), "{short} of {length} bytes");
    }
}

/// What can be read as such a header is exactly what would be written for it.
pub fn reads_back<H: Wire + PartialEq>(bytes: &[u8]) {
    if let Ok((header, length)) = H::parse(bytes) {
        let mut out = [0; 64];
        assert_eq!(header.emit(&mut out), length);
        assert_eq!(out[..length], bytes[..length], "{header:?}");
    }
}
