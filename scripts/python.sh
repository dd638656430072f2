#!/usr/bin/env bash
# python.sh <script> [argument]...: runs a script with the interpreter that setup.sh chose and with the package of the
# release build.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(cat build/python)
[ -n "$python" ] || { echo "python.sh: this needs torch, which scripts/setup.sh could not install" >&2; exit 1; }
PYTHONPATH=build/release/python exec "$python" "$@"
