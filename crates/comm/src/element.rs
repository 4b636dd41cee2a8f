//! Element types as Rust knows them, and vectors of them as bytes.

use bytemuck::Pod;
use fanin_core::DType;
use half::{bf16, f16};

#[cfg(target_endian = "big")]
compile_error!("elements travel little-endian, and vectors are lent as they lie in memory");

/// A type whose vectors can be reduced.
pub trait Element: Pod + Send + Sync {
    /// Its name in packets.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($type:ty = $dtype:ident;)*) => {
        $(impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        })*
    };
}

elements! {
    f64 = F64;
    f32 = F32;
    f16 = F16;
    bf16 = BF16;
    i8 = I8;
    i16 = I16;
    i32 = I32;
    i64 = I64;
    u8 = U8;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn width<T: Element>() -> (usize, usize) {
        (size_of::<T>(), T::DTYPE.bytes())
    }

    #[test]
    fn every_type_is_as_wide_as_its_elements_on_the_wire() {
        let all = [
            width::<f64>(),
            width::<f32>(),
            width::<f16>(),
            width::<bf16>(),
            width::<i8>(),
            width::<i16>(),
            width::<i32>(),
            width::<i64>(),
            width::<u8>(),
        ];
        assert!(all.iter().all(|(memory, wire)| memory == wire));
        assert_eq!(all.len(), DType::ALL.len());
    }
}
