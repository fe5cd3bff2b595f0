#!/usr/bin/env bash
# One call on a machine with a GPU: build, GPU tests, a compute-sanitizer subset. Needs no network: everything that the
# build imports must be installed, or lie as wheels in .whl/ (ignored by git). Usage: ci/gpu.sh [build|test|sanitize]...
set -euo pipefail
cd "$(dirname "$0")/.."
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(build test sanitize)
out=${OUT:-build/gpu}
mkdir -p "$out"

build() {
  if compgen -G '.whl/*.whl' >/dev/null; then
    python3 -m pip install -q --no-index --no-deps --no-compile --target build/site .whl/*.whl
  fi
  CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) python3 setup.py -q build_ext --inplace
  python3 -m cake_moe.env
}

run_tests() { python3 -m pytest tests/gpu -q -p no:cacheprovider; }

# The caching allocator would hide out-of-bounds accesses inside its blocks. Only this project's kernels are watched, so the
# selected tests fill their inputs by copies from the host: initcheck does not see what an unwatched kernel writes.
sanitize() {
  local tool
  for tool in memcheck racecheck synccheck initcheck; do watch "$tool" quantize 'operator_shapes or poisoned'; done
  # Not racecheck: it does not know that mbarriers order the expert GEMMs' bulk and asynchronous copies
  # (docs/architecture.md, decisions).
  for tool in memcheck synccheck; do watch "$tool" operator 'under_the_sanitizer'; done
  watch initcheck operator 'under_the_sanitizer and few'
}

# watch TOOL NAME TESTS
watch() {
  local log="$out/$1_$2.log"
  PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool "$1" --error-exitcode 1 \
    --kernel-name kernel_substring=cake_moe --log-file "$log" python3 -m pytest tests/gpu -q -p no:cacheprovider -k "$3"
  printf '%-10s %-9s %s\n' "$1" "$2" "$(tail -n 1 "$log")"
}

export PYTHONPATH=$PWD/build/site:$PWD${PYTHONPATH:+:$PYTHONPATH}
for step in "${steps[@]}"; do
  case $step in
    build) build ;;
    test) run_tests ;;
    sanitize) sanitize ;;
    *) echo "unknown step: $step" >&2; exit 2 ;;
  esac
done
