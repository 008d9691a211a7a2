# Every target sets up what it needs: the first one run creates .venv, installs PyTorch and the
# tools into it and compiles. After that only what changed is done again.

PYTHON ?= python3
JOBS ?= $(shell nproc)
TEST_JOBS ?= 2
WERROR ?= OFF
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip -qq --no-input
TORCH := $(shell sed -n 's/^dependencies = .*"\(torch==[^"]*\)".*/\1/p' pyproject.toml)
CMAKE := $(BIN)/cmake -G Ninja -S . -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) \
  -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DSPYRE_WERROR=$(WERROR)
CPP_FILES = $(shell find card torch_spyre/csrc tools -name '*.cpp' -o -name '*.h' -o -name '*.inc')
RUN := $(BIN)/python
NINJA := NINJA_STATUS="[build %f/%t] " $(BIN)/ninja -j $(JOBS)

# lint, test and sanitize go on after a failure with `make --keep-going`.
.PHONY: help venv build demo test test-card test-checked test-clang test-python lint \
  lint-python lint-types lint-cpp format sanitize sanitize-address sanitize-python sanitize-thread \
  fuzz fuzz-loader wheel models bench clean distclean
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

help:  ## list the targets
	@echo "Usage: make TARGET"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile
	@echo "Variables: PYTHON=python3.12  JOBS=2 (compiler)  TEST_JOBS=2 (pytest)"
	@echo "           ARGS='-k streams' (pytest)  WERROR=ON"

# ------------------------------------------------------------------------------------- environment

venv: $(STAMPS)/develop  ## create .venv with PyTorch, the tools and this package

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "torch-spyre needs Python 3.11 or newer; '$(PYTHON)' is" \
	    "$$($(PYTHON) --version 2>&1). Choose another: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "[venv] creating $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "'$(PYTHON) -m venv' failed: install the venv module (Debian: python3-venv)" >&2; exit 1; }

# PyTorch comes first and alone: a resolver that is free to choose may take a much larger build.
# The stamp carries the version, so that another pin installs another PyTorch.
$(STAMPS)/$(TORCH): | $(BIN)/python
	@echo "[venv] installing $(TORCH) (some hundred MB: a minute or more)"
	@$(PIP) install "$(TORCH)"
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/tools: requirements-dev.txt $(STAMPS)/$(TORCH)
	@echo "[venv] installing the build, test and lint tools (about half a minute)"
	@$(PIP) install -r requirements-dev.txt
	@touch $@

$(STAMPS)/develop: pyproject.toml torch_spyre/version.py tools/develop.py $(STAMPS)/tools
	@echo "[venv] making torch_spyre importable from the source tree"
	@$(RUN) tools/develop.py
	@touch $@

# ------------------------------------------------------------------------------------------- build

# ninja runs CMake again by itself when a source file appears or a CMake file changes. The rule
# below is for the first time, a new environment, and another value of WERROR.
build/dev/options: $(STAMPS)/develop FORCE
	@echo "$(WERROR) $(abspath .)" | cmp -s - $@ || { mkdir -p $(@D); \
	  echo "$(WERROR) $(abspath .)" > $@; }

build/dev/build.ninja: build/dev/options $(STAMPS)/tools
	@echo "[build] configuring build/dev"
	@$(CMAKE) -B build/dev -DSPYRE_INPLACE=ON -DSPYRE_TESTS=ON > build/dev/configure.log
	@touch $@

FORCE:

build: build/dev/build.ninja  ## compile into the source tree (first time: some minutes)
	@$(NINJA) -C build/dev spyre_card _C

demo: build  ## a small Granite generates tokens on the card (ARGS='--checkpoint DIR')
	@$(RUN) examples/granite_generate.py $(ARGS)

wheel: $(STAMPS)/tools  ## build a wheel into dist/ (compiles once more, some minutes)
	@echo "[wheel] building into dist/"
	@PATH="$(abspath $(BIN)):$$PATH" CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) \
	  $(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist .
	@ls dist/*.whl

# ------------------------------------------------------------------------------------------- tests

test: test-card test-python  ## run all tests: the card's in C++, then the package's in Python

test-checked: build  ## the Python tests with the card's checker on (long); ARGS selects
	@echo "[test] the Python tests, checked"
	@SPYRE_CARD_CHECK=1 $(RUN) -m pytest -n $(TEST_JOBS) $(ARGS)

test-card: build  ## only the card's C++ tests
	@echo "[test] the card's C++ tests"
	@$(NINJA) -C build/dev card_tests
	@$(BIN)/ctest --test-dir build/dev -j $(TEST_JOBS) --output-on-failure --no-tests=error

# CLANG names another one. The card alone, in a build of its own; its digests of results must be those
# of GCC, and it has no warnings.
CLANG ?= clang++
test-clang: $(STAMPS)/tools  ## the card's C++ tests, built by clang (CLANG=clang++-14)
	@command -v $(CLANG) > /dev/null || { echo "'$(CLANG)' was not found: install clang (Debian:" \
	  "apt install clang), or name one: make test-clang CLANG=/path/to/clang++" >&2; exit 1; }
	@echo "[test] the card's C++ tests, built by $$($(CLANG) --version | head -1)"
	@$(CMAKE) -B build/clang -DCMAKE_CXX_COMPILER=$(CLANG) -DSPYRE_EXTENSION=OFF -DSPYRE_TESTS=ON \
	  -DSPYRE_WERROR=ON > /dev/null
	@$(NINJA) -C build/clang card_tests
	@$(BIN)/ctest --test-dir build/clang -j $(TEST_JOBS) --output-on-failure --no-tests=error

test-python: build  ## only the Python tests; ARGS='-k name' selects
	@echo "[test] the Python tests"
	@$(RUN) -m pytest -n $(TEST_JOBS) $(ARGS)

sanitize: sanitize-address sanitize-python sanitize-thread  ## the card and _C under ASan and UBSan, the card under TSan (long)

# detect_stack_use_after_return gives 64-byte vectors places GCC 12 did not align: a crash of its own.
export ASAN_OPTIONS = detect_stack_use_after_return=0
export UBSAN_OPTIONS = print_stacktrace=1
export TSAN_OPTIONS = halt_on_error=1:second_deadlock_stack=1

sanitize-address: $(STAMPS)/tools  ## the card's C++ tests under ASan and UBSan (CARD_TESTS selects)
	$(call sanitized_build,asan,address$(comma)undefined,$(or $(strip $(CARD_TESTS)),card_tests))
	@$(BIN)/ctest --test-dir build/asan $(CHOSEN) --output-on-failure --no-tests=error

# The thread sanitizer wants a fixed memory map: setarch -R turns its randomisation off.
sanitize-thread: $(STAMPS)/tools  ## the card's C++ tests under TSan (CARD_TESTS selects)
	$(call sanitized_build,tsan,thread,$(or $(strip $(CARD_TESTS)),card_tests))
	@setarch -R $(BIN)/ctest --test-dir build/tsan $(CHOSEN) --output-on-failure --no-tests=error

# CARD_TESTS='card_test_sort card_test_rows' builds and runs these only.
CARD_TESTS ?=
CHOSEN = $(if $(CARD_TESTS),-R '^($(subst $(space),|,$(strip $(CARD_TESTS))))$$')

# A package of its own, of links to the Python files and of the sanitized libraries, comes before
# the source tree. pytest keeps what a process writes, so reports go to files and are shown last.
# Python and PyTorch free little at their end: no leaks are looked for. libstdc++ comes early, too,
# because ASan looks for the function that throws when it starts.
SANITIZED := $(abspath build/asan/package)
sanitize-python: $(STAMPS)/develop  ## Python tests with the card and _C under ASan and UBSan; ARGS selects
	$(call sanitized_build,asan,address$(comma)undefined,spyre_card _C)
	@rm -rf $(SANITIZED) build/asan/report.*
	@mkdir -p $(SANITIZED) && cp -rs $(abspath torch_spyre) $(SANITIZED)
	@rm -rf $(SANITIZED)/torch_spyre/lib $(SANITIZED)/torch_spyre/_C.*.so
	@$(BIN)/cmake --install build/asan --prefix $(SANITIZED) > /dev/null
	@PYTHONPATH=$(SANITIZED):$(abspath tests) PYTHONSAFEPATH=1 PYTHONMALLOC=malloc \
	  LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=$(ASAN_OPTIONS):detect_leaks=0:allocator_may_return_null=1:log_path=$(abspath build/asan/report) \
	  UBSAN_OPTIONS=$(UBSAN_OPTIONS):log_path=$(abspath build/asan/report) \
	  $(RUN) -m pytest -p sanitizing -n $(TEST_JOBS) $(ARGS); \
	  status=$$?; cat build/asan/report.* 2> /dev/null && exit 1; exit $$status

comma := ,
space := $(comma:,=) 
# $(1) build directory, $(2) sanitizers, $(3) targets
define sanitized_build
@echo "[sanitize] $(2)"
@$(CMAKE) -B build/$(1) -DSPYRE_TESTS=ON -DSPYRE_SANITIZE=$(2) > /dev/null
@$(NINJA) -C build/$(1) $(3)
endef

fuzz: build  ## random programs, card against CPU, until stopped (ARGS='--minutes 10 --seed 1')
	@PYTHONPATH=tests $(RUN) -m fuzzing $(ARGS)

# libFuzzer comes with clang.
fuzz-loader: $(STAMPS)/tools  ## random programs for the card's loader, until stopped (clang++)
	@$(CMAKE) -B build/fuzz-loader -DCMAKE_CXX_COMPILER=clang++ -DSPYRE_EXTENSION=OFF \
	  -DSPYRE_TESTS=ON -DSPYRE_SANITIZE=fuzzer-no-link$(comma)address$(comma)undefined > /dev/null
	@$(NINJA) -C build/fuzz-loader card_fuzz_program
	@mkdir -p build/fuzz-loader/corpus
	@build/fuzz-loader/card/card_fuzz_program -max_len=16384 \
	  -artifact_prefix=build/fuzz-loader/ $(ARGS) build/fuzz-loader/corpus

models: build  ## run every model of the zoo on the card and compare with the CPU
	@$(RUN) -m torch_spyre models $(ARGS)

bench: build  ## run the benchmarks
	@for file in $$(grep -l __main__ benchmarks/*.py); do \
	  echo "[bench] $$file"; $(RUN) $$file || exit 1; done

# -------------------------------------------------------------------------------------------- lint

lint: lint-python lint-types lint-cpp  ## check format, style and types of everything

lint-python: $(STAMPS)/tools
	@echo "[lint] ruff"
	@$(BIN)/ruff format --check --quiet --diff .
	@$(BIN)/ruff check --quiet .

lint-types: $(STAMPS)/tools
	@echo "[lint] mypy (the first run reads PyTorch's types: a minute)"
	@$(BIN)/mypy

lint-cpp: $(STAMPS)/tools
	@echo "[lint] clang-format"
	@$(BIN)/clang-format --dry-run -Werror $(CPP_FILES)

format: $(STAMPS)/tools  ## format everything, and fix what the linter can fix
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format .
	@$(BIN)/clang-format -i $(CPP_FILES)

clean:  ## remove what was built
	rm -rf build dist torch_spyre/lib torch_spyre/*.so

distclean: clean  ## and the environment
	rm -rf $(VENV)
