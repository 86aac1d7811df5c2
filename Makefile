# `make` lists the targets. Variables of the caller win: MEDALLION_HOME=/x make nightly
#   PYTHON       which Python builds .venv (3.11 or newer)
#   PYTEST_ARGS  more arguments for pytest: make test PYTEST_ARGS='-x -k refresh'
#   FAULTS_ARGS  arguments for the random walk: make faults FAULTS_ARGS='--seed 7 --steps 60'
#   MASTER       Spark's master: make nightly MASTER=spark://host:7077
#   BENCH_ARGS   arguments for the benchmarks: make bench BENCH_ARGS=--short
PYTHON ?= python3
BIN := .venv/bin
# Before each command that starts Spark: the machine's Java, or that of `medallion setup`
WITH_JAVA := . tools/java.sh && use_java &&

.DEFAULT_GOAL := help
.PHONY: help setup setup-kafka setup-s3 classes broker s3-server s3-classes nightly cluster test test-slow test-wheel test-durations wheel check format reference charts bench bench-ingestion bench-maintain faults faults-s3 faults-sites faults-outages faults-kills clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Only a PYTHON that the caller sets is passed on: the default must not replace an existing .venv.
setup: ## install what is missing: packages, Java, Delta's jars
	@PYTHON='$(if $(filter file,$(origin PYTHON)),,$(PYTHON))' tools/setup.sh

setup-kafka: setup ## install the jars for Kafka sources and outputs
	@$(BIN)/medallion setup --kafka && $(BIN)/python tools/jars.py

setup-s3: setup ## install the jars for data on S3
	@$(BIN)/medallion setup --s3 && $(BIN)/python tools/jars.py

# The class archive comes last, so that the first results come soon.
nightly: setup ## land the sample files the first time, then run the nightly batch
	@$(BIN)/medallion land --sample && \
		$(if $(MASTER),MEDALLION_MASTER='$(MASTER)') $(BIN)/medallion nightly
	@$(BIN)/medallion setup --classes || echo "the next start does without it"

# The archive of other jars is ignored: it is created again after setup-kafka.
classes: setup ## archive Java's classes, so that each start is a fifth faster (once, a minute)
	@$(BIN)/medallion setup --classes

cluster: setup ## run a Spark master and two workers on this machine until Ctrl-C
	@$(BIN)/python -m tools.cluster

# Two workers with a Spark each run file by file, the longest first (tests/durations*.json).
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# The tests start and stop a real Kafka broker.
broker: setup-kafka
	@$(BIN)/python tools/jars.py tests/support/broker-jars.txt .venv/broker

# ... and real servers of S3, built with Go, and of Azure's storage, by npm; without these tools
# those tests are skipped.
s3-server: setup-s3
	@tools/test_servers.sh

# Without `classes`: the suite starts Java too rarely.
test: broker s3-server ## run the test suite, in two processes (ten minutes on two cores)
	@$(WITH_JAVA) $(PYTEST) --junitxml=build/tests.xml $(PYTEST_ARGS)

test-slow: broker s3-server classes ## run the long tests, before a release (an hour)
	@$(WITH_JAVA) $(PYTEST) -m slow --junitxml=build/tests-slow.xml $(PYTEST_ARGS)
	@$(WITH_JAVA) $(PYTEST) --hypothesis-profile=long -k 'any_bytes or properties' $(PYTEST_ARGS)

test-wheel: setup ## build the wheel, and run its first commands without this repository
	@$(WITH_JAVA) $(BIN)/python -m pytest -m slow --junitxml=build/tests-wheel.xml tests/e2e/test_wheel.py

test-durations: ## print the slowest tests of the last run; DURATIONS_ARGS=--record keeps the order
	@$(BIN)/python tools/durations.py $(DURATIONS_ARGS)

wheel: ## build the wheel, into dist/; it needs no set-up
	@test -x build/wheel/bin/pip || $(PYTHON) -m venv build/wheel
	build/wheel/bin/pip wheel --quiet --no-deps --wheel-dir dist .

check: setup ## check lint, format and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: setup ## format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

reference: setup ## write docs/configuration-reference.md from the code
	$(BIN)/python tools/reference.py

s3-classes: setup-s3 ## compile our Java classes for S3 into the jar of the package, after a change in java_s3
	@$(BIN)/python tools/s3_classes.py

charts: ## bundle the charts' library of medallion report from npm, after a change in tools/charts
	@tools/charts/bundle.sh

bench: classes s3-server ## measure nightly runs, growth, streams and ingestion (two hours)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.few_rows $(BENCH_ARGS)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.many_sources $(BENCH_ARGS)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.first_night $(BENCH_ARGS)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.growth $(BENCH_ARGS)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.changes $(BENCH_ARGS)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.always_on $(BENCH_ARGS)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.ingestion $(BENCH_ARGS)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.bucket $(BENCH_ARGS)

bench-ingestion: classes ## measure ingestion: wide rows, 20,000 files, 205 nightly runs
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.ingestion $(BENCH_ARGS)

bench-maintain: classes ## run a thousand micro-batches, and measure size, files and time (an hour)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.maintain $(BENCH_ARGS)

faults-sites: setup ## kill a process before each write; writes docs/fault-sites.md (an hour)
	@$(WITH_JAVA) $(BIN)/python -m tests.faults --aim --steps 200 --minutes 60 \
		--report docs/fault-sites.md $(FAULTS_ARGS)

faults: setup ## run 300 random steps with faults; writes docs/faults.md (an hour or two)
	@$(WITH_JAVA) $(BIN)/python -m tests.faults $(FAULTS_ARGS)

faults-s3: s3-server ## the random steps on buckets of a test server; writes docs/faults-s3.md (half an hour)
	@$(WITH_JAVA) $(BIN)/python -m tests.faults --s3 --steps 100 \
		--report docs/faults-s3.md $(FAULTS_ARGS)

faults-outages: broker classes ## take broker, lookup table and disk from a stream; writes docs/outages.md (20 minutes)
	@$(WITH_JAVA) $(BIN)/python -m tests.faults.outages $(FAULTS_ARGS)

faults-kills: setup ## kill twelve nightly runs at random moments, and check the tables (10 minutes)
	@$(WITH_JAVA) $(BIN)/python -m tests.faults.kills $(FAULTS_ARGS)

clean: ## remove the environment and caches, but no data
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache spark-warehouse metastore_db derby.log build dist
	find benchmarks jobs src tests tools -type d \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +
