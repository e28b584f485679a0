# Two commands on a fresh machine with Python 3.11 or newer: `make demo` and `make test`. Everything else is made by them.
.DEFAULT_GOAL := help
.PHONY: help demo test check bench soak lock clean

TESTS ?= $(wildcard tests/unit tests/simulation tests/spark tests/chaos tests/cli tests/examples)
BIN := .venv/bin
READY := .venv/.ready

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-7s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(READY) ## a stream that is killed and goes on as if nothing had happened
	@scripts/with_java.sh $(BIN)/cutwater demo

test: check ## the checks, then every test that needs no outside service (TESTS=path for some of them)
	@scripts/with_java.sh scripts/test.sh $(TESTS)

check: $(READY) ## lint, format, types, layering; no test is run
	@failed=; for step in "ruff check ." "ruff format --check ." mypy lint-imports; do \
		$(BIN)/$$step || failed="$$failed '$$step'"; \
	done; [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

bench: $(READY) ## ours and the peers, interleaved; writes bench/results/latest.md and a plot (ARGS=--help for choices)
	@bench/peers/install.sh
	@scripts/with_java.sh $(BIN)/python -m bench $(ARGS)

soak: $(READY) ## the long tests: hours, not minutes
	@scripts/with_java.sh $(BIN)/pytest tests/soak -m soak

lock: $(READY) ## resolve pyproject.toml into requirements.lock anew
	@$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header --quiet --upgrade -o requirements.lock

clean: ## remove what was made here: environments, caches, checkpoints, output
	@rm -rf .venv bench/.venvs bench/results/raw .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis \
		.import_linter_cache build dist checkpoints output spark-warehouse metastore_db derby.log
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements.lock pyproject.toml scripts/setup.sh scripts/apt.sh
	@scripts/setup.sh
