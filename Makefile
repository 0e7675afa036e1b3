# The same commands for people, for the README and for continuous integration.

.DEFAULT_GOAL := help
.PHONY: help setup run demo run-postgres run-relay test test-postgres test-broker test-prometheus test-browser test-packages test-release lint lines fuzz man docs pictures deb dist install uninstall bench bench-store bench-spool bench-postgres bench-broker soak soak-postgres soak-broker

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /make \1 : /p' $(MAKEFILE_LIST)

setup: ## Fetch the dependencies and build, so that the rest works offline
	cargo fetch --locked
	cargo fetch --locked --manifest-path tests/browser/Cargo.toml
	cargo build --locked --release -p shiftboss -p shiftspool

run: ## Run the example: checksums of all programs, two at a time
	sh examples/audit-files/run.sh

demo: ## Look at the pages: the example at a slow pace, until Ctrl-C
	sh examples/audit-files/demo.sh

run-postgres: ## Run the example with two daemons of one queue, on a PostgreSQL server of its own
	sh examples/audit-files/run-postgres.sh

run-relay: ## Run the example with two relays of one daemon, over a RabbitMQ broker of their own
	sh examples/audit-files/run-relay.sh

# With nextest where it is installed (faster, and a hanging test is named), without it else.
test: ## Run all tests
	@if cargo nextest --version >/dev/null 2>&1; then \
		set -x; cargo nextest run --locked --workspace; \
	else \
		set -x; cargo test --locked --workspace --lib --bins --tests -- --skip on_server:: --skip over_broker::; \
	fi
	cargo test --locked --workspace --doc
	@[ "$$(id -u)" = 0 ] || echo "NOT TESTED: mounts, other users and limits, which take root" >&2

# Installs Debian's PostgreSQL where it is missing, and starts a server of its own; SHIFTBOSS_TEST_POSTGRES names another.
test-postgres: ## Run the tests on PostgreSQL
	tests/postgres.sh

# Installs Debian's RabbitMQ where it is missing, and starts a broker of its own; SHIFTBOSS_TEST_BROKER names another.
test-broker: ## Run the tests of relays on a RabbitMQ broker
	tests/broker.sh

# Installs Debian's Prometheus where it is missing.
test-prometheus: ## Have Prometheus read the metrics, and check the alert rules
	tests/prometheus.sh

# Installs Debian's chromium and its driver where they are missing.
test-browser: ## Have a browser look at the pages
	tests/browser.sh

# Installs Debian's mmdebstrap, lintian and nix-bin where they are missing, and cargo-deb below target/.
test-packages: ## Install, upgrade and remove the Debian package, in a Debian of its own (root)
	tests/packages.sh

# As before; installs buildah and musl-tools, too.
test-release: ## The same with what is released: the packages of `make deb` and `make dist`, and the image
	tests/packages.sh --release

# The documentation is for those who work on the source, so it may link to what is private.
lint: ## Check format, lints and documentation; a warning is an error
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo clippy --locked -p shiftboss-postgres --features server --all-targets -- -D warnings
	cargo fmt --manifest-path tests/browser/Cargo.toml --check
	cargo clippy --locked --manifest-path tests/browser/Cargo.toml --target-dir $(or $(CARGO_TARGET_DIR),target)/browser \
		--all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private-intra-doc-links" \
		cargo doc --locked --workspace --no-deps --document-private-items

# The fuzzer needs a nightly compiler; without one, its corpus is mutated by a property test instead.
fuzz: ## Feed the protocol's codec with mutated input for a minute
	@if cargo +nightly --version >/dev/null 2>&1; then \
		set -ex; \
		cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz; \
		mkdir -p tests/fuzz/corpus/lines; \
		cargo +nightly fuzz run --fuzz-dir tests/fuzz lines tests/fuzz/corpus/lines tests/fuzz/seeds/lines -- -max_total_time=60 -max_len=140000; \
	else \
		set -x; PROPTEST_CASES=300000 timeout 300 cargo test --release -p shiftboss-protocol --test corpus; \
	fi

man: ## Write man pages and shell completions, to target/man
	cargo run --quiet --locked -p shiftboss-manual -- target/man
	@echo "target/man/man1 and target/man/completions (bash, zsh, fish)"

# Installs cargo-deb below target/ where it is missing.
deb: man ## Build the Debian package, in target/debian
	cargo build --locked --release -p shiftboss -p shiftspool
	sh contrib/debian/build.sh

# Installs Debian's musl-tools and Rust's musl target where they are missing.
dist: man ## Build the static tarball with its checksum, and what the image is made of, in target/dist
	sh contrib/dist.sh

built := $(or $(CARGO_TARGET_DIR),target)/release
programs := $(built)/shiftboss $(built)/shiftspool

# Only what is missing is built, so `make setup man && sudo make install` needs no Rust of root's.
install: $(programs) target/man/man1 ## Install programs, units, man pages and completions (PREFIX=/usr/local, DESTDIR=)
	PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" sh contrib/install.sh $(built) target/man

uninstall: ## Take away what `make install` installed, but no settings and no database
	PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" sh contrib/install.sh --uninstall

$(programs) &:
	cargo build --locked --release -p shiftboss -p shiftspool

target/man/man1:
	$(MAKE) man

# With Debian's chromium, which it installs.
pictures: ## Take the pictures of README, of the example at work, into docs/pictures
	sh tests/pictures.sh

docs: ## Write docs/commands.md and the tables of docs/configuration.md, from the definitions of the command line
	cargo run --quiet --locked -p shiftboss-manual -- --documents docs

# BENCH="--rows 1,2 --seconds 3" measures a part; docs/benchmarks.md is written by a whole run only.
bench: ## Measure it beside beanstalkd, and write docs/benchmarks.md (an hour)
	@command -v beanstalkd >/dev/null || apt-get install -y beanstalkd \
		|| echo "beanstalkd is not installed and cannot be: measuring without it"
	cargo build --release --locked --workspace
	target/release/shiftboss-bench $(if $(BENCH),$(BENCH),--write docs/benchmarks.md)

lines: ## Count the lines of product code, by room
	@sh tests/lines.sh

bench-store: ## Measure the store's operations one by one (two minutes)
	cargo bench --locked -p shiftboss-bench --bench store

# BENCH="--rounds 3" is a trial. DIRECTORY on another disk: BENCH="--directory /mnt/x --write docs/benchmarks.md".
bench-spool: ## Measure the spool beside bare loops, and write docs/benchmarks.md (two minutes)
	cargo build --release --locked -p shiftboss-bench
	target/release/shiftboss-bench spool $(if $(BENCH),$(BENCH),--write docs/benchmarks.md)

# BENCH="--rows 1,2 --rounds 1" measures a part. The server is one of its own, with fsync, in TMPDIR, which must be on a disk;
# SHIFTBOSS_TEST_POSTGRES names another.
bench-postgres: ## Measure the queue on PostgreSQL beside graphile-worker, and write docs/benchmarks.md (15 minutes)
	sh benches/graphile-worker/install.sh target/graphile-worker \
		|| echo "graphile-worker is not installed and cannot be: measuring without it"
	cargo build --release --locked -p shiftboss -p shiftboss-bench
	SHIFTBOSS_SERVER_SETTINGS="-c shared_buffers=1GB -c max_wal_size=4GB" sh tests/postgres-server.sh \
		target/release/shiftboss-bench postgres $(if $(BENCH),$(BENCH),--write docs/benchmarks.md)

# BENCH="--rows 1,2 --seconds 2" measures a part. Broker and server (row 7) are of its own, in TMPDIR, which must be on a disk;
# SHIFTBOSS_TEST_BROKER and SHIFTBOSS_TEST_POSTGRES name others.
bench-broker: ## Measure relays beside the bare broker and the daemon, and write docs/benchmarks.md (5 minutes)
	cargo build --release --locked -p shiftboss -p shiftboss-bench
	sh tests/broker-server.sh $(if $(SHIFTBOSS_TEST_POSTGRES),,sh tests/postgres-server.sh) \
		target/release/shiftboss-bench broker $(if $(BENCH),$(BENCH),--write docs/benchmarks.md)

# SOAK="--minutes 0.5" CASES=300 KILLS=20 is a trial. The log of a minute without a checkpoint needs a few GB in TMPDIR.
# First 20,000 random histories of each kind against the queue's model, in memory and over SQLite, and ten power cuts in each of
# 500 more (TMPDIR in memory makes those quick).
soak: ## Run random histories, then the daemon at full load for ten minutes; check what must hold
	PROPTEST_CASES=$(or $(CASES),20000) cargo test --release --locked -p shiftboss-queue -p shiftboss-sqlite --test queue -- \
		classic histories
	SHIFTBOSS_POWER_CUTS=$(or $(CUTS),500) cargo test --release --locked --lib -- sqlite::tests::power_cuts
	SHIFTSPOOL_KILLS=$(or $(KILLS),200) cargo test --release --locked -p shiftspool --test program -- kills_at_random_moments
	cargo build --release --locked -p shiftboss -p shiftboss-soak
	target/release/shiftboss-soak $(SOAK)

# SOAK="--minutes 1 --seed 7" is a trial.
soak-broker: ## Run relays, and one daemon and then three, under faults of all kinds for ten minutes each; check what must hold
	cargo build --release --locked -p shiftboss -p shiftboss-soak
	sh tests/broker-server.sh sh -c \
		'target/release/shiftboss-soak broker $(SOAK) && target/release/shiftboss-soak broker --shared $(SOAK)'

# SOAK="--minutes 1 --seed 7" is a trial. Root has a small disk mounted for it, which is filled.
soak-postgres: ## Run four daemons of one queue under faults of all kinds for ten minutes; check what must hold
	cargo build --release --locked -p shiftboss -p shiftboss-soak
	$(if $(filter 0,$(shell id -u)),unshare -m) target/release/shiftboss-soak postgres \
		$(if $(filter 0,$(shell id -u)),--fill-disk) $(SOAK)
