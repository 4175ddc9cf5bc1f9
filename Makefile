# Forebay: the commands of the README. `make run` and `make test` install what they need.

CARGO ?= cargo
PYTHON ?= python3
VENV := .venv
OPENAI_VERSION := 3.52.0

.PHONY: run test lint fmt unit doc bench docker clean

run: ## build in release mode and serve the embedded model on 127.0.0.1:8080
	$(CARGO) run --release --locked -- serve --config config.yaml

test: lint unit doc ## what CI runs

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --locked --all-targets -- -D warnings

unit: $(VENV)/ready
	@command -v cargo-nextest >/dev/null || $(CARGO) install --locked cargo-nextest
	FOREBAY_TEST_PYTHON=$(CURDIR)/$(VENV)/bin/python $(CARGO) nextest run --locked --no-fail-fast

doc:
	$(CARGO) test --locked --doc

# The official client, for the tests that drive the real binary with it.
$(VENV)/ready: Makefile
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check openai==$(OPENAI_VERSION)
	touch $@

fmt:
	$(CARGO) fmt

bench: ## ratios, in one run: batch against one sequence, prefill against decode
	$(CARGO) bench --locked --bench step

docker:
	docker build -t forebay .

clean:
	$(CARGO) clean
	rm -rf $(VENV)
