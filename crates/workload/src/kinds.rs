//! The words of workloads: kinds of collectives and types of elements.

use std::fmt;

use serde::Deserialize;

/// What the members of a group do together. Shares of a vector are whole elements, of which the first members have one more where they do not
/// divide.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CollectiveKind {
    /// All end with the sum of all vectors. Bytes: of the vector.
    #[default]
    AllReduce,
    /// Each ends with its share of the sum. Bytes: of the vector that each brings; a member's share is one part in as many as there are
    /// members.
    ReduceScatter,
    /// All end with the shares of all. Bytes: of the vector that each ends with.
    AllGather,
    /// Each sends a share of its vector to each member. Bytes: of the vector that each brings, with the share that stays.
    AllToAll,
    /// All end with the root's vector. Bytes: of the vector.
    Broadcast,
    /// The root ends with the sum. Bytes: of the vector.
    Reduce,
    /// Nobody goes on before all are there. No bytes.
    Barrier,
}

impl CollectiveKind {
    /// All of them, in the order of tables.
    pub const ALL: [CollectiveKind; 7] = [
        CollectiveKind::AllReduce,
        CollectiveKind::ReduceScatter,
        CollectiveKind::AllGather,
        CollectiveKind::AllToAll,
        CollectiveKind::Broadcast,
        CollectiveKind::Reduce,
        CollectiveKind::Barrier,
    ];

    /// As it is written in files.
    pub fn name(self) -> &'static str {
        match self {
            CollectiveKind::AllReduce => "all-reduce",
            CollectiveKind::ReduceScatter => "reduce-scatter",
            CollectiveKind::AllGather => "all-gather",
            CollectiveKind::AllToAll => "all-to-all",
            CollectiveKind::Broadcast => "broadcast",
            CollectiveKind::Reduce => "reduce",
            CollectiveKind::Barrier => "barrier",
        }
    }

    /// The kind of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether one member has another part than the others.
    pub fn has_root(self) -> bool {
        matches!(self, CollectiveKind::Broadcast | CollectiveKind::Reduce)
    }
}

impl fmt::Display for CollectiveKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! elements {
    ($($(#[$about:meta])* $variant:ident, $name:literal, $bytes:literal;)*) => {
        /// The type of a vector's elements.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Element { $($(#[$about])* $variant),* }

        impl Element {
            /// All of them.
            pub const ALL: &[Element] = &[$(Element::$variant),*];

            /// As it is written in files.
            pub fn name(self) -> &'static str {
                match self { $(Element::$variant => $name),* }
            }

            /// Bytes of an element.
            pub fn bytes(self) -> u64 {
                match self { $(Element::$variant => $bytes),* }
            }
        }
    };
}

elements! {
    /// IEEE 754 binary64.
    F64, "f64", 8;
    /// IEEE 754 binary32.
    F32, "f32", 4;
    /// The upper half of a binary32 (bfloat16).
    Bf16, "bf16", 2;
    /// IEEE 754 binary16.
    F16, "f16", 2;
    /// 8-bit float with 4 bits of exponent.
    F8E4M3, "f8e4m3", 1;
    /// 8-bit float with 5 bits of exponent.
    F8E5M2, "f8e5m2", 1;
    /// Signed 64-bit integer.
    I64, "i64", 8;
    /// Unsigned 64-bit integer.
    U64, "u64", 8;
    /// Signed 32-bit integer.
    I32, "i32", 4;
    /// Unsigned 32-bit integer.
    U32, "u32", 4;
    /// Signed 16-bit integer.
    I16, "i16", 2;
    /// Signed 8-bit integer.
    I8, "i8", 1;
    /// Unsigned 8-bit integer, and what is only bytes.
    U8, "u8", 1;
}

impl Element {
    /// The type of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|element| element.name() == name)
    }

    /// The names of all, for errors.
    pub fn names() -> String {
        Self::ALL.iter().map(|element| element.name()).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for kind in CollectiveKind::ALL {
            assert_eq!(CollectiveKind::of_name(kind.name()), Some(kind));
            // As plans read it.
            assert_eq!(serde_json::from_value::<CollectiveKind>(kind.name().into()).ok(), Some(kind));
        }
        for element in Element::ALL {
            assert_eq!(Element::of_name(element.name()), Some(*element));
        }
        assert_eq!((CollectiveKind::of_name("allreduce"), Element::of_name("float")), (None, None));
    }
}
