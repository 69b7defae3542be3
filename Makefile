# make demo  - see it work: cross-validates Wine under Prefect, on a Dask cluster of two processes
# make test  - the test suite
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO := $(VENV)/.demo

# Of the server that `ism-dask up` keeps.
API = $(BIN)/ism-dask up --status --json | $(BIN)/python -c 'import json, sys; \
	api = [each["address"] for each in json.load(sys.stdin)["services"] if each["name"] == "up"]; \
	print(*api) if any(api) else sys.exit("no Prefect server of ism-dask runs: start it with ism-dask up")'
POOL = local-process
# When `make deploy FILE=...` refreshes a run: at two in the night, UTC.
CRON = 0 2 * * *
# Tests run in three processes side by side, one more than there are cores: much of the time they
# wait for servers and workers to start. tests/conftest.py says which ones stay together, and which
# ones begin.
BESIDE = --numprocesses 3 --dist loadgroup --no-loadscope-reorder
# Tests and services start many processes, each of which would compile our modules anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo install test chaos claims long fuzz docs package deploy browser tools lint format bench bench-scale clean help

help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# uv takes a quarter of the time of pip. It reads none of pip's settings, such as an index of packages:
# where it fails, pip does the work, from the first version on that knows dependency groups.
define install
	@$(BIN)/python -m pip install --quiet uv && $(BIN)/uv pip install --quiet --python $(BIN)/python $(1) || { \
		echo "uv could not install this: pip does."; \
		$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1' && $(BIN)/python -m pip install --quiet --no-compile $(1); }
endef

$(READY): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing what the tests need into $(VENV): some two minutes."
	$(call install,--constraint constraints.txt --editable '.[all]' --group dev)
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests?/' $(VENV)/lib || true  # on all cores, without tests of packages
	@touch $@ $(DEMO)

# The demo needs the workflow, and no more; it compiles what it imports.
$(DEMO): pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing the workflow into $(VENV): less than a minute."
	$(call install,--constraint constraints.txt --editable '.[flows]')
	@touch $@

demo: export ISM_DASK_HOME = $(abspath $(VENV))/demo-home
demo: $(DEMO)  ## Ten folds of Wine under Prefect on two Dask processes: ISM and prediction beside PCA and LDA
	@$(BIN)/ism-dask up --detach --workers 2 && trap '$(BIN)/ism-dask up --stop' EXIT \
		&& $(BIN)/ism-dask crossval wine --criterion both --scheduler up \
		&& if [ -t 0 ]; then read -p 'The links work until you press Enter: ' _; fi

install: $(READY)  ## Make .venv with the package and all that the tests need (some two minutes)

test: $(READY)  ## Run the test suite (three minutes on two cores)
	$(BIN)/python -m pytest $(BESIDE) -m 'not chaos and not long'

chaos: $(READY)  ## Inject every fault in full numbers: processes are killed, files torn, servers stopped (two hours)
	$(BIN)/python -m pytest $(BESIDE) -m 'chaos or faults'

claims: $(READY)  ## Compare what 14,000 fits claim of their answers with the definition (an hour)
	$(BIN)/python -m pytest $(BESIDE) -m 'minutes and not chaos'

long: $(READY)  ## Run tests of up to two minutes each: documentation, clusters, servers, a few of every fault
	$(BIN)/python -m pytest $(BESIDE) -m '(long or chaos) and not minutes'
	FUZZ_SECONDS=1 $(BIN)/python -m pytest -q tests/fuzzing/altered_files.py

fuzz: $(READY)  ## Alter files of every kind at random, ten minutes for each reader; FINDINGS=folder has what fails
	FUZZ_SECONDS=600 FUZZ_SEED=$$(date +%j) nice $(BIN)/pytest -q tests/fuzzing/altered_files.py

browser:  ## Install the Chromium of Debian that the tests of pages open (needs root)
	@command -v chromium >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends chromium; }

tools: $(READY)  ## Install what the tests of clusters and deploy/ run: SLURM, Compose, ip (needs root), kubectl, caddy
	@PATH=$$PATH:/usr/sbin; for tool in slurmctld docker-compose ip openssl systemd-analyze; do command -v $$tool >/dev/null || missing=1; done; \
		[ -z "$$missing" ] || { apt-get update -q \
		&& apt-get install -qy --no-install-recommends slurm-wlm docker-compose iproute2 openssl systemd; }
	@$(BIN)/python tests/install_tools.py

lint: $(READY)  ## ruff, ruff format, mypy strict, import-linter, the syntax of scripts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	for script in .ci/* deploy/slurm/driver.sbatch; do bash -n $$script || exit 1; done

docs: $(READY)  ## Build the documentation site in docs/_build, offline, and check its links
	$(BIN)/sphinx-build --quiet -W --keep-going -b html docs docs/_build
	$(BIN)/python docs/check_links.py docs/_build

package: $(READY)  ## Build the wheel, install it into an environment of its own, and try it there
	rm -rf dist && mkdir dist
	$(BIN)/python -m build --outdir dist . >dist/build.log || { cat dist/build.log; exit 1; }
	$(PYTHON) -m venv dist/env
	dist/env/bin/python -m pip install --quiet --constraint constraints.txt "$$(echo dist/*.whl)[flows]"
	cd dist && env/bin/python -I ../tests/try_installed.py

format: $(READY)  ## Put the code into the format of the house
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

deploy: $(READY)  ## Schedule deploy/prefect.yaml, or FILE=run.toml [CRON='0 2 * * *'], on the server of `ism-dask up`
ifdef FILE
	@$(BIN)/ism-dask schedule '$(FILE)' --cron '$(CRON)'
else
	@api=$$($(API)) && export PREFECT_API_URL=$$api DO_NOT_TRACK=1 && \
		{ $(BIN)/prefect work-pool inspect $(POOL) >/dev/null 2>&1 \
			|| $(BIN)/prefect work-pool create $(POOL) --type process; } && \
		$(BIN)/prefect --no-prompt deploy --all --prefect-file deploy/prefect.yaml
endif

bench: $(READY)  ## Measure every figure; writes docs/measured/bench.json and figures.md
	$(BIN)/python -m benchmarks

bench-scale: $(READY)  ## Measure a million rows on two workers of 2 GB (some 30 minutes)
	$(BIN)/python -m benchmarks scale

clean:  ## Remove the environment and what tools leave behind
	rm -rf $(VENV) *.egg-info dist docs/_build docs/auto_* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
