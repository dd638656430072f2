#!/usr/bin/env bash
# build.sh <preset> [--configure | <target>...]: sets up, configures build/<preset>, and builds all of it or the
# targets; with --configure it stops before building. What needs a piece that setup.sh found missing is left out.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
if [ "$*" = reprise_python ]; then scripts/setup.sh package; else scripts/setup.sh; fi

# without <CMake package> <piece>: leaves the package out if the piece is missing.
settings=()
without() {
  local value=OFF
  ! grep -qxF "$2" build/missing || value=ON
  settings+=("-DCMAKE_DISABLE_FIND_PACKAGE_$1=$value")
}
without CLI11 cli11
without GTest gtest
without benchmark benchmark

# Options for what needs torch. The Python modules are part of the release build, and clang-tidy checks them; the
# sanitizer builds leave them out.
if [ "$preset" != fuzz ]; then
  python=$(cat build/python)
  [ -n "$python" ] || [ "${1:-}" != reprise_python ] ||
    { echo "build.sh: the Python package needs torch, which scripts/setup.sh could not install" >&2; exit 1; }
  modules=$([ -n "$python" ] && echo ON || echo OFF)
  settings+=("-DREPRISE_TORCH=$modules" ${python:+"-DPython_EXECUTABLE=$python"})
  case $preset in release | tidy) settings+=("-DREPRISE_PYTHON=$modules") ;; esac
fi

log=build/configure-$preset.log
cmake --preset "$preset" "${settings[@]}" >"$log" 2>&1 || { cat "$log"; exit 1; }
[ "${1:-}" = --configure ] || cmake --build --preset "$preset" -j "$(nproc)" ${1:+--target "$@"}
