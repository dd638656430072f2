#!/usr/bin/env bash
# Format, layering, sizes and clang-tidy of C++, ruff and mypy of Python, all of them even when one fails.
# Checks whose tools setup.sh found missing are left out; setup.sh has reported them.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh tidy --configure # clang-tidy wants the command of each file; nothing is built there
python=$(cat build/python)
failed=()

# check <name> <piece it needs> <command>...
check() {
  local name=$1 piece=$2
  shift 2
  ! grep -qxF "$piece" build/missing || { echo "lint: $name: SKIPPED"; return 0; }
  echo "lint: $name"
  "$@" || failed+=("$name")
}
check format clang-format scripts/format.sh --dry-run -Werror
check layering python3 python3 scripts/checks/layering.py
check sizes python3 python3 scripts/checks/sizes.py
check ruff ruff "$python" -m ruff check --quiet
check mypy mypy "$python" -m mypy
check clang-tidy clang-tidy python3 scripts/checks/tidy.py build/tidy
[ ${#failed[@]} = 0 ] || { echo "lint: FAILED: ${failed[*]}" >&2; exit 1; }
echo "lint: ok"
