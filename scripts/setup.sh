#!/usr/bin/env bash
# setup.sh [package]: sets up what the make targets need, and is quick if everything is there. With `package`, it sets up
# only what is needed to build and use the Python package, and nothing for tests, lint and benchmarks.
#
# If apt-get can reach archives that have the missing packages, it installs them, and a failure to install is
# an error. Otherwise it continues with what the machine has and writes the missing pieces to build/missing,
# one per line, for the other scripts to read.
# A script that has called setup.sh sets REPRISE_SET_UP=1 for the scripts it calls.
set -euo pipefail
[ -z "${REPRISE_SET_UP:-}" ] || exit 0
cd "$(dirname "$0")/.."
mkdir -p build
scope=${1:-everything}

fail() { echo "setup: $*" >&2; exit 1; }
have() { command -v "$1" >/dev/null; }

# One line for each Debian package, with four fields: the package, the name of the piece it provides, a command that
# succeeds if the machine has the piece from elsewhere, and what is lost without it. If the last field is empty, the piece
# is required.
pieces() {
  cat <<'LIST'
g++:compiler:have g++:
python3:python3:have python3:
python3-venv:venv:has_ensurepip:no .venv
python3-dev:python-headers:has_python_headers:
cmake:cmake:have cmake:
ninja-build:ninja:have ninja:
nlohmann-json3-dev:nlohmann-json:cmake_has nlohmann_json:
LIST
  [ "$scope" = package ] || cat <<'LIST'
ccache:ccache:have ccache:compiled files are not cached
libcli11-dev:cli11:cmake_has CLI11:no reprise command, no cli tests
libgtest-dev:gtest:cmake_has GTest:no C++ tests
libgmock-dev:gtest:cmake_has GTest:no C++ tests
libbenchmark-dev:benchmark:cmake_has benchmark:no benchmarks
clang-14:libfuzzer:have clang++-14:no fuzz smoke
libclang-rt-14-dev:libfuzzer:clang_has_fuzzer:no fuzz smoke
chromium:chromium:have chromium:no tests of the report's page
clang-format-14:clang-format:have clang-format-14:no format check
clang-tidy-14:clang-tidy:have clang-tidy-14:no clang-tidy
LIST
}

# cmake_has <package>: whether find_package finds it.
cmake_has() {
  local dir="build/.probe/$1"
  mkdir -p "$dir"
  printf 'cmake_minimum_required(VERSION 3.25)\nproject(probe NONE)\nfind_package(%s REQUIRED)\n' "$1" >"$dir/CMakeLists.txt"
  cmake -S "$dir" -B "$dir/out" >/dev/null 2>&1
}
clang_has_fuzzer() {
  have clang++-14 && [ -e "$(clang++-14 -print-resource-dir)/lib/linux/libclang_rt.fuzzer-$(uname -m).a" ]
}

has_python_headers() {
  python3 -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null
}
has_ensurepip() { python3 -c 'import ensurepip' 2>/dev/null; }

# Prints the lines of pieces() that the machine lacks.
missing_pieces() {
  local installed="" package piece probe loss
  if have dpkg-query; then
    installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 2>/dev/null | sed -n 's/^.i  *//p')
  fi
  while IFS=: read -r package piece probe loss; do
    grep -qxF -- "$package" <<<"$installed" || $probe || echo "$package:$piece:$probe:$loss"
  done < <(pieces)
}

root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif have sudo && sudo -n true 2>/dev/null; then sudo -n "$@"
  elif have sudo && [ -t 0 ]; then sudo "$@"
  else fail "installing packages needs root: run \"apt-get install ${packages[*]}\" as root first"
  fi
}
apt() { root env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" </dev/null >>build/apt.log 2>&1; }

check_python() {
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "python3 is $(python3 -V), 3.11 or newer is needed"
}

# Brings .venv up to date without fetching what it already has. If python3 is another version by now, .venv is made anew.
make_venv() {
  local stamp=.venv/requirements.sha256 sum
  sum=$({ python3 -VV; cat requirements*.txt; } | sha256sum)
  [ "$(cat $stamp 2>/dev/null)" != "$sum" ] || return 0  # .venv has everything, so it also has what the package needs.
  [ "$scope" != package ] || stamp=.venv/package.sha256
  [ "$(cat $stamp 2>/dev/null)" != "$sum" ] || return 0
  echo "setup: installing PyTorch and everything else that $requirements names into .venv"
  [ "$(.venv/bin/python -VV 2>/dev/null)" = "$(python3 -VV)" ] || rm -rf .venv
  [ -d .venv ] || python3 -m venv .venv >build/pip.log 2>&1 || { rm -rf .venv; return 1; }
  .venv/bin/python -m pip install -q --disable-pip-version-check -r "$requirements" </dev/null >build/pip.log 2>&1 ||
    return 1
  echo "$sum" >$stamp
}

# Writes to build/python the interpreter that the Python modules are built for. It is the one of .venv, or, if the
# requirements cannot be installed, the machine's own if that has torch and pytest. If there is none, the line is empty and
# the modules are left out.
choose_python() {
  local piece python="" has='import importlib.metadata as m; m.version("torch"); m.version("pytest")'
  local requirements=requirements-dev.txt
  [ "$scope" != package ] || requirements=requirements.txt has='import importlib.metadata as m; m.version("torch")'
  if make_venv; then
    python=$PWD/.venv/bin/python
  elif [ -n "${CI:-}" ]; then
    tail -20 build/pip.log
    fail "could not install $requirements"
  elif python3 -c "$has" 2>/dev/null; then
    python=$(python3 -c 'import sys; print(sys.executable)')
  else
    echo "SKIPPED: $requirements cannot be installed here: no Python modules, no Python tests"
    echo python-packages >>build/missing
  fi
  echo "$python" >build/python
  [ "$scope" != package ] || return 0
  for piece in ruff mypy; do
    [ -n "$python" ] && "$python" -c "import importlib.metadata as m; m.version('$piece')" 2>/dev/null && continue
    echo "SKIPPED: $piece is missing and cannot be installed here: lint runs without it"
    echo "$piece" >>build/missing
  done
}

# install <package>...: installs those of the packages that the archives have. Without a connection, or if this release has
# no such package, the piece stays missing, which is accepted on somebody's machine and is an error in CI.
install() {
  local wanted=() package
  if apt -o APT::Update::Error-Mode=any update; then # Without the option, update succeeds even if no archive can be reached.
    for package in "$@"; do
      ! apt-cache show "$package" >/dev/null 2>&1 || wanted+=("$package")
    done
    [ ${#wanted[@]} = 0 ] || apt install --no-install-recommends "${wanted[@]}" ||
      { tail -20 build/apt.log; fail "could not install: ${wanted[*]}"; }
  fi
  [ ${#wanted[@]} = $# ] || [ -z "${CI:-}" ] ||
    { tail -20 build/apt.log; fail "the package archives do not have all of: $*"; }
}

missing=$(missing_pieces)
if [ -n "$missing" ] && have apt-get; then
  mapfile -t packages < <(cut -d: -f1 <<<"$missing")
  echo "setup: installing ${packages[*]}"
  : >build/apt.log
  install "${packages[@]}"
  missing=$(missing_pieces)
fi

: >build/missing
missing=$(sort -u -t: -k2,2 <<<"$missing")
while IFS=: read -r package piece _ loss; do
  [ -n "$package" ] || continue
  [ -n "$loss" ] || fail "$piece is needed (Debian package $package) and cannot be installed here"
  echo "SKIPPED: $piece is missing and cannot be installed here: $loss"
  echo "$piece" >>build/missing
done <<<"$missing"
# With `package`, the pieces that were not asked for may be missing too; the build then leaves out what needs them.
[ "$scope" != package ] || scope=everything missing_pieces | cut -d: -f2 | sort -u >>build/missing

check_python
choose_python
