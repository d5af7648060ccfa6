# Every command does the set-up that it needs. `make help` lists them.
SHELL := /bin/bash
.DELETE_ON_ERROR:
.PHONY: help run build check fmt test setup bench bench-upgrade interop soak

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
	RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --all-features --quiet
	cargo deny --log-level error check bans licenses sources

fmt: ## format everything
	cargo fmt --all

test: build ## everything; prints the slowest tests
	@contrib/dev/setup test
	cargo test --locked --workspace --doc --all-features --quiet
	@contrib/dev/nextest

interop: ## other projects' clients through an upgrade: moq-cli with a file made by ffmpeg
	@contrib/dev/setup build interop
	cargo build --release --locked -p moq-supervise -p moq-relay
	@contrib/dev/interop

bench: bench-upgrade ## every benchmark

bench-upgrade: ## 50 upgrades under load, and today's moq-relay beside it
	@contrib/dev/setup build bench
	cargo build --release --locked -p moq-supervise -p moq-relay -p tests
	cargo build --release --locked -p moq-supervise-protocol --example echo --all-features
	@contrib/dev/bench-upgrade

soak: ## what takes too long for `make test`: a million random lifecycle steps, the whole model, the long storms
	@contrib/dev/setup build test
	@contrib/dev/soak

setup: ## install what any of these commands needs
	@contrib/dev/setup build check test interop bench
