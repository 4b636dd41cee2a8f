//! Bugs put in on purpose, to show that a checker finds them. Without the feature `planted-bugs` there are none, at no cost.

/// A bug that is put in on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Planted {
    /// None.
    #[default]
    None,
    /// Copies of packets are added again (`flare P10`).
    #[cfg(feature = "planted-bugs")]
    IgnoreNumbers,
    /// A child's first packet counts as all of them (`flare P5`).
    #[cfg(feature = "planted-bugs")]
    CountOnePacket,
    /// What a table spills is not sent (`flare P2`: a lost contribution).
    #[cfg(feature = "planted-bugs")]
    LoseSpill,
    /// Packets that a child has made before and after it lost its memory are added up.
    #[cfg(feature = "planted-bugs")]
    MixMakings,
}

impl Planted {
    /// Whether [`Planted::IgnoreNumbers`] is in.
    #[inline(always)]
    pub(super) fn ignores_numbers(self) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self == Planted::IgnoreNumbers;
        #[cfg(not(feature = "planted-bugs"))]
        false
    }

    /// Whether [`Planted::CountOnePacket`] is in.
    #[inline(always)]
    pub(super) fn counts_one_packet(self) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self == Planted::CountOnePacket;
        #[cfg(not(feature = "planted-bugs"))]
        false
    }

    /// Whether [`Planted::LoseSpill`] is in.
    #[inline(always)]
    pub(super) fn loses_spill(self) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self == Planted::LoseSpill;
        #[cfg(not(feature = "planted-bugs"))]
        false
    }

    /// Whether [`Planted::MixMakings`] is in.
    #[inline(always)]
    pub(super) fn mixes_makings(self) -> bool {
        #[cfg(feature = "planted-bugs")]
        return self == Planted::MixMakings;
        #[cfg(not(feature = "planted-bugs"))]
        false
    }
}
