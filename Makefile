# `make` alone lists what there is. Variables set by the caller win: MEDALLION_HOME=/x make nightly
#   PYTHON       which Python builds .venv (3.11 or newer)
#   PYTEST_ARGS  more arguments for pytest: make test PYTEST_ARGS='-x -k refresh'
#   FAULTS_ARGS  arguments for the random walk: make faults FAULTS_ARGS='--seed 7 --steps 60'
#   BENCH_ARGS   arguments for the benchmarks: make bench BENCH_ARGS=--short
PYTHON ?= python3
BIN := .venv/bin
# In front of what starts Spark: the machine's Java where it suits, else the one in .venv/java
WITH_JAVA := . tools/java.sh && use_java &&

.DEFAULT_GOAL := help
.PHONY: help setup setup-kafka classes broker nightly test test-slow check format bench bench-ingestion bench-maintain faults faults-sites faults-outages faults-kills clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# A default must not replace an environment that another Python built, so only a choice is passed on.
setup: ## install what is missing: packages, Java, Delta's jars
	@PYTHON='$(if $(filter file,$(origin PYTHON)),,$(PYTHON))' tools/setup.sh

# Beside the packages, whose Kafka client the tests need anyway.
setup-kafka: setup ## the jars for sources and sinks of Kafka
	@$(WITH_JAVA) $(BIN)/python tools/jars.py conf/jars-kafka.txt && echo "Kafka: ready"

# At the end, for the first one is to be seen soon.
nightly: setup ## the sample files the first time, then the nightly batch
	@$(WITH_JAVA) $(BIN)/medallion land --sample && $(BIN)/medallion nightly
	@$(WITH_JAVA) $(BIN)/python tools/classes

# Java passes over what was kept for other jars: after those of Kafka it is made anew.
classes: setup ## keep Java's classes, so that each start takes a fifth less (once, a minute)
	@$(WITH_JAVA) $(BIN)/python tools/classes

# Two workers with a Spark each take file by file, those of whole runs first: they are the longest.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

# With a real broker of Kafka, which the tests start and stop.
broker: setup-kafka
	@$(WITH_JAVA) $(BIN)/python tools/jars.py tests/support/broker-jars.txt .venv/broker

# Without `classes`: its few starts of Java save less than half of what it takes to keep them.
test: broker ## the test suite, in two processes
	@$(WITH_JAVA) $(PYTEST) $(PYTEST_ARGS)

test-slow: broker classes ## the long forms of its tests, before a release (half an hour)
	@$(WITH_JAVA) $(PYTEST) -m slow $(PYTEST_ARGS)
	@$(WITH_JAVA) $(PYTEST) --hypothesis-profile=long -k 'any_bytes or properties' $(PYTEST_ARGS)

check: setup ## lint, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: setup ## put the code into the common format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: classes ## time small nights, first nights beside their peers, what grows, and what is always on (two hours)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.few_rows $(BENCH_ARGS)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.first_night $(BENCH_ARGS)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.growth $(BENCH_ARGS)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.always_on $(BENCH_ARGS)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.ingestion $(BENCH_ARGS)

bench-ingestion: classes ## time only how files come in: wide rows, 20,000 files, 205 nights
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.ingestion $(BENCH_ARGS)

bench-maintain: classes ## a thousand micro-batches: size, files and time at the end (an hour)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.maintain $(BENCH_ARGS)

faults-sites: setup ## kill a process at each place that writes; writes docs/fault-sites.md (an hour)
	@$(WITH_JAVA) $(BIN)/python -m tests.faults --aim --steps 200 --minutes 60 \
		--report docs/fault-sites.md $(FAULTS_ARGS)

faults: setup ## a random walk of 300 steps and faults; writes docs/faults.md (an hour or two)
	@$(WITH_JAVA) $(BIN)/python -m tests.faults $(FAULTS_ARGS)

faults-outages: broker classes ## an always-on stream, and what it needs goes away; writes docs/outages.md (20 minutes)
	@$(WITH_JAVA) $(BIN)/python -m tests.faults.outages $(FAULTS_ARGS)

faults-kills: setup ## kill twelve nightly runs at random moments; no row may be missing, no file rejected (10 minutes)
	@$(WITH_JAVA) $(BIN)/python -m tests.faults.kills $(FAULTS_ARGS)

clean: ## remove the environment and all caches, never data
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache spark-warehouse metastore_db derby.log build dist
	find benchmarks jobs src tests tools -type d \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +
