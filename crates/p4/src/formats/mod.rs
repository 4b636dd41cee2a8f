//! Packets as papers have them: big-endian, a table of fields for each header. Codecs, the programs' headers and the runner's reports all
//! read the same tables.

pub mod atp;
pub mod canary;
pub mod netreduce;
pub mod rina;
pub mod switchml;

use fanin_core::Malformed;

/// A field of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its name, here and in the programs.
    pub name: &'static str,
    /// Its length in bits, at most 64.
    pub bits: usize,
    /// What it says.
    pub what: &'static str,
}

/// A header: fields one after the other, the first bit of each the most significant one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Its name; in the programs with `_h` behind it.
    pub name: &'static str,
    /// Where it is from.
    pub source: &'static str,
    /// What it consists of.
    pub fields: &'static [Field],
}

impl Header {
    /// Its length in bits.
    pub const fn bits(&self) -> usize {
        let (mut bits, mut number) = (0, 0);
        while number < self.fields.len() {
            bits += self.fields[number].bits;
            number += 1;
        }
        bits
    }

    /// Its length in bytes.
    pub const fn bytes(&self) -> usize {
        self.bits() / 8
    }

    /// Where a field is: its first bit, and how many it has.
    ///
    /// # Panics
    /// Where there is no such field.
    pub fn place(&self, name: &str) -> (usize, usize) {
        let mut first = 0;
        for field in self.fields {
            if field.name == name {
                return (first, field.bits);
            }
            first += field.bits;
        }
        panic!("{} has no field {name}", self.name);
    }

    /// The value of a field of a header that begins at `bytes[0]`.
    ///
    /// # Panics
    /// Where there is no such field, or too few bytes.
    pub fn get(&self, bytes: &[u8], name: &str) -> u64 {
        let (first, bits) = self.place(name);
        (first..first + bits).fold(0, |value, bit| value << 1 | u64::from(bytes[bit / 8] >> (7 - bit % 8) & 1))
    }

    /// Sets a field of a header that begins at `bytes[0]`; of `value` the low bits count.
    ///
    /// # Panics
    /// Where there is no such field, or too few bytes.
    pub fn put(&self, bytes: &mut [u8], name: &str, value: u64) {
        let (first, bits) = self.place(name);
        for number in 0..bits {
            let (bit, mask) = (first + number, 1u8 << (7 - (first + number) % 8));
            let is_set = value >> (bits - 1 - number) & 1 == 1;
            bytes[bit / 8] = if is_set { bytes[bit / 8] | mask } else { bytes[bit / 8] & !mask };
        }
    }

    /// The header's bytes with these fields; the others are zero.
    ///
    /// # Panics
    /// Where there is no such field.
    pub fn with(&self, fields: &[(&str, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes()];
        fields.iter().for_each(|(name, value)| self.put(&mut bytes, name, *value));
        bytes
    }

    /// Splits the header off.
    ///
    /// # Errors
    /// [`Malformed::Truncated`].
    pub fn split<'a>(&self, bytes: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), Malformed> {
        bytes.split_at_checked(self.bytes()).ok_or(Malformed::Truncated { needed: self.bytes(), got: bytes.len() })
    }

    /// That a field has this value.
    ///
    /// # Errors
    /// [`Malformed::Field`] where it has another one.
    pub fn require(&self, bytes: &[u8], name: &'static str, value: u64) -> Result<(), Malformed> {
        let got = self.get(bytes, name);
        if got == value { Ok(()) } else { Err(Malformed::Field { name, value: got }) }
    }
}

/// A field.
pub(crate) const fn field(name: &'static str, bits: usize, what: &'static str) -> Field {
    Field { name, bits, what }
}

/// Elements of the state machines are little-endian, those of the papers' packets big-endian.
pub fn swap_elements(bytes: &[u8]) -> Vec<u8> {
    bytes.as_chunks::<4>().0.iter().flat_map(|[a, b, c, d]| [*d, *c, *b, *a]).collect()
}

/// Elements of 32 bits that a pass of a packet adds (Canary 5.1: "up to 32 4-bytes elements").
pub const PASS_ELEMENTS: usize = 32;
/// Elements of a packet at most (`switchml 2`: 1,024 bytes).
pub const ELEMENTS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header =
        Header { name: "odd", source: "", fields: &[field("a", 3, ""), field("b", 13, ""), field("c", 1, ""), field("d", 7, "")] };

    #[test]
    fn fields_are_where_the_bits_before_them_end() {
        let bytes = HEADER.with(&[("a", 0b101), ("b", 0b1_0000_0000_0001), ("c", 1), ("d", 0x15)]);
        assert_eq!(bytes, [0b1011_0000, 0b0000_0001, 0b1001_0101]);
        let values: Vec<u64> = HEADER.fields.iter().map(|field| HEADER.get(&bytes, field.name)).collect();
        assert_eq!(values, [0b101, 0b1_0000_0000_0001, 1, 0x15]);
        assert_eq!((HEADER.bits(), HEADER.bytes()), (24, 3));
    }

    #[test]
    fn a_field_is_set_and_no_other() {
        for field in HEADER.fields {
            for before in [0x00, 0xff] {
                let mut bytes = [before; 3];
                HEADER.put(&mut bytes, field.name, 0b1010_1010_1010_1010);
                assert_eq!(HEADER.get(&bytes, field.name), 0b1010_1010_1010_1010 & ((1 << field.bits) - 1));
                for other in HEADER.fields.iter().filter(|other| other.name != field.name) {
                    assert_eq!(HEADER.get(&bytes, other.name), if before == 0 { 0 } else { (1 << other.bits) - 1 }, "{}", other.name);
                }
            }
        }
    }

    #[test]
    fn swapping_twice_changes_nothing() {
        let bytes: Vec<u8> = (0..64).collect();
        assert_eq!(swap_elements(&bytes)[..4], [3, 2, 1, 0]);
        assert_eq!(swap_elements(&swap_elements(&bytes)), bytes);
    }
}
