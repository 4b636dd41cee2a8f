//! Payloads that are only counted in bytes.

use super::{OpError, Payload};

/// A payload of which only the length is known: simulation at full speed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Length(pub u32);

impl Payload for Length {
    type Op = ();
    type Acc = Length;
    type Owned = Length;

    #[inline]
    fn accumulator(_op: &(), _bytes: usize) -> Length {
        Length(0)
    }

    #[inline]
    fn bytes(&self) -> usize {
        self.0 as usize
    }

    #[inline]
    fn acc_bytes(acc: &Length, _op: &()) -> usize {
        acc.0 as usize
    }

    #[inline]
    fn assign(&self, acc: &mut Length, _op: &mut ()) -> Result<(), OpError> {
        *acc = *self;
        Ok(())
    }

    #[inline]
    fn reduce(&self, acc: &mut Length, _op: &mut ()) -> Result<(), OpError> {
        if acc.0 == self.0 { Ok(()) } else { Err(OpError::Length { expected: acc.0 as usize, got: self.0 as usize }) }
    }

    #[inline]
    fn view(acc: &Length) -> &Length {
        acc
    }

    fn emit(acc: &Length, _op: &(), out: &mut [u8]) -> usize {
        let out = &mut out[..acc.0 as usize];
        out.fill(0);
        out.len()
    }

    #[inline]
    fn own(&self) -> Length {
        *self
    }

    #[inline]
    fn own_acc(acc: &Length, _op: &()) -> Length {
        *acc
    }

    #[inline]
    fn nothing() -> Length {
        Length(0)
    }
}
