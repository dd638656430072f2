#!/usr/bin/env bash
# build.sh <preset> [--configure | <target>...]: sets up, configures and (unless only that is asked
# for) builds build/<preset> or some of it, leaving out what needs the pieces that setup.sh found missing.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
if [ "$*" = reprise_python ]; then scripts/setup.sh package; else scripts/setup.sh; fi

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

# Options for what needs torch. The Python modules belong to the release build, and clang-tidy checks them;
# the sanitizer builds leave them out.
if [ "$preset" != fuzz ]; then
  python=$(cat build/python)
  [ -n "$python" ] || [ "${1:-}" != reprise_python ] ||
    { echo "build.sh: the Python package needs torch; see what setup.sh said" >&2; exit 1; }
  modules=$([ -n "$python" ] && echo ON || echo OFF)
  settings+=("-DREPRISE_TORCH=$modules" ${python:+"-DPython_EXECUTABLE=$python"})
  case $preset in release | tidy) settings+=("-DREPRISE_PYTHON=$modules") ;; esac
fi

log=build/configure-$preset.log
cmake --preset "$preset" "${settings[@]}" >"$log" 2>&1 || { cat "$log"; exit 1; }
[ "${1:-}" = --configure ] || cmake --build --preset "$preset" -j "$(nproc)" ${1:+--target "$@"}
