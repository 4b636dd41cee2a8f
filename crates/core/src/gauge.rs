//! What a node holds at a moment and a driver may want to draw over time: windows, and the averages that windows follow.

macro_rules! gauges {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal in $unit:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// Every gauge, in the order of their indices.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The gauge's name in plans and results.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// What its values count; `share` is a number from 0 to 1.
            pub const fn unit(self) -> &'static str {
                match self { $($name::$variant => $unit,)* }
            }

            /// The gauge as an index into an array.
            #[inline]
            pub const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

gauges! {
    /// A quantity that a node can be asked for ([`crate::Node::gauges`]). A node answers with those that its system has.
    Gauge {
        /// How many packets of a round go to the switch's memory (A2TP's ACW).
        AggregatorWindow = "aggregator_window" in "packets",
        /// How many packets may be on their way (A2TP's LCW; the window of a system that has one only).
        LinkWindow = "link_window" in "packets",
        /// Average share of packets that met a collision in the switch (A2TP's alpha).
        CollisionShare = "collision_share" in "share",
        /// Average share of packets that met a congested link (A2TP's beta).
        MarkShare = "mark_share" in "share",
        /// How much of a window comes back within one round trip (A2TP's gamma): 1 where the job's workers keep step.
        Synchrony = "synchrony" in "share",
        /// Blocks begun and not finished.
        Outstanding = "outstanding" in "blocks",
        /// Smoothed round-trip time.
        RoundTrip = "round_trip" in "us",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauges_are_in_the_order_of_their_indices_and_have_names_of_their_own() {
        for (index, gauge) in Gauge::ALL.iter().enumerate() {
            assert_eq!(gauge.index(), index);
            assert!(!gauge.unit().is_empty());
            assert_eq!(Gauge::ALL.iter().filter(|other| other.name() == gauge.name()).count(), 1);
        }
    }
}
