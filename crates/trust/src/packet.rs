//! Packets that only the two ends of a hop can make.
//!
//! Both directions of a hop have a key of their own, from a secret that the switch gives a rank over the control connection. The algorithm is
//! AES-128-GCM (NIST SP 800-38D), or its GMAC alone where payloads stay readable. The nonce is the packet's whole number on the hop, of which the low
//! half travels: the sender uses no number twice, and the receiver takes none twice (`ReplayWindow`). After [`PERIOD_PACKETS`] packets both ends go on
//! with another key without a word, so that no key sees more packets than RFC 8446, 5.5, allows, and no nonce comes again.
//!
//! ```text
//! mac   header | rest                | tag     the tag is over all before it
//! seal  header | rest, encrypted     | tag     the same; header fields stay readable, as whoever passes the packet on needs them
//! ```

use std::fmt;
use std::str::FromStr;

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce};
use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// What a packet gets longer by, in bytes.
pub const TAG_BYTES: usize = 16;

/// A key is used for so many packets.
pub const PERIOD_PACKETS: u64 = 1 << PERIOD_BITS;
const PERIOD_BITS: u32 = 24;

/// What is done for packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// A checksum, which everybody can compute.
    #[default]
    None,
    /// Nobody else can make one, or change a bit of one. Everybody on the way can read them.
    Mac,
    /// Nobody else can read their payload either.
    Seal,
}

impl Protection {
    /// All of them.
    pub const ALL: [Protection; 3] = [Protection::None, Protection::Mac, Protection::Seal];

    /// The name in settings.
    pub const fn name(self) -> &'static str {
        match self {
            Protection::None => "none",
            Protection::Mac => "mac",
            Protection::Seal => "seal",
        }
    }

    /// By what packets get longer, in bytes.
    pub const fn tag_bytes(self) -> usize {
        if matches!(self, Protection::None) { 0 } else { TAG_BYTES }
    }

    /// Whether packets are as they are without keys.
    pub const fn is_none(&self) -> bool {
        matches!(self, Protection::None)
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Protection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Protection::ALL.into_iter().find(|one| one.name() == text).ok_or_else(|| format!("{text:?}: expected none, mac or seal"))
    }
}

/// What a rank is told of its hop to the switch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PacketKeys {
    /// What is done for packets: not [`Protection::None`].
    pub protection: Protection,
    /// This rank's and the switch's alone.
    pub secret: Secret,
}

/// The keys of one end of a hop.
#[derive(Debug)]
pub struct LinkKeys {
    /// For what this end sends.
    pub sealer: Sealer,
    /// For what comes from the other end.
    pub opener: Opener,
}

/// Directions of a hop.
pub(crate) const UP: u64 = 0;
pub(crate) const DOWN: u64 = 1;

impl LinkKeys {
    /// Those of the rank.
    pub fn of_rank(keys: &PacketKeys) -> Self {
        LinkKeys { sealer: Sealer::new(keys, UP), opener: Opener::new(keys, DOWN) }
    }

    /// Those of the switch.
    pub fn of_switch(keys: &PacketKeys) -> Self {
        LinkKeys { sealer: Sealer::new(keys, DOWN), opener: Opener::new(keys, UP) }
    }
}

/// The keys of one direction.
struct Direction {
    secret: Secret,
    number: u64,
    seals: bool,
}

impl Direction {
    fn new(keys: &PacketKeys, number: u64) -> Self {
        Direction { secret: keys.secret.clone(), number, seals: keys.protection == Protection::Seal }
    }

    fn key(&self, period: u64) -> LessSafeKey {
        self.secret.key("packets", &[self.number, period], &AES_128_GCM)
    }
}

#[inline]
fn nonce(sequence: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[NONCE_LEN - 8..].copy_from_slice(&sequence.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Makes packets.
pub struct Sealer {
    of: Direction,
    /// The present key, and its period.
    key: LessSafeKey,
    period: u64,
    /// The number of the packet before.
    last: u64,
}

impl Sealer {
    pub(crate) fn new(keys: &PacketKeys, direction: u64) -> Self {
        let of = Direction::new(keys, direction);
        Sealer { key: of.key(0), of, period: 0, last: 0 }
    }

    /// Completes a packet whose last [`TAG_BYTES`] bytes are free for the tag; the first `header_bytes` stay readable in any case. `low` is the low
    /// half of its number. Numbers never go back, and no two packets with different bytes leave with one number.
    ///
    /// # Panics
    /// Where the packet is shorter than its header and the tag.
    #[inline]
    pub fn seal(&mut self, low: u32, header_bytes: usize, packet: &mut [u8]) {
        self.last = u64::from(self.turns_at(low)) << 32 | u64::from(low);
        let period = self.last >> PERIOD_BITS;
        if period != self.period {
            self.renew(period);
        }
        let (body, place) = packet.split_at_mut(packet.len() - TAG_BYTES);
        let tag = if self.of.seals {
            let (header, rest) = body.split_at_mut(header_bytes);
            self.key.seal_in_place_separate_tag(nonce(self.last), Aad::from(header), rest)
        } else {
            self.key.seal_in_place_separate_tag(nonce(self.last), Aad::from(body), &mut [])
        };
        // No datagram is as long as what the algorithm cannot do.
        place.copy_from_slice(tag.expect("shorter than 64 GiB").as_ref());
    }

    /// The high half of the number whose low half this is. Numbers ascend: one whose low half is smaller is of the next turn.
    #[inline]
    pub(crate) fn turns_at(&self, low: u32) -> u32 {
        ((self.last >> 32) + u64::from(low < self.last as u32)) as u32
    }

    #[cold]
    fn renew(&mut self, period: u64) {
        (self.key, self.period) = (self.of.key(period), period);
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("last", &self.last).finish_non_exhaustive()
    }
}

/// Takes packets.
pub struct Opener {
    of: Direction,
    /// Keys of two neighbouring periods, the even one first, so that packets which are late at the change find theirs.
    keys: [(u64, LessSafeKey); 2],
    /// The period of the last packet that was right.
    period: u64,
}

impl Opener {
    fn new(keys: &PacketKeys, direction: u64) -> Self {
        Opener::at(keys, direction, 0)
    }

    /// One for packets from this number on.
    pub(crate) fn at(keys: &PacketKeys, direction: u64, number: u64) -> Self {
        let (of, period) = (Direction::new(keys, direction), number >> PERIOD_BITS);
        let even = period & !1;
        Opener { keys: [(even, of.key(even)), (even + 1, of.key(even + 1))], of, period }
    }

    /// Takes a packet apart whose whole number is said to be `sequence`; gives it without its tag and readable. `scratch` is where a payload that was
    /// encrypted is put. `None` where somebody else has made it, or a bit of it has changed.
    #[inline]
    pub fn open<'a>(&mut self, sequence: u64, header_bytes: usize, packet: &'a [u8], scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let (body, tag) = packet.split_last_chunk::<TAG_BYTES>()?;
        if body.len() < header_bytes {
            return None;
        }
        let period = sequence >> PERIOD_BITS;
        let place = (period & 1) as usize;
        if self.keys[place].0 != period {
            // Forged numbers cost no keys: only the period after the present one, and the one before, are looked for.
            if period.abs_diff(self.period) > 1 {
                return None;
            }
            self.keys[place] = (period, self.of.key(period));
        }
        let key = &self.keys[place].1;
        let opened = if self.of.seals {
            scratch.clear();
            scratch.extend_from_slice(packet);
            let (header, rest) = scratch.split_at_mut(header_bytes);
            key.open_in_place(nonce(sequence), Aad::from(header), rest).ok()?;
            scratch.truncate(body.len());
            &scratch[..]
        } else {
            let mut tag = *tag;
            key.open_in_place(nonce(sequence), Aad::from(body), &mut tag).ok()?;
            body
        };
        self.period = period;
        Some(opened)
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opener").field("period", &self.period).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: usize = 20;

    fn ends(protection: Protection) -> (LinkKeys, LinkKeys) {
        let keys = PacketKeys { protection, secret: Secret::new([7; 32]) };
        (LinkKeys::of_rank(&keys), LinkKeys::of_switch(&keys))
    }

    fn packet(number: u64, bytes: usize) -> Vec<u8> {
        let mut packet: Vec<u8> = (0..bytes).map(|at| (at as u64 * 31 + number) as u8).collect();
        packet.extend([0; TAG_BYTES]);
        packet
    }

    #[test]
    fn what_one_end_makes_the_other_takes_and_nobody_else() {
        for protection in [Protection::Mac, Protection::Seal] {
            let (mut rank, mut switch) = ends(protection);
            let mut scratch = Vec::new();
            for number in 0..40u64 {
                let plain = packet(number, HEADER + number as usize * 37);
                let mut sealed = plain.clone();
                rank.sealer.seal(number as u32, HEADER, &mut sealed);
                let body = &plain[..plain.len() - TAG_BYTES];
                assert_eq!(sealed[..HEADER], plain[..HEADER]);
                let is_readable = sealed[..body.len()] == *body;
                assert_eq!(is_readable, protection == Protection::Mac || number == 0);
                assert_eq!(switch.opener.open(number, HEADER, &sealed, &mut scratch), Some(body));
                // As another packet, from the other side, and to another one.
                assert_eq!(switch.opener.open(number + 1, HEADER, &sealed, &mut scratch), None);
                assert_eq!(rank.opener.open(number, HEADER, &sealed, &mut scratch), None);
                let other = PacketKeys { protection, secret: Secret::new([8; 32]) };
                assert_eq!(LinkKeys::of_switch(&other).opener.open(number, HEADER, &sealed, &mut scratch), None);
                // Every byte counts, and so does the length.
                for at in 0..sealed.len() {
                    let mut changed = sealed.clone();
                    changed[at] ^= 1 << (at % 8);
                    assert_eq!(switch.opener.open(number, HEADER, &changed, &mut scratch), None, "byte {at}");
                    assert_eq!(switch.opener.open(number, HEADER, &sealed[..at], &mut scratch), None);
                }
            }
        }
    }

    #[test]
    fn keys_are_renewed_without_a_word_and_no_number_comes_again() {
        let (mut rank, mut switch) = ends(Protection::Mac);
        let mut scratch = Vec::new();
        let mut at = |number: u64| {
            let mut sealed = packet(3, 100);
            rank.sealer.seal(number as u32, HEADER, &mut sealed);
            sealed
        };
        // Over several periods and a turn of the half that travels, in steps of half a period.
        let numbers: Vec<u64> = (0..1_030).map(|step| step * (PERIOD_PACKETS / 2)).collect();
        let sealed: Vec<Vec<u8>> = numbers.iter().map(|number| at(*number)).collect();
        assert!(numbers.last().unwrap() >> 32 > 1);
        for (pair, packets) in numbers.windows(2).zip(sealed.windows(2)) {
            // The later one first.
            assert!(switch.opener.open(pair[1], HEADER, &packets[1], &mut scratch).is_some(), "{}", pair[1]);
            assert!(switch.opener.open(pair[0], HEADER, &packets[0], &mut scratch).is_some(), "{}", pair[0]);
        }
        let mut tags: Vec<&[u8]> = sealed.iter().map(|packet| &packet[100..]).collect();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), numbers.len());
        // Far ahead there is no key, and looking for it costs none.
        let far = numbers.last().unwrap() + 5 * PERIOD_PACKETS;
        assert_eq!(switch.opener.open(far, HEADER, &at(far), &mut scratch), None);
    }
}
