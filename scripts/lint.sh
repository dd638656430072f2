#!/usr/bin/env bash
# Format, layering, sizes and clang-tidy. Pieces that setup.sh found missing are left out;
# it has said so.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/build.sh release --configure
missing() { grep -qxF "$1" build/missing; }

if ! missing clang-format; then
  scripts/format.sh --dry-run -Werror
  echo "format: ok"
fi
python3 scripts/check_layering.py
python3 scripts/check_sizes.py
if ! missing clang-tidy; then
  python3 scripts/tidy.py build/release
fi
