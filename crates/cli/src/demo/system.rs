//! The systems that the demo can run.

use clap::ValueEnum;

/// The systems that the demo can run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DemoSystem {
    /// A switch process with a pool of slots, as `fanin switch` runs it; workers use communicators.
    #[value(name = "switchml")]
    SwitchMl,
    /// A tree whose root is a switch process.
    Tree,
    /// Workers in a ring; no switch.
    Ring,
}

impl DemoSystem {
    /// The name in results.
    pub const fn name(self) -> &'static str {
        match self {
            DemoSystem::Tree => "tree",
            DemoSystem::Ring => "ring",
            DemoSystem::SwitchMl => "switchml",
        }
    }
}
