#!/usr/bin/env bash
# Checks the format, the layering and the sizes, and runs clang-tidy for C++ and ruff and mypy for Python. All checks run,
# even if one fails. Checks whose tools setup.sh found missing are left out; setup.sh has reported them.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh tidy --configure # clang-tidy needs the compile command of each file; nothing is built.
python=$(cat build/python)
failed=()

# check <name> <piece it needs> <command>...: runs one check, unless the piece is missing.
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
