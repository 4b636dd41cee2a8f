//! Where fields are in headers, as data: for programs that show packets to people and know no more of them than this, as Wireshark's
//! dissectors do. The views are what Fanin reads packets with; tests hold the two together. Each system has its layout beside its view, by the
//! name of `LAYOUT`; [`hop`] has those of the hop header and of the packets of links.

pub mod hop;

/// Names of who is suspected.
pub const SUSPECTS: &[(u64, &str)] = &[(0, "unknown"), (1, "rank"), (2, "switch")];

/// How a field's value is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Show {
    /// As a number.
    Decimal,
    /// In base 16.
    Hex,
    /// As a number with a sign.
    Signed,
    /// Bit by bit: ports, ranks, segments.
    Bits,
}

/// One field of a header.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name in the format's table.
    pub name: &'static str,
    /// Offset of its first byte in the header.
    pub at: usize,
    /// Its length in bytes, 1 to 8.
    pub bytes: usize,
    /// Which bits of these it has, counted after the bytes were put in order; all where this is 0.
    pub mask: u64,
    /// The kinds of packets that have it; all where there are none.
    pub kinds: &'static [u8],
    /// How it is shown.
    pub show: Show,
    /// Names of values.
    pub values: &'static [(u64, &'static str)],
}

impl Field {
    /// A number of all kinds.
    pub const fn new(name: &'static str, at: usize, bytes: usize) -> Self {
        Field { name, at, bytes, mask: 0, kinds: &[], show: Show::Decimal, values: &[] }
    }

    /// Of these kinds only.
    #[must_use]
    pub const fn of(self, kinds: &'static [u8]) -> Self {
        Field { kinds, ..self }
    }

    /// Of its bytes these bits only.
    #[must_use]
    pub const fn bits(self, mask: u64) -> Self {
        Field { mask, ..self }
    }

    /// Shown in another way than as a number.
    #[must_use]
    pub const fn shown(self, show: Show) -> Self {
        Field { show, ..self }
    }

    /// With names of values.
    #[must_use]
    pub const fn named(self, values: &'static [(u64, &'static str)]) -> Self {
        Field { values, ..self }
    }

    /// Whether packets of a kind have it.
    pub fn is_of(&self, kind: u8) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }

    /// All bits that it has, of as many bytes.
    pub fn whole_mask(&self) -> u64 {
        if self.mask == 0 { u64::MAX >> (64 - 8 * self.bytes) } else { self.mask }
    }
}

/// A kind of packets.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// What the header says.
    pub number: u8,
    /// Its name.
    pub name: &'static str,
    /// Length of its header in bytes; payload follows.
    pub header_bytes: usize,
}

/// Makes a [`Kind`].
pub const fn kind(number: u8, name: &'static str, header_bytes: usize) -> Kind {
    Kind { number, name, header_bytes }
}

/// A format of packets.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Its short name, as keys of plans have it.
    pub name: &'static str,
    /// What people call it.
    pub title: &'static str,
    /// Whether numbers are in network byte order; else little-endian.
    pub big_endian: bool,
    /// Offset of the byte that says the kind, and which of its bits do.
    pub kind: (usize, u8),
    /// All kinds.
    pub kinds: &'static [Kind],
    /// The field that names a block, fragment or shard's sum, where packets of all kinds have one.
    pub block: Option<&'static str>,
    /// All fields but the kind, by offset.
    pub fields: &'static [Field],
}

impl Layout {
    /// The kind of a packet that begins with these bytes, if it is one of the format's.
    pub fn kind_of(&self, header: &[u8]) -> Option<&Kind> {
        let (at, mask) = self.kind;
        let number = (header.get(at)? & mask) >> mask.trailing_zeros();
        self.kinds.iter().find(|kind| kind.number == number)
    }

    /// The block that a packet is about, if its format names blocks and its kind has that field.
    pub fn block_of(&self, header: &[u8]) -> Option<u64> {
        let (name, kind) = (self.block?, self.kind_of(header)?.number);
        let field = self.fields.iter().find(|field| field.name == name && field.is_of(kind))?;
        self.value(field, header)
    }

    /// A field's value; `None` where the packet is too short.
    pub fn value(&self, field: &Field, header: &[u8]) -> Option<u64> {
        let bytes = header.get(field.at..field.at + field.bytes)?;
        let add = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        let whole = if self.big_endian { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) };
        let mask = field.whole_mask();
        Some((whole & mask) >> mask.trailing_zeros())
    }
}

#[cfg(test)]
pub(crate) mod tests;
