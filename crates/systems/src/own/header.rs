//! [`header!`](macro@crate::header): the packets of a system from elsewhere, field by field.

#[doc(hidden)]
pub use fanin_core::{Malformed, PacketKind, Wire};

/// An enum of packets, each with its fields, its number on the wire, and which way it goes, for counters and faults
/// ([`PacketKind`]: `Contribution`, `Aggregate` or `Control`). Fields are unsigned integers.
///
/// On the wire: the number, one byte, and the fields in their order, little-endian. What is too short, or has another number, is refused.
///
/// ```
/// fanin_systems::header! {
///     /// What workers and servers send.
///     pub enum Header {
///         /// A worker's part of a block.
///         Part { block: u32, place: u16 } = 1 Contribution,
///         /// The sum.
///         Sum { block: u32 } = 2 Aggregate,
///     }
/// }
///
/// use fanin_core::Wire;
/// let mut bytes = [0; Header::MAX_LEN];
/// let header = Header::Part { block: 7, place: 258 };
/// assert_eq!((header.emit(&mut bytes), bytes), (7, [1, 7, 0, 0, 0, 2, 1]));
/// assert_eq!(Header::parse(&bytes), Ok((header, 7)));
/// assert!(Header::parse(&bytes[..6]).is_err() && Header::parse(&[3; 7]).is_err());
/// ```
#[macro_export]
macro_rules! header {
    ($(#[$meta:meta])* $vis:vis enum $Header:ident {
        $($(#[$doc:meta])* $Packet:ident { $($field:ident: $int:ty),* $(,)? } = $number:literal $kind:ident),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        $vis enum $Header {
            $($(#[$doc])* $Packet {
                $(#[doc = stringify!($field)] $field: $int),*
            }),*
        }

        impl $crate::header::Wire for $Header {
            const MAX_LEN: usize = {
                let mut most = 0;
                $(
                    let length = 1 $(+ size_of::<$int>())*;
                    most = if length > most { length } else { most };
                )*
                most
            };

            fn wire_len(&self) -> usize {
                match self {
                    $(Self::$Packet { .. } => 1 $(+ size_of::<$int>())*),*
                }
            }

            fn parse(bytes: &[u8]) -> Result<(Self, usize), $crate::header::Malformed> {
                let truncated = |needed: usize| $crate::header::Malformed::Truncated { needed, got: bytes.len() };
                let (&number, fields) = bytes.split_first().ok_or_else(|| truncated(1))?;
                match number {
                    $($number => {
                        let needed = 1 $(+ size_of::<$int>())*;
                        $(
                            let (field, fields) = fields.split_first_chunk().ok_or_else(|| truncated(needed))?;
                            let $field = <$int>::from_le_bytes(*field);
                        )*
                        let _ = fields;
                        Ok((Self::$Packet { $($field),* }, needed))
                    })*
                    _ => Err($crate::header::Malformed::Field { name: "kind", value: u64::from(number) }),
                }
            }

            fn emit(&self, out: &mut [u8]) -> usize {
                let mut length = 0;
                let mut put = |bytes: &[u8]| {
                    out[length..length + bytes.len()].copy_from_slice(bytes);
                    length += bytes.len();
                };
                match *self {
                    $(Self::$Packet { $($field),* } => {
                        put(&[$number]);
                        $(put(&$field.to_le_bytes());)*
                    })*
                }
                length
            }

            fn kind(&self) -> $crate::header::PacketKind {
                match self {
                    $(Self::$Packet { .. } => $crate::header::PacketKind::$kind),*
                }
            }
        }
    };
}
