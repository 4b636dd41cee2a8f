//! Headers of recursive doubling: any survives a round trip, and whatever bytes can be read lead back to themselves.

mod common;

use common::{reads_back, seeded, survives, suspects};
use fanin_core::Rank;
use fanin_wire::doubling::{DoublingHeader, ListName};
use proptest::prelude::*;

fn doubling_headers() -> impl Strategy<Value = DoublingHeader> {
    let list = || any::<(u32, u32, u8)>().prop_map(|(operation, digest, step)| ListName { operation, digest, step });
    prop_oneof![
        (list(), any::<(u32, u16, bool)>()).prop_map(|(list, (number, count, last))| DoublingHeader::Pairs { list, number, count, last }),
        (list(), any::<u32>()).prop_map(|(list, number)| DoublingHeader::Acknowledgement { list, number }),
        list().prop_map(|list| DoublingHeader::Probe { list }),
        (list(), any::<(u32, u32)>()).prop_map(|(list, (rank, idle))| DoublingHeader::Waiting { list, suspect: Rank(rank), idle }),
        (list(), suspects(), any::<bool>()).prop_map(|(list, suspect, mismatch)| DoublingHeader::Abort { list, suspect, mismatch }),
    ]
}

proptest! {
    #![proptest_config(seeded(2_000))]

    #[test]
    fn headers_survive(header in doubling_headers()) {
        survives(header);
    }

    #[test]
    fn arbitrary_bytes_lead_back(kind in 0u8..8, mut bytes in proptest::collection::vec(any::<u8>(), 1..40)) {
        bytes[0] = kind;
        reads_back::<DoublingHeader>(&bytes);
    }
}
