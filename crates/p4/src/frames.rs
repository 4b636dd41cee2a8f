//! Ethernet, IPv4 and UDP, as the programs read and write them.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use fanin_core::Malformed;
use serde::{Deserialize, Serialize};

use crate::formats::{Header, field};

/// IEEE 802.3.
pub const ETHERNET: Header = Header {
    name: "ethernet",
    source: "IEEE 802.3",
    fields: &[field("dst", 48, "receiver"), field("src", 48, "sender"), field("kind", 16, "what follows")],
};

/// RFC 791, without options.
pub const IPV4: Header = Header {
    name: "ipv4",
    source: "RFC 791",
    fields: &[
        field("version", 4, "4"),
        field("words", 4, "length of the header in words of 32 bits: 5, for there are no options"),
        field("service", 8, "type of service"),
        field("length", 16, "length in bytes, with this header"),
        field("id", 16, "of fragments"),
        field("reserved", 1, "zero"),
        field("whole", 1, "not to be cut into fragments"),
        field("more", 1, "more fragments follow"),
        field("offset", 13, "of the fragment"),
        field("hops", 8, "time to live"),
        field("protocol", 8, "what follows"),
        field("checksum", 16, "of this header"),
        field("src", 32, "sender"),
        field("dst", 32, "receiver"),
    ],
};

/// RFC 768.
pub const UDP: Header = Header {
    name: "udp",
    source: "RFC 768",
    fields: &[
        field("src", 16, "sender's port"),
        field("dst", 16, "receiver's port"),
        field("length", 16, "length in bytes, with this header"),
        field("checksum", 16, "zero: none"),
    ],
};

/// Ethernet's number for IPv4.
pub const KIND_IPV4: u64 = 0x0800;
/// IPv4's number for UDP.
pub const PROTOCOL_UDP: u64 = 17;
/// The time to live of what switches send.
pub const HOPS: u64 = 64;

/// An address of Ethernet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub u64);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [_, _, a, b, c, d, e, g] = self.0.to_be_bytes();
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes: Option<Vec<u8>> =
            text.split(':').map(|part| if part.len() == 2 { u8::from_str_radix(part, 16).ok() } else { None }).collect();
        match bytes.as_deref() {
            Some([a, b, c, d, e, f]) => Ok(Mac(u64::from_be_bytes([0, 0, *a, *b, *c, *d, *e, *f]))),
            _ => Err(format!("`{text}` is no address of Ethernet, such as 02:00:00:00:00:01")),
        }
    }
}

impl TryFrom<String> for Mac {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> String {
        mac.to_string()
    }
}

/// Where packets of UDP come from or go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Endpoint {
    /// Address of Ethernet.
    pub mac: Mac,
    /// Address of IPv4.
    pub ip: Ipv4Addr,
    /// Port of UDP.
    pub udp: u16,
}

/// What is known of a datagram apart from what it carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram<'a> {
    /// Sender's address.
    pub src: Ipv4Addr,
    /// Receiver's address.
    pub dst: Ipv4Addr,
    /// Receiver's port.
    pub port: u16,
    /// What it carries.
    pub payload: &'a [u8],
}

/// The sum of 16-bit words in ones' complement.
fn ones_complement(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Puts the checksum of the IPv4 header right of a frame that has one.
///
/// # Panics
/// Where the frame is too short.
pub fn seal(frame: &mut [u8]) {
    let ip = &mut frame[ETHERNET.bytes()..][..IPV4.bytes()];
    IPV4.put(ip, "checksum", 0);
    let checksum = !ones_complement(ip);
    IPV4.put(ip, "checksum", checksum.into());
}

/// A frame of Ethernet.
pub fn ethernet(src: Mac, dst: Mac, kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut frame = ETHERNET.with(&[("dst", dst.0), ("src", src.0), ("kind", kind)]);
    frame.extend(payload);
    frame
}

/// A frame with a datagram, as the programs send it: without a UDP checksum.
pub fn datagram(src: &Endpoint, dst: &Endpoint, payload: &[u8]) -> Vec<u8> {
    let udp_bytes = (UDP.bytes() + payload.len()) as u64;
    let ip = IPV4.with(&[
        ("version", 4),
        ("words", 5),
        ("length", IPV4.bytes() as u64 + udp_bytes),
        ("whole", 1),
        ("hops", HOPS),
        ("protocol", PROTOCOL_UDP),
        ("src", u32::from(src.ip).into()),
        ("dst", u32::from(dst.ip).into()),
    ]);
    let udp = UDP.with(&[("src", src.udp.into()), ("dst", dst.udp.into()), ("length", udp_bytes)]);
    let mut frame = ethernet(src.mac, dst.mac, KIND_IPV4, &[&ip, &udp, payload].concat());
    seal(&mut frame);
    frame
}

/// Reads a frame with a datagram that fills it: one header of IPv4 without options, no fragment, lengths and checksum right. Whom the frame
/// itself is for is not looked at, nor is the UDP checksum, as in the programs.
///
/// # Errors
/// The first field that is wrong.
pub fn parse_datagram(frame: &[u8]) -> Result<Datagram<'_>, Malformed> {
    let (ethernet, rest) = ETHERNET.split(frame)?;
    ETHERNET.require(ethernet, "kind", KIND_IPV4)?;
    let (ip, segment) = IPV4.split(rest)?;
    for (name, value) in [("version", 4), ("words", 5), ("more", 0), ("offset", 0), ("protocol", PROTOCOL_UDP)] {
        IPV4.require(ip, name, value)?;
    }
    if ones_complement(ip) != 0xffff {
        return Err(Malformed::Field { name: "checksum", value: IPV4.get(ip, "checksum") });
    }
    IPV4.require(ip, "length", rest.len() as u64)?;
    let (udp, payload) = UDP.split(segment)?;
    UDP.require(udp, "length", segment.len() as u64)?;
    let address = |name| Ipv4Addr::from(IPV4.get(ip, name) as u32);
    Ok(Datagram { src: address("src"), dst: address("dst"), port: UDP.get(udp, "dst") as u16, payload })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends() -> [Endpoint; 2] {
        [1u8, 2].map(|number| Endpoint {
            mac: Mac(0x0200_0000_0000 | u64::from(number)),
            ip: Ipv4Addr::new(10, 0, 0, number),
            udp: 48_864 + u16::from(number),
        })
    }

    #[test]
    fn golden_bytes() {
        let [src, dst] = ends();
        let frame = datagram(&src, &dst, b"fan");
        let expected = [
            &[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..],
            &[0x45, 0, 0, 31, 0, 0, 0x40, 0, 64, 17, 0x26, 0xcc, 10, 0, 0, 1, 10, 0, 0, 2],
            &[0xbe, 0xe1, 0xbe, 0xe2, 0, 11, 0, 0],
            b"fan",
        ];
        assert_eq!(frame, expected.concat());
        assert_eq!(parse_datagram(&frame), Ok(Datagram { src: src.ip, dst: dst.ip, port: dst.udp, payload: b"fan" }));
    }

    #[test]
    fn a_wrong_field_is_named() {
        let [src, dst] = ends();
        let good = datagram(&src, &dst, &[7; 20]);
        let cases = [(12, "kind"), (14, "version"), (16, "length"), (20, "more"), (23, "protocol"), (24, "checksum"), (38, "length")];
        for (at, name) in cases {
            let mut frame = good.clone();
            frame[at] ^= 0x20;
            if name != "checksum" {
                seal(&mut frame);
            }
            let Err(Malformed::Field { name: got, .. }) = parse_datagram(&frame) else { panic!("{name} is taken") };
            assert_eq!(got, name);
        }
        for length in 0..good.len() {
            assert!(parse_datagram(&good[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn addresses_of_ethernet_are_read_as_they_are_written() {
        let mac = Mac(0x0200_5e00_00ff);
        assert_eq!((mac.to_string().as_str(), mac.to_string().parse()), ("02:00:5e:00:00:ff", Ok(mac)));
        for wrong in ["", "02:00", "02:00:5e:00:00:fg", "2:0:5e:0:0:ff", "02:00:5e:00:00:ff:00"] {
            assert!(wrong.parse::<Mac>().is_err(), "{wrong}");
        }
    }
}
