#!/usr/bin/env bash
# Runs everything that must pass before a change goes in: lint, the tests of the release build, the Python tests, the tests
# under the sanitizers and half a minute of fuzzing. It stops at the first failure.
#
# The builds for sanitizers and for fuzzing begin at once, with the lowest priority: they take the cores whenever the other
# stages leave one idle, and what is left of them is built before the stages that need them.
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

other_builds() {
  if have gtest; then
    scripts/build.sh asan && scripts/build.sh tsan threads_test || return 1
  fi
  if have libfuzzer; then scripts/build.sh fuzz || return 1; fi
}
begin_other_builds() {
  set -m # The job gets a process group of its own, so that it can be ended with everything it has started.
  { renice -n 19 "$BASHPID" && other_builds; } >build/other_builds.log 2>&1 &
  others=$!
  set +m
  trap 'kill -- "-$others" 2>/dev/null || true' EXIT
}
end_other_builds() {
  wait "$others" || { tail -60 build/other_builds.log; return 1; }
  trap - EXIT
}

begin_other_builds
step "lint" scripts/lint.sh
step "release build" scripts/build.sh release
step "release tests" tests release
if [ -n "$(cat build/python)" ]; then
  step "Python tests" python_tests
fi
step "what is left of the other builds" end_other_builds
if have gtest; then
  step "address and undefined tests" tests asan
  step "thread sanitizer tests" tests tsan
fi
if have libfuzzer; then
  step "fuzz smoke" scripts/fuzz.sh 30
fi

printf '\n== all passed\n'
printf '%s\n' "${summary[@]}"
sed 's/^/SKIPPED, because this is missing: /' build/missing
