//! Element types, operators, and which go together.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$variant_doc:meta])* $variant:ident = $number:literal, $text:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name { $($(#[$variant_doc])* $variant = $number,)* }

        impl $name {
            /// All of them, by number.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// Its name in plans, commands and messages.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// Its number on the wire.
            pub const fn number(self) -> u8 {
                self as u8
            }

            /// The one with this number on the wire.
            pub const fn from_number(number: u8) -> Option<$name> {
                match number { $($number => Some($name::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $name {
            type Err = UnknownName;

            fn from_str(text: &str) -> Result<Self, UnknownName> {
                Self::ALL.iter().copied().find(|one| one.name() == text).ok_or_else(|| UnknownName {
                    what: $what,
                    name: text.to_owned(),
                    known: concat!($($text, " "),*).trim_ascii_end(),
                })
            }
        }
    };
}

numbered! {
    /// Element types.
    DType, "element type" {
        /// IEEE 754 binary32.
        F32 = 0, "f32";
        /// IEEE 754 binary64.
        F64 = 1, "f64";
        /// Signed 32-bit integer; sums and products wrap, as for all integers.
        I32 = 2, "i32";
        /// Signed 64-bit integer.
        I64 = 3, "i64";
        /// IEEE 754 binary16; added up in binary32.
        F16 = 4, "f16";
        /// The upper half of a binary32 (bfloat16); added up in binary32.
        BF16 = 5, "bf16";
        /// Signed 8-bit integer.
        I8 = 6, "i8";
        /// Signed 16-bit integer.
        I16 = 7, "i16";
        /// Unsigned 8-bit integer.
        U8 = 8, "u8";
    }
}

numbered! {
    /// Built-in operators. All are associative and commutative, floats up to rounding.
    Operator, "operator" {
        /// The sum.
        Sum = 0, "sum";
        /// The product.
        Prod = 1, "prod";
        /// The smaller one; of a number and a NaN, the number (IEEE 754-2008 `minNum`, C's `fmin`).
        Min = 2, "min";
        /// The larger one; of a number and a NaN, the number (IEEE 754-2008 `maxNum`, C's `fmax`).
        Max = 3, "max";
        /// The sum divided by the number of workers; of floats only. The division is [`Payload::finish`](super::Payload::finish), which
        /// aggregators of SwitchML call; jobs of other systems with this operator are refused.
        Avg = 4, "avg";
        /// Bitwise and; of integers only, as all bit operators.
        And = 5, "and";
        /// Bitwise or.
        Or = 6, "or";
        /// Bitwise exclusive or.
        Xor = 7, "xor";
        /// The smaller one; of floats, a NaN where either is one, and -0 is less than +0 (IEEE 754-2019 `minimum`, `numpy.minimum`,
        /// `torch.amin`). The NaN is always the same one, so that its bits do not depend on the order either.
        Minimum = 8, "minimum";
        /// The larger one; of floats, a NaN where either is one, and +0 is more than -0 (IEEE 754-2019 `maximum`, `numpy.maximum`,
        /// `torch.amax`).
        Maximum = 9, "maximum";
    }
}

/// A name that stands for nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownName {
    what: &'static str,
    name: String,
    known: &'static str,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {} is called `{}`; there are {}", self.what, self.name, self.known)
    }
}

impl std::error::Error for UnknownName {}

impl DType {
    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            DType::I8 | DType::U8 => 1,
            DType::F16 | DType::BF16 | DType::I16 => 2,
            DType::F32 | DType::I32 => 4,
            DType::F64 | DType::I64 => 8,
        }
    }

    /// Whether elements are floats.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
    }

    /// Whether aggregators add up in a wider type: partial sums of 16-bit floats would lose most of their bits.
    pub const fn is_widened(self) -> bool {
        matches!(self, DType::F16 | DType::BF16)
    }

    /// The number that an element is, from its bytes; integers beyond 2^53 lose their lowest bits.
    ///
    /// # Panics
    /// Where there are fewer bytes than the element has.
    pub fn read_f64(self, bytes: &[u8]) -> f64 {
        macro_rules! of {
            ($type:ty) => {
                <$type>::from_le_bytes(*bytes.first_chunk().expect("an element's bytes"))
            };
        }
        match self {
            DType::F16 => of!(f16).to_f64(),
            DType::BF16 => of!(bf16).to_f64(),
            DType::F32 => of!(f32).into(),
            DType::F64 => of!(f64),
            DType::U8 => of!(u8).into(),
            DType::I8 => of!(i8).into(),
            DType::I16 => of!(i16).into(),
            DType::I32 => of!(i32).into(),
            DType::I64 => of!(i64) as f64,
        }
    }

    /// Appends the element that is nearest to a whole number; integers keep the lowest bits.
    pub fn push_i64(self, value: i64, bytes: &mut Vec<u8>) {
        match self {
            DType::I8 | DType::U8 => bytes.push(value as u8),
            DType::I16 => bytes.extend_from_slice(&(value as i16).to_le_bytes()),
            DType::I32 => bytes.extend_from_slice(&(value as i32).to_le_bytes()),
            DType::I64 => bytes.extend_from_slice(&value.to_le_bytes()),
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => self.push_f64(value as f64, bytes),
        }
    }

    /// Appends the element that is nearest to a number; integers are cut off towards zero and saturate. Narrow floats are rounded to
    /// binary32 first, as where they are added up.
    pub fn push_f64(self, value: f64, bytes: &mut Vec<u8>) {
        match self {
            DType::F16 => bytes.extend_from_slice(&f16::from_f32(value as f32).to_le_bytes()),
            DType::BF16 => bytes.extend_from_slice(&bf16::from_f32(value as f32).to_le_bytes()),
            DType::F32 => bytes.extend_from_slice(&(value as f32).to_le_bytes()),
            DType::F64 => bytes.extend_from_slice(&value.to_le_bytes()),
            DType::U8 => bytes.push(value as u8),
            DType::I8 => bytes.push(value as i8 as u8),
            DType::I16 => bytes.extend_from_slice(&(value as i16).to_le_bytes()),
            DType::I32 => bytes.extend_from_slice(&(value as i32).to_le_bytes()),
            DType::I64 => bytes.extend_from_slice(&(value as i64).to_le_bytes()),
        }
    }
}

/// Element type and operator of a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ElementOp {
    /// The element type.
    pub dtype: DType,
    /// The operator.
    pub operator: Operator,
}

/// An element type and an operator that do not go together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Unsupported(pub ElementOp);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ElementOp { dtype, operator } = self.0;
        let why = if dtype.is_float() { "bits of floats have no meaning of their own" } else { "the mean of integers is not an integer" };
        write!(f, "there is no {operator} of {dtype}: {why}")
    }
}

impl std::error::Error for Unsupported {}

impl ElementOp {
    /// Sums of binary32 floats.
    pub const F32_SUM: ElementOp = ElementOp { dtype: DType::F32, operator: Operator::Sum };
    /// Sums of 32-bit integers.
    pub const I32_SUM: ElementOp = ElementOp { dtype: DType::I32, operator: Operator::Sum };

    /// A type and an operator that go together.
    ///
    /// # Errors
    /// [`Unsupported`] for bit operators on floats and for means of integers.
    pub const fn new(dtype: DType, operator: Operator) -> Result<Self, Unsupported> {
        let op = ElementOp { dtype, operator };
        if op.is_supported() { Ok(op) } else { Err(Unsupported(op)) }
    }

    /// Whether the type and the operator go together.
    pub const fn is_supported(self) -> bool {
        match self.operator {
            Operator::Sum | Operator::Prod | Operator::Min | Operator::Max | Operator::Minimum | Operator::Maximum => true,
            Operator::Avg => self.dtype.is_float(),
            Operator::And | Operator::Or | Operator::Xor => !self.dtype.is_float(),
        }
    }

    /// All supported combinations.
    pub fn all() -> impl Iterator<Item = ElementOp> {
        DType::ALL.iter().flat_map(|&dtype| Operator::ALL.iter().filter_map(move |&operator| ElementOp::new(dtype, operator).ok()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_back() {
        for &dtype in DType::ALL {
            assert_eq!((DType::from_number(dtype.number()), dtype.name().parse()), (Some(dtype), Ok(dtype)));
        }
        for &operator in Operator::ALL {
            assert_eq!((Operator::from_number(operator.number()), operator.name().parse()), (Some(operator), Ok(operator)));
        }
        assert_eq!((DType::from_number(9), Operator::from_number(10)), (None, None));
        let error = "f8".parse::<DType>().unwrap_err().to_string();
        assert_eq!(error, "no element type is called `f8`; there are f32 f64 i32 i64 f16 bf16 i8 i16 u8");
    }

    #[test]
    fn floats_have_means_and_integers_have_bits() {
        assert_eq!(ElementOp::all().count(), 4 * 7 + 5 * 9);
        assert_eq!(
            ElementOp::new(DType::F16, Operator::Xor).unwrap_err().to_string(),
            "there is no xor of f16: bits of floats have no meaning of their own"
        );
        assert_eq!(
            ElementOp::new(DType::I64, Operator::Avg).unwrap_err().to_string(),
            "there is no avg of i64: the mean of integers is not an integer"
        );
    }

    #[test]
    fn whole_numbers_become_elements() {
        let bytes = |dtype: DType| {
            let mut bytes = Vec::new();
            dtype.push_i64(-3, &mut bytes);
            bytes
        };
        assert_eq!(bytes(DType::U8), [253]);
        assert_eq!(bytes(DType::I16), (-3i16).to_le_bytes());
        assert_eq!(bytes(DType::F16), [0x00, 0xc2]);
        assert_eq!(bytes(DType::BF16), [0x40, 0xc0]);
        assert_eq!(bytes(DType::F64), (-3f64).to_le_bytes());
        for &dtype in DType::ALL {
            assert_eq!(bytes(dtype).len(), dtype.bytes());
            assert_eq!(dtype.read_f64(&bytes(dtype)), if dtype == DType::U8 { 253.0 } else { -3.0 }, "{dtype}");
        }
    }
}
