#!/usr/bin/env bash
# build.sh <preset> [--configure]: sets up, configures and (unless only that is asked for)
# builds build/<preset>, leaving out what needs the pieces that setup.sh found missing.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
scripts/setup.sh

# without <cmake package> <piece>: the package is left out when the piece is missing.
settings=()
without() {
  local value=OFF
  ! grep -qxF "$2" build/missing || value=ON
  settings+=("-DCMAKE_DISABLE_FIND_PACKAGE_$1=$value")
}
without CLI11 cli11
without GTest gtest
without benchmark benchmark

# The Python modules belong to the release build; the sanitizers do without them.
if [ "$preset" = release ]; then
  python=$(cat build/python)
  modules=$([ -n "$python" ] && echo ON || echo OFF)
  settings+=("-DREPRISE_PYTHON=$modules" "-DREPRISE_TORCH=$modules" ${python:+"-DPython_EXECUTABLE=$python"})
fi

log=build/configure-$preset.log
cmake --preset "$preset" "${settings[@]}" >"$log" 2>&1 || { cat "$log"; exit 1; }
[ "${2:-}" = --configure ] || cmake --build --preset "$preset" -j "$(nproc)"
