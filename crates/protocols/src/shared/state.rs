//! `Clone`, `PartialEq`, `Eq`, `Hash` and `Debug` for nodes that are generic over the payload. `#[derive]` would ask them of the
//! payload type itself, which may be `[u8]`; what a node stores is the operator and accumulators, and these have them all.

/// Implements the traits of a node's state. The list must name every field: the compiler says so where one is missing.
macro_rules! node_state {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl<P: fanin_core::Payload + ?Sized> Clone for $name<P> {
            fn clone(&self) -> Self {
                let Self { $($field),* } = self;
                Self { $($field: $field.clone()),* }
            }
        }

        impl<P: fanin_core::Payload + ?Sized> PartialEq for $name<P> {
            fn eq(&self, other: &Self) -> bool {
                let Self { $($field),* } = self;
                $($field == &other.$field)&&*
            }
        }

        impl<P: fanin_core::Payload + ?Sized> Eq for $name<P> {}

        impl<P: fanin_core::Payload + ?Sized> std::hash::Hash for $name<P> {
            fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
                let Self { $($field),* } = self;
                $($field.hash(state);)*
            }
        }

        impl<P: fanin_core::Payload + ?Sized> std::fmt::Debug for $name<P> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let Self { $($field),* } = self;
                f.debug_struct(stringify!($name))$(.field(stringify!($field), $field))*.finish()
            }
        }
    };
}

pub(crate) use node_state;
