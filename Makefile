# Forebay: the commands of the README. `make run` and `make test` install what they need.

CARGO ?= cargo
PYTHON ?= python3
VENV := .venv
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
CLIENTS := openai==3.52.0 anthropic==2.12.0 langchain-openai==1.7.3 litellm==1.83.0 jsonschema==4.26.0
# What stands before replicas, and what reads what they tell: vllm-router, ZMQ, Kubernetes' schemas.
CLIENTS += vllm-router==0.1.17 aiohttp==3.14.5 pyzmq==27.3.0 msgpack==1.2.4 pyyaml==6.0.3 kubernetes-validate==1.37.0
# Linted and tested beside the default ones. Every lane compiles the same packages with the same features, so that the second finds
# what the first has built: a lane for one package would have Cargo build what is below it once more, with fewer features.
FEATURES := --features kv-events
WORKSPACE := --workspace $(FEATURES)
NEXTEST = $(CARGO) nextest run --locked $(WORKSPACE) --no-fail-fast
NODE_CLIENTS := openai@6.49.0 playwright-core@1.65.1

.DEFAULT_GOAL := help
.PHONY: help run test lint unit clients deploy-tests doc features deny test-postgres fmt check release capi capi-dev venv nextest \
	dashboard bench bench-peers bench-probes tables validate-simulator parity parity-goldens divergence gpu-check gpu-emulated gpu-bench \
	docker clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST)

run: ## build in release mode and serve the embedded model on 127.0.0.1:8080
	$(CARGO) run --release --locked -- serve --config config.yaml

test: lint unit clients deploy-tests doc features deny test-postgres ## every lane below: what CI runs

lint: ## formatting, and clippy with warnings as errors
	$(CARGO) fmt --check
	$(CARGO) clippy --locked $(WORKSPACE) --all-targets -- -D warnings

# The folders of tests/it that need other people's programs.
CLIENTS_TESTS := binary(=it) & test(/^clients::/)
DEPLOY_TESTS := binary(=it) & test(/^deploy::/)

unit: nextest ## all tests that need no programs but Rust's and g++
	$(NEXTEST) -E 'not (($(CLIENTS_TESTS)) + ($(DEPLOY_TESTS)))'

clients: nextest $(VENV)/ready capi-dev ## clients of the server and of the library: packages of PyPI and npm, Chromium, C
	export FOREBAY_TEST_PYTHON=$(CURDIR)/$(VENV)/bin/python; \
	export FOREBAY_TEST_CAPI=$(TARGET)/debug; \
	if [ -d $(VENV)/node_modules/openai ]; then export FOREBAY_TEST_NODE_MODULES=$(CURDIR)/$(VENV)/node_modules; fi; \
	$(NEXTEST) -E '$(CLIENTS_TESTS)'

deploy-tests: nextest $(VENV)/ready ## HAProxy, vllm-router, Prometheus and the files of deploy/, as far as they are installed
	FOREBAY_TEST_PYTHON=$(CURDIR)/$(VENV)/bin/python $(NEXTEST) -E '$(DEPLOY_TESTS)'

doc: ## tests in doc comments
	$(CARGO) test --locked --doc $(WORKSPACE)

# As users build it: tests turn features of dependencies on that a user does not have.
features: ## type-checks other sets of features: none, the C library, KV events, and cuda where there is an nvcc
	$(CARGO) check --locked --no-default-features
	$(CARGO) check --locked --features capi
	$(CARGO) check --locked $(FEATURES)
	@if command -v nvcc >/dev/null; then $(CARGO) check --locked --features cuda; \
	else echo "$@: cuda is not checked, there is no nvcc (docs/gpu.md says how to get it)"; fi

# Known vulnerabilities are left out unless asked for: their list is fetched from GitHub, which a closed machine cannot reach. The
# tool is compiled without optimisation, which takes most of the time; it reads for seconds.
deny: ## licences and sources of dependencies, crates that are not wanted; with ADVISORIES=1 known vulnerabilities, too
	@command -v cargo-deny >/dev/null || $(CARGO) install --locked --debug cargo-deny
	$(CARGO) deny --locked check bans licenses sources $(if $(ADVISORIES),advisories)

# Installs Debian's postgresql if there is none, and starts one of its own.
test-postgres: nextest ## the tests of the store, keys and batches, on PostgreSQL too
	tests/postgres.sh $(NEXTEST) -E 'package(=forebay-store) + (binary(=it) & test(/^http::batches::/))'

nextest:
	@command -v cargo-nextest >/dev/null || $(CARGO) install --locked cargo-nextest

check: ## does it compile?
	$(CARGO) check --locked $(WORKSPACE) --all-targets

# Backtraces of the first have the names of functions, and lines too where the second lies beside it: the first names it. To look
# up an address by hand: addr2line -Cfe forebay.debug ADDRESS.
release: ## what is shipped: target/dist/stripped/forebay, and its line tables in forebay.debug
	$(CARGO) build --locked --profile dist $(FEATURES) --bin forebay
	mkdir -p $(TARGET)/dist/stripped
	cd $(TARGET)/dist/stripped && objcopy --only-keep-debug ../forebay forebay.debug && \
		objcopy --strip-debug --add-gnu-debuglink=forebay.debug ../forebay forebay

capi: ## the C library: libforebay.so and libforebay.a in target/release, for include/forebay.h
	$(CARGO) rustc --locked --release --lib --features capi --crate-type cdylib,staticlib

# With the features that tests turn on below it, so that nothing is compiled once more but crates of our own.
CAPI_FEATURES := capi,kv-events,fail/failpoints,tokio/test-util
CAPI_FEATURES := $(CAPI_FEATURES),forebay-kernels/testing,forebay-store/testing,forebay-text/testing
# In small units, as incremental builds are: across larger ones LLVM compares what may not be there before it asks whether
# it is, which is right, and which valgrind takes for a branch on what nobody wrote.
capi-dev: # what the tests of the C library link
	CARGO_INCREMENTAL=1 $(CARGO) rustc --locked --lib --features $(CAPI_FEATURES) --crate-type cdylib,staticlib

venv: $(VENV)/ready ## the Python of the tests, with the clients

# The clients that drive the real binary in the tests. Node's only where there is a Node.
$(VENV)/ready: Makefile dashboard/package-lock.json
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check $(CLIENTS)
	if command -v npm >/dev/null; then npm install --silent --no-audit --no-fund --prefix $(VENV) $(NODE_CLIENTS) && $(MAKE) $(VENV)/dashboard; fi
	touch $@

# What dashboard/package-lock.json pins, checked against its hashes.
$(VENV)/dashboard: dashboard/package.json dashboard/package-lock.json
	mkdir -p $@
	cp dashboard/package.json dashboard/package-lock.json $@
	npm ci --silent --no-audit --no-fund --ignore-scripts --prefix $@
	touch $@

dashboard: $(VENV)/dashboard ## the files of others in dashboard/vendor, as dashboard/package.json pins them
	cp $(VENV)/dashboard/node_modules/uplot/dist/uPlot.esm.js $(VENV)/dashboard/node_modules/uplot/dist/uPlot.min.css dashboard/vendor/
	cp $(VENV)/dashboard/node_modules/uplot/LICENSE dashboard/vendor/uPlot.LICENSE

fmt: ## format the code
	$(CARGO) fmt

bench: ## ratios, in one run: batch against one sequence, prefill against decode
	$(CARGO) bench --locked --bench step
	$(CARGO) bench --locked --bench stall

bench-probes: ## how long /metrics and /health/* take while every processor computes; the goal is a p99 below 50 ms
	$(CARGO) build --release --locked
	$(PYTHON) benches/scrape.py --forebay $(or $(CARGO_TARGET_DIR),target)/release/forebay

# Ours and theirs in turns; writes docs/performance.md.
bench-peers: ## beside llama.cpp: LLAMA_BENCH=path LLAMA_SERVER=path FILES="a-q4_k_m.gguf b-q8_0.gguf"
	$(CARGO) build --release --locked
	bench=$$($(CARGO) bench --locked --bench model --no-run --message-format=json | \
		sed -n 's/.*"name":"model".*"executable":"\([^"]*\)".*/\1/p' | tail -1); \
	LLAMA_BENCH="$(LLAMA_BENCH)" LLAMA_SERVER="$(LLAMA_SERVER)" \
		$(PYTHON) benches/peers.py --bench "$$bench" --forebay target/release/forebay $(FILES)

tables: ## writes the tables of docs/strategies.md from the simulator
	FOREBAY_BLESS=1 $(CARGO) test --locked -q -p forebay-sim --lib table_tests

# Writes the table of docs/simulator.md; wants a quiet machine.
validate-simulator: ## what `forebay simulate` predicts beside what `forebay bench` measures
	$(CARGO) build --release --locked
	$(PYTHON) benches/validate.py

parity: ## greedy tokens against llama.cpp's, which it compiles once; FILES="a.gguf b.gguf" or random models
	$(CARGO) build --release --locked
	$(PYTHON) tests/parity/parity.py $(FILES)

parity-goldens: ## every golden architecture as a GGUF file, through llama.cpp and through us
	$(CARGO) build --release --locked --bins --example logits
	$$($(PYTHON) -c "import sys; sys.path.insert(0, 'tests/parity'); import parity; parity.CACHE.mkdir(exist_ok=True); print(parity.python())") tests/parity/goldens.py $(FILES)

divergence: ## logits against the same numbers in F32, beside llama.cpp's; FILES as for parity
	$(CARGO) build --release --locked --example logits
	$$($(PYTHON) -c "import sys; sys.path.insert(0, 'tests/parity'); import parity; parity.CACHE.mkdir(exist_ok=True); print(parity.python())") tests/parity/divergence.py $(FILES)

# Both want nvcc (docs/gpu.md). Without a GPU they say so and fail.
HAS_GPU = nvidia-smi -L 2>/dev/null | grep -q . || { echo "$@: there is no NVIDIA GPU here (nvidia-smi lists none)"; exit 1; }

gpu-check: ## on a GPU: every kernel against its definition, goldens, draws, memory that runs out
	@$(HAS_GPU)
	$(CARGO) test --locked -p forebay-model --features cuda --lib -- --test-threads 1 gpu_tests::
	$(CARGO) test --locked -p forebay --features cuda --test it -- --test-threads 1 models::gpu::

# The driver, cuBLAS and the runtime are those of tests/cuda/driver, to link to and to load.
EMULATED := $(TARGET)/emulated-cuda
CUDA_ROOT = $(or $(CUDA_HOME),$(patsubst %/bin/nvcc,%,$(realpath $(shell command -v nvcc))))
CANDLE_KERNELS = $(dir $(shell $(CARGO) metadata --locked --format-version 1 --features cuda | \
	grep -o '"[^"]*/candle-kernels-[^/]*/Cargo.toml"' | head -1 | tr -d '"'))src
EMULATED_BUILD = LIBRARY_PATH=$(EMULATED) CUDA_COMPUTE_CAP=90 $(CARGO) test --locked --features cuda
MODEL_TESTS := -p forebay-model --lib
GPU_TESTS := -p forebay --test it
EMULATED_RUN = LD_LIBRARY_PATH=$(EMULATED) $(EMULATED_BUILD)

gpu-emulated: ## without a GPU, but with nvcc and g++: what gpu-check runs, over an emulated driver
	@command -v nvcc >/dev/null || { echo "$@: there is no nvcc here; docs/gpu.md says how to get it"; exit 1; }
	mkdir -p $(EMULATED)
	$(MAKE) -s -C tests/cuda/driver OUT=$(EMULATED) CUDA_HOME=$(CUDA_ROOT) CANDLE=$(CANDLE_KERNELS)
	$(EMULATED_BUILD) --no-run $(MODEL_TESTS)
	$(EMULATED_BUILD) --no-run $(GPU_TESTS) --bins
	$(EMULATED_RUN) $(MODEL_TESTS) -- --test-threads 1 gpu_tests::
	$(EMULATED_RUN) $(GPU_TESTS) -- --test-threads 1 models::gpu::

gpu-bench: ## on a GPU: an 8B shape beside the roofline and PyTorch; writes docs/gpu.md
	@$(HAS_GPU)
	PYTHON=$(PYTHON) $(CARGO) bench --locked --features cuda --bench gpu

docker: ## the container image
	docker build -t forebay .

clean: ## remove what was built
	$(CARGO) clean
	rm -rf $(VENV) .parity
