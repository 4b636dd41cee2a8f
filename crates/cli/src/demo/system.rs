//! The systems that the demo can run.

use fanin_comm::Config;
use fanin_systems::System;

/// The systems that the demo can run.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DemoSystem {
    /// A switch process with a pool of slots, as `fanin switch` runs it; workers use communicators.
    SwitchMl,
    /// A tree whose root is a switch process.
    Tree,
    /// Workers in a ring; no switch.
    Ring,
    /// A system by name, or the one that the communicator takes for the best, over the switches of a fabric; workers use communicators.
    Fabric(Option<String>),
}

impl DemoSystem {
    /// By its name; `auto` where nothing is said.
    ///
    /// # Errors
    /// Which names there are.
    pub fn read(name: Option<&str>, over_fabric: bool) -> Result<Self, String> {
        let name = name.unwrap_or(if over_fabric { "auto" } else { "switchml" });
        match (name, over_fabric) {
            ("auto", true) => Ok(DemoSystem::Fabric(None)),
            (_, true) if Config::system_named(name).is_some() => Ok(DemoSystem::Fabric(Some(name.to_string()))),
            (_, true) => {
                let names = System::names_of("or", |system| Config::system_named(system.name()).is_some());
                Err(format!("--system {name}: expected auto, or a system that sums dense vectors over a fabric: {names}"))
            }
            ("switchml", false) => Ok(DemoSystem::SwitchMl),
            ("tree", false) => Ok(DemoSystem::Tree),
            ("ring", false) => Ok(DemoSystem::Ring),
            (_, false) => Err(format!("--system {name}: expected switchml, tree or ring; other systems need --fabric")),
        }
    }

    /// The name in results.
    pub fn name(&self) -> &str {
        match self {
            DemoSystem::Tree => "tree",
            DemoSystem::Ring => "ring",
            DemoSystem::SwitchMl => "switchml",
            DemoSystem::Fabric(name) => name.as_deref().unwrap_or("auto"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_those_that_one_switch_or_a_fabric_has() {
        assert_eq!(DemoSystem::read(None, false), Ok(DemoSystem::SwitchMl));
        assert_eq!(DemoSystem::read(None, true), Ok(DemoSystem::Fabric(None)));
        assert_eq!(DemoSystem::read(Some("canary"), true), Ok(DemoSystem::Fabric(Some("canary".into()))));
        assert!(DemoSystem::read(Some("canary"), false).unwrap_err().contains("expected switchml, tree or ring"));
        let error = DemoSystem::read(Some("unknown"), true).unwrap_err();
        assert!(
            error.contains("expected auto, or a system that sums dense vectors over a fabric: ") && error.contains("canary"),
            "{error}"
        );
    }
}
