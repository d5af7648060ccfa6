# Every command does the set-up that it needs. `make help` lists them.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: help run build check fmt test setup bench bench-upgrade bench-crash bench-drain bench-fanout bench-media bench-restart interop soak mutants

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## build, then start the supervised relay on [::]:4443 and print how to use it
	@contrib/dev/setup build
	cargo build --release --locked -p moq-supervise -p moq-relay
	@contrib/dev/run

build: ## all programs, tests and examples, unoptimised
	@contrib/dev/setup build
	cargo build --locked --workspace --all-targets --all-features

check: ## formatting, lints, licences, documentation
	@contrib/dev/setup build check
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets --all-features -- -D warnings
	cargo check --locked --quiet -p moq-supervise-protocol --all-features --examples
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --all-features --quiet
	cargo deny --log-level error check bans licenses sources

fmt: ## format everything
	cargo fmt --all

test: build ## everything; prints the slowest tests
	@contrib/dev/setup test
	cargo test --locked --workspace --doc --all-features --quiet
	@contrib/dev/nextest

interop: ## other projects through upgrades: moq-cli with a file made by ffmpeg, a cluster with today's moq-relay
	@contrib/dev/setup build interop
	cargo build --release --locked -p moq-supervise -p moq-relay -p tests
	@contrib/dev/interop
	target/release/interop_cluster

bench: bench-upgrade bench-crash bench-media bench-drain bench-fanout bench-restart ## every benchmark (bench-restart needs root)

bench-upgrade: ## 50 upgrades under load, and today's moq-relay beside it
	@contrib/dev/setup build bench
	cargo build --release --locked -p moq-supervise -p moq-relay -p tests
	cargo build --release --locked -p moq-supervise-protocol --example echo --all-features
	cargo build --release --locked -p moq-supervise --example steering_cost
	@contrib/dev/bench-upgrade

bench-crash: ## 20 crashes under load, today's moq-relay in turn, and the cost of the ledger
	@contrib/dev/setup build bench
	cargo build --release --locked -p moq-supervise -p moq-relay -p tests
	cargo build --release --locked -p moq-supervise-protocol --example ledger_cost --all-features
	@contrib/dev/bench-crash

bench-media: ## what viewers notice of ten upgrades, and of a restart of today's moq-relay
	@contrib/dev/setup build bench
	cargo build --release --locked -p moq-supervise -p moq-relay -p tests
	@contrib/dev/bench-media

bench-drain: ## 2 000 sessions told to go over 4 s, each of which comes back
	@contrib/dev/setup build
	cargo build --release --locked -p moq-supervise -p moq-relay -p tests
	target/release/bench_drain

bench-fanout: ## one publisher, 50 subscribers: the cost of a frame, today's moq-relay beside it
	@contrib/dev/setup build bench
	cargo build --release --locked -p moq-relay -p tests
	target/release/bench_fanout --peer target/peers/bin/moq-relay

bench-restart: ## restart and reload of the systemd unit: time, failed probes, memory (needs root)
	@contrib/dev/setup build systemd
	cargo build --release --locked -p moq-supervise -p moq-relay -p tests
	@contrib/dev/bench-restart

soak: ## what takes too long for `make test`: the whole lifecycle model, 500 upgrades, ten minutes of upgrades and kills (needs root)
	@contrib/dev/setup build test
	@contrib/dev/soak

mutants: ## mutates the lifecycle core; fails if a change goes unnoticed (an hour or two)
	@contrib/dev/setup build mutants
	@contrib/dev/mutants

setup: ## install what any of these commands needs
	@contrib/dev/setup build check test interop bench
