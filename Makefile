# The commands of the repository. Each one does its own set-up from a machine with Rust (rustup), Python 3.10 or newer and a C compiler;
# none but `test-all`, `bench-peers` and `dist`, which can install what they lack, has anything to gain from root.

# The pinned toolchain, also where it is installed under another name; looked for only by targets that build.
ifneq ($(filter-out help clean,$(MAKECMDGOALS)),)
export RUSTUP_TOOLCHAIN := $(shell scripts/toolchain.sh)
endif

PYTHON ?= python3
OUT    ?= out
TOOLS  := $(CURDIR)/target/tools

CARGO_DENY_VERSION := 0.20.2
CARGO_DENY := $(TOOLS)/cargo-deny-$(CARGO_DENY_VERSION)/bin/cargo-deny

.DEFAULT_GOAL := help
.PHONY: help run sim demo docs pictures c mpi nccl test-nccl test test-rust test-python test-all dist lint lint-format lint-clippy lint-docs lint-dependencies lint-architecture lint-wasm check-models check-verdicts traceability bench bench-hops bench-peers fuzz miri loom sanitize clean

help: ## this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z][a-z-]*:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: sim demo ## simulate the quickstart's network, then allreduce real tensors between processes on this machine

# By the part of the program that simulates, which takes half of the time to build: a first result comes before the rest is built.
sim: ## only the simulation: results in out/quickstart
	cargo run --locked --release -p fanin-simulate -- sim examples/quickstart.toml --out $(OUT)/quickstart

# Without the compiler of operators that jobs bring along, which is a third of the build: `cargo build --release -p fanin` has it.
demo: ## only the real thing: a switch process and four workers over UDP on loopback
	cargo run --locked --release -p fanin --no-default-features -- demo

docs: ## the site in target/site: pages, reference made from the program, every link and example checked
	$(PYTHON) scripts/docs.py

# With optimisation, since the quickstart's picture takes a minute of it.
pictures: ## run the plans behind the pictures and tables of the documentation again
	cargo build --locked --release -p fanin --no-default-features
	$(PYTHON) scripts/pictures.py --fanin target/release/fanin

c: ## libfanin for C, C++ and Fortran, with its header: in target/c, or PREFIX
	$(PYTHON) scripts/c_library.py $(if $(PREFIX),--prefix $(PREFIX)) build

mpi: ## libfanin_mpi, which serves collectives of unmodified MPI programs, for each MPI that is installed: in target/c, or PREFIX
	$(PYTHON) scripts/mpi_library.py $(if $(PREFIX),--prefix $(PREFIX))

nccl: ## libnccl-net-fanin.so for NCCL: in target/nccl, or PREFIX
	$(PYTHON) scripts/nccl_library.py $(if $(PREFIX),--prefix $(PREFIX))

test-nccl: ## NCCL itself over libnccl-net-fanin.so: needs a GPU and PyTorch, and is skipped where they are not
	$(PYTHON) scripts/nccl_gpu.py

test: ## every test that needs neither root nor large installs
	$(PYTHON) scripts/rust_tests.py
	$(PYTHON) -m unittest discover -s scripts -p 'test_*.py'
	$(PYTHON) scripts/python_tests.py

test-rust: ## of these, the crates', two test programs at a time (`scripts/rust_tests.py WORD` runs some)
	$(PYTHON) scripts/rust_tests.py

test-python: ## of these, the scripts' and the Python package's
	$(PYTHON) -m unittest discover -s scripts -p 'test_*.py'
	$(PYTHON) scripts/python_tests.py

test-all: ## what needs root or large installs; a missing privilege is a skip with its reason (CHECKS: only these; JOBS: so many at a time)
	$(PYTHON) scripts/test_all.py $(if $(JOBS),--jobs $(JOBS)) $(CHECKS)

lint: lint-format lint-architecture lint-clippy lint-docs lint-dependencies ## formatting, warnings, documentation, licences, architecture, traceability

lint-format:
	cargo fmt --all -- --check

lint-architecture: ## who imports whom, purity, sizes, traceability
	cargo run --locked --quiet -p fanin-lint -- check

# Without the compiler of operators, which takes longer to check than all that is ours; `lint-wasm` looks at what needs it.
lint-clippy:
	cargo clippy --locked --keep-going --workspace --all-targets --no-default-features -- -D warnings

lint-docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --keep-going --workspace --no-deps --no-default-features

lint-wasm: ## warnings and documentation of what runs custom operators, with their compiler
	cargo clippy --locked --keep-going --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --keep-going --workspace --no-deps

lint-dependencies: $(CARGO_DENY)
	$(CARGO_DENY) --locked check licenses bans sources

# Built once, and for speed of building: it runs for two seconds whatever the compiler does.
$(CARGO_DENY):
	cargo install --locked cargo-deny --version $(CARGO_DENY_VERSION) --root $(TOOLS)/cargo-deny-$(CARGO_DENY_VERSION) \
		--target-dir $(TOOLS)/build --config profile.release.lto=false --config profile.release.opt-level=0 --config profile.release.codegen-units=16
	rm -rf $(TOOLS)/build

check-models: ## the largest configurations of the model checker, which take minutes
	cargo test --locked --release -p fanin-check --test all -- --ignored minutes_of

check-verdicts: ## quick and full verdicts of the figures whose quick runs take longest, held together as `make test` holds the others
	cargo test --locked --release -p fanin --no-default-features --test verdicts -- --ignored minutes_of

# A C++ compiler is needed, and some minutes to build; corpora are beside the sources, in `__fuzz__`.
fuzz: ## look by libFuzzer for inputs that break parsers or operations (TARGET: only these; SECONDS: how long each, 180; JOBS: so many at a time)
	$(PYTHON) scripts/fuzz.py $(if $(SECONDS),--seconds $(SECONDS)) $(if $(JOBS),--jobs $(JOBS)) $(TARGET)

loom: ## what shares memory in every order of accesses that the memory model allows, and mistakes put there, which are found
	RUSTFLAGS="--cfg loom" cargo test --locked --target-dir target/loom -p fanin-net --lib loomed

miri: ## every access of what has `unsafe` or shares memory, where Miri can follow it (needs a nightly toolchain with miri and rust-src)
	$(PYTHON) scripts/test_all.py miri

sanitize: ## tests with real mappings and sockets under AddressSanitizer (needs a nightly toolchain)
	$(PYTHON) scripts/test_all.py address-sanitizer

traceability: ## render docs/traceability.md from docs/traceability/*.toml
	cargo run --locked --quiet -p fanin-lint -- traceability --write

dist: ## what is handed out: a wheel and a static program, in dist/ (WHAT: only `wheel` or `program`)
	$(PYTHON) scripts/dist.py $(WHAT)

bench: ## the simulator's and the runtime's speed on this machine
	cargo run --locked --profile dist -p fanin -- bench sim
	cargo bench --locked -p fanin-core -p fanin-sim --bench '*'

bench-hops: ## instructions that a packet-hop of the simulator takes, held against docs/hops.csv (needs valgrind)
	$(PYTHON) scripts/hops.py

bench-peers: ## the same work on ns-3, on gloo and on Open MPI, beside ours
	cargo build --locked --profile dist -p fanin
	$(PYTHON) scripts/bench_peers.py
	$(PYTHON) scripts/bench_collectives.py

clean: ## remove what was built and what runs have written
	cargo clean
	rm -rf $(OUT) dist
