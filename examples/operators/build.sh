#!/usr/bin/env bash
# Compiles the examples to the modules beside them, or into another folder: build.sh [FOLDER]. Needs `rustup target add wasm32-unknown-unknown`.
set -euo pipefail
cd "$(dirname "$0")"
out=${1:-.}
for source in *.rs; do
    rustc --edition 2024 --target wasm32-unknown-unknown --crate-type cdylib -C opt-level=3 -C panic=abort -C strip=symbols \
        -C target-feature=+simd128 -C link-arg=-zstack-size=16384 --remap-path-prefix "$PWD=." -o "$out/${source%.rs}.wasm" "$source"
done
