#!/usr/bin/env bash
# One call on a machine with a GPU. Usage: ci/gpu.sh [build|test|sanitize|sanitize-all|downlevel|bench]... (default: the first three)
#   build         in place; everything that it imports must be installed, or lie as wheels in .whl/ (ignored by git)
#   test          tests/gpu
#   sanitize      compute-sanitizer on some kernel instances      sanitize-all   on every instance
#   downlevel     tests/downlevel: the sm_100a kernels on an sm_90 GPU, with and without compute-sanitizer; needs nvcc
#   bench         python -m cake_moe.bench on the GPU
# Needs no network. Logs: $OUT, or build/gpu. A table of the steps comes last; the exit status is 1 where one failed.
set -uo pipefail
cd "$(dirname "$0")/.."
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(build test sanitize)
out=${OUT:-build/gpu}
mkdir -p "$out"
export PYTHONPATH=$PWD/build/site:$PWD${PYTHONPATH:+:$PYTHONPATH}

build() {
  if compgen -G '.whl/*.whl' >/dev/null; then
    python3 -m pip install -q --no-index --no-deps --no-compile --upgrade --target build/site .whl/*.whl || return 1
  fi
  CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) python3 setup.py -q build_ext --inplace && python3 -m cake_moe.env
}

# A line a test as it ends, and the stack of one that takes a minute: a run that is cut short shows how far it came.
run_tests() {
  python3 -m pytest tests/gpu -v -p no:cacheprovider --durations=15 -o faulthandler_timeout=60 >"$out/tests.log" 2>&1
  local status=$?
  grep -E '^(FAILED|ERROR)|^[0-9.]+s (call|setup)|^=+ .* in ' "$out/tests.log"
  return $status
}

bench() { python3 -m cake_moe.bench --device cuda -M 1-16384x2 --launches --host --targets --json "$out/bench.json"; }

# watch TOOL NAME SHARD TESTS [FOLDER]: the selected tests of tests/gpu or FOLDER under a tool, in the background.
# The caching allocator would hide out-of-bounds accesses inside its blocks. Only this project's kernels are watched, so the
# tests fill their inputs by copies from the host: initcheck does not see what an unwatched kernel writes.
watch() {
  local log="$out/$1_$2.log" options=(--error-exitcode 1)
  # racecheck's reports are judged one by one (ci/racecheck_known.py).
  [ "$1" != racecheck ] || options=(--racecheck-report analysis --demangle no)
  (
    CAKE_TEST_SHARD=$3 OMP_NUM_THREADS=2 PYTORCH_NO_CUDA_MEMORY_CACHING=1 timeout 500 \
      compute-sanitizer --tool "$1" "${options[@]}" --print-limit 10000 --kernel-name kernel_substring=cake_moe \
      --log-file "$log" python3 -m pytest "${5:-tests/gpu}" -q -p no:cacheprovider -k "$4" >"$log.tests" 2>&1
    status=$?
    printf '%-10s %-12s %4d s  %s  %s\n' "$1" "$2" $SECONDS "$(tail -n 1 "$log.tests")" "$(tail -n 1 "$log")"
    exit $status
  ) &
  watched+=($!)
}

# finish_watching CODE: waits for them; CODE: the library or folder of machine code that racecheck's reports are about.
finish_watching() {
  local pid failed=0 logs
  for pid in "${watched[@]}"; do wait "$pid" || failed=1; done
  logs=("$out"/racecheck_*.log)
  [ ! -e "${logs[0]}" ] || python3 ci/racecheck_known.py "$1" "${logs[@]}" || failed=1
  return $failed
}

sanitize() {
  local tool watched=()
  rm -f "$out"/racecheck_*.log
  for tool in memcheck racecheck synccheck initcheck; do
    watch "$tool" quick 0/1 'test_quick or operator_shapes or poisoned_neighbours'
  done
  finish_watching cake_moe/libcake_ops.so
}

sanitize_all() {
  local tool shard watched=()
  rm -f "$out"/racecheck_*.log
  for tool in memcheck racecheck synccheck initcheck; do
    watch "$tool" quick 0/1 'test_quick or operator_shapes or poisoned_neighbours'
    for shard in 0 1; do watch "$tool" "instances$shard" "$shard/2" 'test_sanitizer and test_instance'; done
  done
  finish_watching cake_moe/libcake_ops.so
}

downlevel() {
  local tool watched=()
  rm -f "$out"/racecheck_*.log
  timeout 300 python3 -m pytest tests/downlevel/test_gpu.py -q -p no:cacheprovider --durations=5 || return 1
  for tool in memcheck racecheck synccheck initcheck; do
    watch "$tool" downlevel 0/1 test_watched tests/downlevel/test_gpu.py
  done
  finish_watching build/ptxrun/downlevel
}

table=()
failed=0
for step in "${steps[@]}"; do
  begin=$SECONDS
  case $step in
    build) build ;;
    test) run_tests ;;
    sanitize) sanitize ;;
    sanitize-all) sanitize_all ;;
    downlevel) downlevel ;;
    bench) bench ;;
    *) echo "unknown step: $step" >&2; exit 2 ;;
  esac
  status=$?
  table+=("$(printf '%-14s %-8s %5d s' "$step" "$([ $status -eq 0 ] && echo passed || echo FAILED)" $((SECONDS - begin)))")
  [ $status -eq 0 ] && continue
  failed=1
  [ "$step" != build ] || break
done
printf '\n%-14s %-8s %7s\n' step result time
printf '%s\n' "${table[@]}"
exit $failed
