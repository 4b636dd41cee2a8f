//! `Clone`, `PartialEq`, `Eq`, `Hash` and `Debug` for nodes that are generic over the payload. `#[derive]` would ask them of the
//! payload type itself, which may be `[u8]`; what a node stores is the operator and accumulators, and these have them all.

/// Implements the traits of a node's state. The list must name every field: the compiler says so where one is missing. A node that is
/// generic over a second type, a part of its state, names that type and its trait.
macro_rules! node_state {
    ($name:ident { $($field:ident),* $(,)? }) => {
        $crate::shared::state::node_state!(@of [] [] $name { $($field),* });
    };
    ($name:ident<$part:ident: $bound:path> { $($field:ident),* $(,)? }) => {
        $crate::shared::state::node_state!(@of [, $part: $bound] [, $part] $name { $($field),* });
    };
    (@of [$($generics:tt)*] [$($parts:tt)*] $name:ident { $($field:ident),* }) => {
        $crate::shared::state::node_state!(@impls [P: fanin_core::Payload + ?Sized $($generics)*] [P $($parts)*] $name { $($field),* });
    };
    (@impls [$($generics:tt)*] [$($arguments:tt)*] $name:ident { $($field:ident),* }) => {
        impl<$($generics)*> Clone for $name<$($arguments)*> {
            fn clone(&self) -> Self {
                let Self { $($field),* } = self;
                Self { $($field: $field.clone()),* }
            }
        }

        impl<$($generics)*> PartialEq for $name<$($arguments)*> {
            fn eq(&self, other: &Self) -> bool {
                let Self { $($field),* } = self;
                $($field == &other.$field)&&*
            }
        }

        impl<$($generics)*> Eq for $name<$($arguments)*> {}

        impl<$($generics)*> std::hash::Hash for $name<$($arguments)*> {
            fn hash<__Hasher: std::hash::Hasher>(&self, state: &mut __Hasher) {
                let Self { $($field),* } = self;
                $($field.hash(state);)*
            }
        }

        impl<$($generics)*> std::fmt::Debug for $name<$($arguments)*> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let Self { $($field),* } = self;
                f.debug_struct(stringify!($name))$(.field(stringify!($field), $field))*.finish()
            }
        }
    };
}

pub(crate) use node_state;
