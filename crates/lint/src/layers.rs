//! Who may import whom. The table below is the picture in `docs/architecture.md`; a dependency that is not in it is a decision to be
//! made there first.

use crate::repository::Package;
use crate::violation::Violation;

/// What one crate may depend on.
struct Layer {
    name: &'static str,
    /// Members of the workspace that it may import.
    internal: &'static [&'static str],
    /// Members that only its tests and benches may import as well.
    internal_dev: &'static [&'static str],
    /// Packages of others that it may import, where that is restricted: crates that compute and do no I/O.
    external: Option<&'static [&'static str]>,
}

/// The drivers (`sim`, `net`, `runtime`) know core's traits, not the protocols; protocols know no driver.
const LAYERS: &[Layer] = &[
    Layer { name: "fanin-vectors", internal: &[], internal_dev: &[], external: Some(&[]) },
    Layer { name: "fanin-core", internal: &["fanin-vectors"], internal_dev: &[], external: Some(&["half"]) },
    Layer { name: "fanin-wire", internal: &["fanin-core"], internal_dev: &[], external: Some(&["crc32fast"]) },
    Layer { name: "fanin-protocols", internal: &["fanin-core", "fanin-wire"], internal_dev: &[], external: Some(&["libm"]) },
    Layer {
        name: "fanin-sim",
        internal: &["fanin-core", "fanin-wire"],
        internal_dev: &[],
        external: Some(&["libm", "rand_core", "rand_xoshiro", "serde", "thiserror"]),
    },
    Layer {
        name: "fanin-net",
        internal: &["fanin-core", "fanin-wire"],
        internal_dev: &["fanin-leftovers", "fanin-protocols", "fanin-systems"],
        external: None,
    },
    Layer {
        name: "fanin-trust",
        internal: &["fanin-core"],
        internal_dev: &[],
        external: Some(&["chrono", "pasetors", "ring", "serde", "serde_json", "thiserror", "toml"]),
    },
    Layer {
        name: "fanin-channel",
        internal: &[],
        internal_dev: &[],
        external: Some(&["chrono", "rcgen", "ring", "rustls", "x509-parser"]),
    },
    Layer {
        name: "fanin-runtime",
        internal: &["fanin-core", "fanin-wire", "fanin-net", "fanin-trust"],
        internal_dev: &["fanin-protocols", "fanin-systems"],
        external: None,
    },
    Layer { name: "fanin-systems", internal: &["fanin-core", "fanin-wire", "fanin-protocols"], internal_dev: &[], external: None },
    Layer {
        name: "fanin-control",
        internal: &["fanin-core", "fanin-wire", "fanin-systems", "fanin-trust"],
        internal_dev: &[],
        external: Some(&["serde", "serde_json", "thiserror"]),
    },
    Layer {
        name: "fanin-operator",
        internal: &["fanin-core"],
        internal_dev: &[],
        // The last five: only so that they are built with the same features everywhere.
        external: Some(&["sha2", "thiserror", "wasmparser", "wasmtime", "anyhow", "memchr", "num-traits", "semver", "tracing-core"]),
    },
    Layer {
        name: "fanin-xdp",
        internal: &["fanin-core", "fanin-wire", "fanin-systems"],
        internal_dev: &[],
        external: Some(&["libbpf-rs", "thiserror"]),
    },
    Layer {
        name: "fanin-p4",
        internal: &["fanin-core", "fanin-wire", "fanin-protocols"],
        internal_dev: &[],
        external: Some(&["crc32fast", "serde", "serde_json", "thiserror"]),
    },
    Layer {
        name: "fanin-daemon",
        internal: &[
            "fanin-core",
            "fanin-wire",
            "fanin-systems",
            "fanin-xdp",
            "fanin-net",
            "fanin-operator",
            "fanin-runtime",
            "fanin-control",
            "fanin-plan",
            "fanin-fabric",
            "fanin-trust",
            "fanin-channel",
        ],
        internal_dev: &[],
        external: None,
    },
    Layer {
        name: "fanin-comm",
        internal: &[
            "fanin-channel",
            "fanin-trust",
            "fanin-core",
            "fanin-systems",
            "fanin-net",
            "fanin-operator",
            "fanin-runtime",
            "fanin-control",
            "fanin-daemon",
            "fanin-fabric",
            "fanin-terminal",
        ],
        internal_dev: &[],
        external: None,
    },
    Layer { name: "fanin-simulation", internal: &["fanin-core", "fanin-systems", "fanin-sim"], internal_dev: &[], external: Some(&[]) },
    Layer {
        name: "fanin-check",
        internal: &["fanin-core", "fanin-wire", "fanin-protocols", "fanin-systems", "fanin-sim", "fanin-simulation"],
        internal_dev: &["fanin-net", "fanin-runtime"],
        external: None,
    },
    Layer {
        name: SHIPPED,
        internal: &[
            "fanin-core",
            "fanin-wire",
            "fanin-protocols",
            "fanin-systems",
            "fanin-sim",
            "fanin-simulation",
            "fanin-check",
            "fanin-net",
            "fanin-operator",
            "fanin-runtime",
            "fanin-control",
            "fanin-daemon",
            "fanin-advise",
            "fanin-comm",
            "fanin-plan",
            "fanin-fabric",
            "fanin-models",
            "fanin-transparent",
            "fanin-workload",
            "fanin-pictures",
            "fanin-repro",
            "fanin-testbed",
            "fanin-doctor",
            "fanin-simulate",
            "fanin-terminal",
            "fanin-trust",
            "fanin-channel",
        ],
        internal_dev: &[],
        external: None,
    },
    Layer {
        name: "fanin-transparent",
        internal: &["fanin-core", "fanin-wire", "fanin-protocols", "fanin-net"],
        internal_dev: &[],
        external: None,
    },
    Layer { name: "fanin-processor", internal: &["fanin-core"], internal_dev: &[], external: Some(&["libm", "thiserror"]) },
    Layer { name: "fanin-models", internal: &["fanin-core", "fanin-processor"], internal_dev: &[], external: Some(&["libm", "thiserror"]) },
    Layer {
        name: "fanin-plan",
        internal: &["fanin-core", "fanin-systems", "fanin-operator", "fanin-sim", "fanin-simulation", "fanin-models", "fanin-workload"],
        internal_dev: &[],
        external: None,
    },
    // What commands do, without arguments, printing and exit codes: for the program, for Python and for other crates.
    Layer {
        name: "fanin-advise",
        internal: &["fanin-core", "fanin-systems", "fanin-sim", "fanin-plan"],
        internal_dev: &[],
        external: None,
    },
    Layer { name: "fanin-pictures", internal: &["fanin-models", "fanin-plan"], internal_dev: &[], external: None },
    Layer { name: "fanin-repro", internal: &["fanin-models", "fanin-pictures", "fanin-plan"], internal_dev: &[], external: None },
    Layer {
        name: "fanin-testbed",
        internal: &[
            "fanin-core",
            "fanin-systems",
            "fanin-operator",
            "fanin-sim",
            "fanin-net",
            "fanin-runtime",
            "fanin-comm",
            "fanin-control",
            "fanin-daemon",
            "fanin-plan",
            "fanin-fabric",
            "fanin-pictures",
        ],
        internal_dev: &[],
        external: None,
    },
    Layer {
        name: "fanin-doctor",
        internal: &["fanin-net", "fanin-channel", "fanin-control", "fanin-comm"],
        internal_dev: &[],
        external: None,
    },
    // What the program says, and the part of it that simulates, which is built before the rest of a fresh clone.
    Layer { name: "fanin-terminal", internal: &[], internal_dev: &[], external: Some(&["tracing", "tracing-subscriber"]) },
    Layer {
        name: "fanin-simulate",
        internal: &["fanin-operator", "fanin-pictures", "fanin-plan", "fanin-terminal"],
        internal_dev: &[],
        external: None,
    },
    // Data of workloads: neither protocols nor drivers.
    Layer { name: "fanin-workload", internal: &["fanin-core"], internal_dev: &[], external: None },
    Layer { name: "fanin-fabric", internal: &["fanin-core", "fanin-plan"], internal_dev: &["fanin-sim"], external: Some(&["serde"]) },
    Layer {
        name: "fanin-py",
        internal: &[
            "fanin-advise",
            "fanin-comm",
            "fanin-foreign",
            "fanin-plan",
            "fanin-fabric",
            "fanin-pictures",
            "fanin-repro",
            "fanin-testbed",
        ],
        internal_dev: &[],
        external: None,
    },
    // What binds other languages.
    Layer { name: "fanin-foreign", internal: &["fanin-comm"], internal_dev: &[], external: Some(&[]) },
    Layer { name: "fanin-c", internal: &["fanin-comm", "fanin-foreign"], internal_dev: &[], external: Some(&[]) },
    Layer { name: "fanin-nccl", internal: &["fanin-comm", "fanin-foreign"], internal_dev: &[], external: Some(&["if-addrs", "socket2"]) },
    // For tests alone.
    Layer { name: "fanin-leftovers", internal: &[], internal_dev: &[], external: Some(&["libc"]) },
    Layer { name: "fanin-lint", internal: &[], internal_dev: &[], external: None },
];

/// The package whose program users run.
const SHIPPED: &str = "fanin";

/// The only features that may exist. None may select a protocol: every build has all systems.
const FEATURES: &[(&str, &str)] = &[
    ("fanin-protocols", PLANTED_BUGS),
    ("fanin-systems", PLANTED_BUGS),
    ("fanin-sim", PLANTED_BUGS),
    ("fanin-operator", WASM),
    ("fanin-plan", WASM),
    ("fanin-daemon", WASM),
    ("fanin-comm", WASM),
    ("fanin-py", WASM),
    ("fanin-c", WASM),
    ("fanin-nccl", WASM),
    (SHIPPED, WASM),
    ("fanin-xdp", "kernel"),
    ("fanin-daemon", XDP),
    (SHIPPED, XDP),
];

/// Programs for the kernel, whose build needs clang, a C compiler and libraries. Off by default; the option that needs it says what is missing.
const XDP: &str = "xdp";

/// Operators that jobs bring along, which need a compiler: without it a build is minutes shorter. On by default, everywhere.
const WASM: &str = "wasm";

/// Bugs on purpose, for the checker's tests.
const PLANTED_BUGS: &str = "planted-bugs";

/// All rules about dependencies and features.
pub fn check(packages: &[Package]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for package in packages {
        match LAYERS.iter().find(|layer| layer.name == package.name) {
            Some(layer) => check_dependencies(package, layer, &mut violations),
            None => violations.push(Violation::of_file(
                &package.manifest,
                format!("{} has no place in the table of crates/lint/src/layers.rs", package.name),
            )),
        }
        for feature in &package.features {
            // Only what may be there at all can be on by default.
            let is_default = feature == "default" && FEATURES.contains(&(package.name.as_str(), WASM));
            if !is_default && !FEATURES.contains(&(package.name.as_str(), feature.as_str())) {
                violations.push(Violation::of_file(
                    &package.manifest,
                    format!("feature {feature} is not allowed: features select nothing that a user sees, least of all a protocol"),
                ));
            }
        }
    }
    violations.extend(planted_bugs_in_shipped_program(packages));
    violations
}

fn check_dependencies(package: &Package, layer: &Layer, violations: &mut Vec<Violation>) {
    for dependency in &package.dependencies {
        let name = dependency.name.as_str();
        let allowed = if dependency.internal {
            layer.internal.contains(&name) || (dependency.dev && (layer.internal_dev.contains(&name) || name == package.name))
        } else {
            dependency.dev || layer.external.is_none_or(|names| names.contains(&name))
        };
        if !allowed {
            let kind = if dependency.dev { "may not use, even in tests," } else { "may not depend on" };
            violations.push(Violation::of_file(&package.manifest, format!("{} {kind} {name}", package.name)));
        }
    }
}

/// Cargo unites the features that all dependencies ask for, so one crate on the way is enough to ship the bugs.
fn planted_bugs_in_shipped_program(packages: &[Package]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut reached = vec![SHIPPED];
    let mut next = 0;
    while let Some(name) = reached.get(next).copied() {
        next += 1;
        let Some(package) = packages.iter().find(|package| package.name == name) else { continue };
        for dependency in package.dependencies.iter().filter(|dependency| dependency.internal && !dependency.dev) {
            if dependency.features.iter().any(|feature| feature == PLANTED_BUGS) {
                violations.push(Violation::of_file(
                    &package.manifest,
                    format!("{name} switches on {PLANTED_BUGS} and is part of the program that users run"),
                ));
            }
            if !reached.contains(&dependency.name.as_str()) {
                reached.push(&dependency.name);
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::Dependency;

    fn package(name: &str, dependencies: &[Dependency]) -> Package {
        Package { name: name.to_owned(), manifest: format!("{name}/Cargo.toml"), dependencies: dependencies.to_vec(), ..Package::default() }
    }

    fn on(name: &str) -> Dependency {
        Dependency { name: name.to_owned(), dev: false, internal: name.starts_with("fanin"), features: Vec::new() }
    }

    fn messages(packages: &[Package]) -> Vec<String> {
        check(packages).into_iter().map(|violation| violation.message).collect()
    }

    #[test]
    fn drivers_may_not_import_protocols() {
        for driver in ["fanin-sim", "fanin-net", "fanin-runtime"] {
            assert_eq!(messages(&[package(driver, &[on("fanin-core")])]), [""; 0]);
            let expected = format!("{driver} may not depend on fanin-protocols");
            assert_eq!(messages(&[package(driver, &[on("fanin-protocols")])]), [expected]);
        }
    }

    #[test]
    fn tests_of_net_and_runtime_may_import_protocols_and_those_of_sim_may_not() {
        let dev = Dependency { dev: true, ..on("fanin-protocols") };
        assert_eq!(messages(&[package("fanin-net", std::slice::from_ref(&dev))]), [""; 0]);
        assert_eq!(messages(&[package("fanin-runtime", std::slice::from_ref(&dev))]), [""; 0]);
        assert_eq!(messages(&[package("fanin-sim", &[dev])]), ["fanin-sim may not use, even in tests, fanin-protocols"]);
    }

    #[test]
    fn protocols_may_not_import_drivers() {
        assert_eq!(messages(&[package("fanin-protocols", &[on("fanin-sim")])]), ["fanin-protocols may not depend on fanin-sim"]);
    }

    #[test]
    fn core_has_no_dependencies_except_for_tests() {
        assert_eq!(messages(&[package("fanin-core", &[on("libm")])]), ["fanin-core may not depend on libm"]);
        let dev = Dependency { dev: true, ..on("proptest") };
        assert_eq!(messages(&[package("fanin-core", &[dev])]), [""; 0]);
    }

    #[test]
    fn sim_takes_no_random_numbers_from_the_operating_system() {
        assert_eq!(messages(&[package("fanin-sim", &[on("getrandom")])]), ["fanin-sim may not depend on getrandom"]);
    }

    #[test]
    fn a_crate_without_a_place_in_the_table_is_refused() {
        let found = messages(&[package("fanin-extra", &[])]);
        assert_eq!(found, ["fanin-extra has no place in the table of crates/lint/src/layers.rs"]);
    }

    #[test]
    fn a_feature_that_selects_a_protocol_is_refused() {
        let with = |feature: &str| Package { features: vec![feature.to_owned()], ..package("fanin-protocols", &[]) };
        assert_eq!(messages(&[with("planted-bugs")]), [""; 0]);
        let found = messages(&[with("canary")]);
        assert!(found.len() == 1 && found[0].starts_with("feature canary is not allowed"), "{found:?}");
    }

    #[test]
    fn planted_bugs_are_found_behind_another_crate() {
        let planted = Dependency { features: vec!["planted-bugs".to_owned()], ..on("fanin-protocols") };
        let check_crate = package("fanin-check", std::slice::from_ref(&planted));
        assert_eq!(messages(&[package("fanin", &[on("fanin-sim")]), check_crate.clone()]), [""; 0]);
        assert_eq!(
            messages(&[package("fanin", &[on("fanin-check")]), check_crate]),
            ["fanin-check switches on planted-bugs and is part of the program that users run"]
        );
    }
}
