//! Whatever comes in place of a token, a key file or a packet, nothing but an answer comes of it.
#![allow(unexpected_cfgs, reason = "a fuzzer sets the cfg `fuzzing`")]

use fanin_trust::token::{PrivateKey, key_of};
use fanin_trust::{CableKeys, FabricKey, KeyFile, LinkKeys, PacketKeys, Protection, Secret, TAG_BYTES, TURNS_BYTES};

/// A number of a sequence without end.
fn mix(seed: u64, at: u64) -> u64 {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^= x >> 29;
    x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 32
}

fn bytes(seed: u64, most: u64) -> Vec<u8> {
    (0..mix(seed, 0) % most).map(|at| mix(seed, at + 1) as u8).collect()
}

/// No token is good that no key of the file has signed.
fn any_token(bytes: &[u8]) {
    let text = format!("[[key]]\nname = \"a\"\npublic = \"{PUBLIC}\"");
    let file = KeyFile::parse(&text).expect("the file is right");
    let text = String::from_utf8_lossy(bytes);
    for token in [text.to_string(), format!("v4.public.{text}")] {
        let _ = key_of(&token);
        assert!(file.verify(&token, 1_796_000_000).is_err());
    }
}

const PUBLIC: &str = "k4.public.HrnbuD8-3OI4EYTzECjfgPVp4p5qLkHOHmPXoDBSgZM";

/// What was read once is read again.
fn any_key_file(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let known = format!("[[key]]\nname = \"a\"\npublic = \"{PUBLIC}\"\n{text}");
    for text in [&*text, &known] {
        if let Ok(file) = KeyFile::parse(text) {
            assert!(file.names().count() > 0);
            let _ = file.quota("red");
        }
    }
}

/// No packet is taken that the other end has not made.
fn any_packet(bytes: &[u8]) {
    for protection in [Protection::Mac, Protection::Seal] {
        let keys = PacketKeys { protection, secret: Secret::new([5; 32]) };
        let mut switch = LinkKeys::of_switch(&keys);
        let mut scratch = Vec::new();
        let number = bytes.iter().fold(0u64, |number, byte| number << 5 ^ u64::from(*byte));
        assert_eq!(switch.opener.open(number, 20, bytes, &mut scratch), None);
        // Nor has it lost anything by that.
        let mut packet = vec![7; 64 + TAG_BYTES];
        LinkKeys::of_rank(&keys).sealer.seal(3, 20, &mut packet);
        assert!(switch.opener.open(3, 20, &packet, &mut scratch).is_some());
        // Nor does a cable hear who has no keys, hello or not, and it hears its neighbour all the same.
        let (mut low, mut high) = (CableKeys::new(keys.clone(), true, 1), CableKeys::new(keys, false, 2));
        assert_eq!(high.open_hello(1, number as u32, bytes, &mut scratch), None);
        let mut hello = vec![7; 40 + TURNS_BYTES + TAG_BYTES];
        low.seal_hello(3, &mut hello);
        assert!(high.open_hello(1, 3, &hello, &mut scratch).is_some());
        high.believe(1);
        assert_eq!(high.open(1, number, 20, bytes, &mut scratch), None);
    }
    let text = String::from_utf8_lossy(bytes);
    assert!(FabricKey::parse("k", &text).is_ok() == (text.trim().len() == 64 && text.trim().bytes().all(|byte| byte.is_ascii_hexdigit())));
}

#[test]
fn nonsense_is_no_token_no_key_file_and_no_packet() {
    for seed in 0..3_000 {
        let bytes = bytes(seed, 300);
        any_packet(&bytes);
        any_key_file(&bytes);
        if seed < 300 {
            any_token(&bytes);
        }
    }
}

#[test]
fn a_key_reads_as_it_was_written() {
    let key = PrivateKey::random().expect("random numbers");
    assert_eq!(PrivateKey::parse(&key.text()).map(|same| same.text()), Ok(key.text()));
}

#[test]
fn tokens_fuzzed() {
    bolero::check!().with_iterations(0).for_each(any_token);
}

#[test]
fn key_files_fuzzed() {
    bolero::check!().with_iterations(0).for_each(any_key_file);
}

#[test]
fn packets_fuzzed() {
    bolero::check!().with_iterations(0).for_each(any_packet);
}
