//! Where fields are in the headers of all systems.

use fanin_core::Wire;
use fanin_wire::layout::{Layout, hop};

use crate::any::{AnyHeader, BACKGROUND};

/// Layouts of all systems.
macro_rules! layouts {
    ($($system:ident($Parameters:ident) = $number:literal $name:literal in $module:ident,
        packets $packets:ident $(($Header:ident))?, workers [$($worker:ident),*], others [$($other:ident),*];)*) => {
        /// Packets as hop headers tell them apart: the number, the system's name in plans, and where fields are in its headers.
        pub const LAYOUTS: &[(u8, &str, &Layout)] = &[
            (BACKGROUND, "link", &hop::LINK),
            $(($number, $name, &crate::$module::LAYOUT),)*
        ];
    };
}

systems!(layouts);

/// The block that a header is about, of systems whose packets say that.
pub fn block_of(header: &AnyHeader) -> Option<u64> {
    let mut bytes = [0; 1 + AnyHeader::MAX_LEN];
    let length = header.emit(&mut bytes);
    layout_of(bytes[0])?.block_of(&bytes[1..length])
}

/// The layout of a system's headers, by its number.
pub fn layout_of(system: u8) -> Option<&'static Layout> {
    LAYOUTS.iter().find(|(number, ..)| *number == system).map(|(.., layout)| *layout)
}
