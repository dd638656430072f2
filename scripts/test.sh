#!/usr/bin/env bash
# Runs everything that must pass before a change goes in: lint, the tests of the release build, the Python tests, the tests
# under the sanitizers and half a minute of fuzzing. It stops at the first failure.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh
export REPRISE_SET_UP=1
summary=()

step() {
  local name=$1 begin=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  "$@" || { echo "== $name: FAILED" >&2; exit 1; }
  summary+=("$(printf '%-34s %4d s' "$name" $((SECONDS - begin)))")
}
tests() { ctest --preset "$1" -j "$(nproc)"; }
python_tests() {
  local several=()
  if scripts/python.sh -c 'import xdist' 2> /dev/null; then several=(--dist worksteal -n "$(($(nproc) < 4 ? $(nproc) : 4))"); fi
  REPRISE_CACHE_DIR=$PWD/build/cache scripts/python.sh -m pytest -q --show-capture=no "${several[@]}" tests/torch tests/python
}
have() { ! grep -qxF "$1" build/missing; }

step "lint" scripts/lint.sh
step "release build" scripts/build.sh release
step "release tests" tests release
if [ -n "$(cat build/python)" ]; then
  step "Python tests" python_tests
fi
if have gtest; then
  step "address and undefined build" scripts/build.sh asan
  step "address and undefined tests" tests asan
  step "thread sanitizer build" scripts/build.sh tsan threads_test
  step "thread sanitizer tests" tests tsan
fi
if have libfuzzer; then
  step "fuzz smoke" scripts/fuzz.sh 30
fi

printf '\n== all passed\n'
printf '%s\n' "${summary[@]}"
sed 's/^/SKIPPED, because this is missing: /' build/missing
