#!/usr/bin/env bash
# Prints the name of the rustup toolchain to build with: the one that rust-toolchain.toml pins. It is installed if it is missing;
# where that is impossible (no network), another installed toolchain of exactly that version will do.
set -euo pipefail
cd "$(dirname "$0")/.."

pinned=$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)

if ! command -v rustup >/dev/null; then
    echo "rustup is not installed; it brings Rust $pinned: https://rustup.rs" >&2
    exit 0
fi
if rustup run "$pinned" rustc --version >/dev/null 2>&1; then
    echo "$pinned"
    exit 0
fi
for installed in $(rustup toolchain list --quiet); do
    if [[ "$(rustup run "$installed" rustc --version)" == "rustc $pinned "* ]]; then
        echo "$installed"
        exit 0
    fi
done
rustup toolchain install "$pinned" --profile minimal --component clippy --component rustfmt >&2
echo "$pinned"
