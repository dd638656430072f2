#!/usr/bin/env bash
# wheel.sh <folder>: packs the package that build.sh built into a wheel, with the backend of pyproject.toml. It uses a build
# folder of its own, because a build in the one that pyproject.toml names would compile the package again.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(cat build/python)
[ -n "$python" ] || { echo "wheel.sh: this needs torch, which scripts/setup.sh could not install" >&2; exit 1; }
backend=$(grep '^scikit-build-core==' requirements-dev.txt)
log=build/wheel.log
{
  "$python" -c "import importlib.metadata as m; m.version('${backend%%==*}')" 2>/dev/null ||
    "$python" -m pip install -q --disable-pip-version-check "$backend"
  "$python" -m pip wheel --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir "$1" \
    -C cmake.define.REPRISE_PREBUILT="$PWD/build/release/python" -C build-dir=build/wheel-of-release .
} </dev/null >"$log" 2>&1 || { tail -40 "$log"; exit 1; }
sed -n "s#^.*filename=\([^ ]*\.whl\).*#wheel: $1/\1#p" "$log"
