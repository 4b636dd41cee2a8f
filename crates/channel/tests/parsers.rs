//! Whatever comes in place of a certificate, a fingerprint or an answer of a switch, nothing but an answer comes of it.
#![allow(unexpected_cfgs, reason = "a fuzzer sets the cfg `fuzzing`")]

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use fanin_channel::files::parse_certificates;
use fanin_channel::{ClientTls, Fingerprint, Patience, Trusted, show};

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

/// A real certificate, damaged by the bytes, and the bytes themselves.
fn any_certificate(bytes: &[u8]) {
    const REAL: &[u8] = include_bytes!("certificate.pem");
    for text in [bytes.to_vec(), [b"-----BEGIN CERTIFICATE-----\n", bytes, b"\n-----END CERTIFICATE-----\n"].concat()] {
        for certificate in parse_certificates(&text).unwrap_or_default() {
            let _ = show::certificate(&certificate);
        }
    }
    let real = parse_certificates(REAL).expect("it is one");
    let mut damaged = real[0].to_vec();
    for (at, byte) in bytes.iter().enumerate() {
        let place = (usize::from(*byte) * 257 + at * 31) % damaged.len();
        damaged[place] ^= byte | 1;
    }
    let _ = show::certificate(&damaged.into());
}

/// What is read as a fingerprint is written so that it reads as the same.
fn any_fingerprint(bytes: &[u8]) {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    for text in [String::from_utf8_lossy(bytes).into_owned(), format!("sha256:{digits}")] {
        if let Ok(fingerprint) = text.parse::<Fingerprint>() {
            assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
            assert_eq!(text.parse(), Ok(Trusted::Pinned(fingerprint)));
        }
    }
}

/// Nobody is taken for a switch by these bytes, at the beginning of what it says or behind the head of a record.
fn any_answer(bytes: &[u8]) {
    let client = ClientTls {
        trusted: Trusted::Pinned(format!("sha256:{}", "00".repeat(32)).parse().expect("64 digits")),
        name: None,
        identity: None,
    };
    for head in [&[][..], &[22, 3, 3, 0, bytes.len() as u8]] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let socket = TcpStream::connect(listener.local_addr().expect("it has one")).expect("it listens");
        let (mut other, _) = listener.accept().expect("it has come");
        other.write_all(&[head, bytes].concat()).expect("there is room");
        other.shutdown(std::net::Shutdown::Write).expect("it is open");
        let patience = Patience { until: Instant::now() + Duration::from_secs(20), gives_up: &|| false };
        assert!(client.connect(socket, "agg", &patience).is_err());
    }
}

#[test]
fn nonsense_is_no_certificate_no_fingerprint_and_no_switch() {
    for seed in 0..1_000 {
        let bytes = bytes(seed, 200);
        any_certificate(&bytes);
        any_fingerprint(&bytes);
        any_fingerprint(&bytes[..bytes.len().min(32)]);
        if seed < 200 {
            any_answer(&bytes);
        }
    }
}

#[test]
fn certificates_fuzzed() {
    bolero::check!().with_iterations(0).for_each(any_certificate);
}

#[test]
fn fingerprints_fuzzed() {
    bolero::check!().with_iterations(0).for_each(any_fingerprint);
}

#[test]
fn answers_fuzzed() {
    bolero::check!().with_iterations(0).for_each(any_answer);
}
