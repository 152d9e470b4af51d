# make setup   creates .venv and installs what the program and its tests need
# make demo    learns ten handwritten digits, two at a time, and prints what it achieved
# make test    checks style and runs the tests, all but the slow ones
# make test-slow           runs those: a minute each, whole measurements, processes that are killed
#
# Another interpreter or place: make test PYTHON=python3.13 VENV=.venv313
# On an accelerator:            make demo REQUIREMENTS=requirements-cuda13.txt

VENV ?= .venv
REQUIREMENTS ?= requirements.txt
DEMO ?= runs/digits_b0i2/demo
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# The first of these that runs and is Python 3.11 or newer; a name alone says nothing.
FIND_PYTHON = for python in "$(PYTHON)" python3 python3.13 python3.12 python3.11 python; do \
	[ -n "$$python" ] && "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	2>/dev/null && echo "$$python" && break; done

.PHONY: setup demo test test-slow clean

setup: $(INSTALLED)

$(INSTALLED): $(REQUIREMENTS) requirements.txt requirements-dev.txt
	@python=$$($(FIND_PYTHON)); \
	if [ -z "$$python" ]; then \
	  echo "expected Python 3.11 or newer, found none; install one or say make PYTHON=..." >&2; \
	  exit 2; \
	fi; \
	$(BIN)/python -m pip --version >/dev/null 2>&1 || "$$python" -m venv --clear $(VENV) || { \
	  echo "$$python cannot make virtual environments; install its venv package" >&2; exit 2; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  -r $(REQUIREMENTS) -r requirements-dev.txt
	@touch $@

demo: setup
	$(BIN)/python launch.py --config configs/digits_b0i2.py --workdir $(DEMO)

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest

test-slow: setup
	$(BIN)/python -m pytest -m slow

clean:
	rm -rf $(VENV) $(DEMO)
