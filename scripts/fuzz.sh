#!/usr/bin/env bash
# fuzz.sh [seconds]: runs every fuzz target, the time split between them, from the committed
# corpus (which it does not change: new inputs go to build/fuzz/corpus).
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
scripts/build.sh fuzz
mapfile -t targets <build/fuzz/tests/fuzz/targets.txt
[ ${#targets[@]} -gt 0 ] || { echo "fuzz: no targets" >&2; exit 1; }

for target in "${targets[@]}"; do
  grown=build/fuzz/corpus/$target
  log=build/fuzz/$target.log
  mkdir -p "$grown"
  if ! build/fuzz/tests/fuzz/"$target" -max_total_time=$((seconds / ${#targets[@]})) -timeout=10 \
    -rss_limit_mb=2048 -artifact_prefix="build/fuzz/$target-" "$grown" "tests/fuzz/corpus/$target" >"$log" 2>&1; then
    tail -60 "$log"
    echo "fuzz: $target FAILED; the input is build/fuzz/$target-*" >&2
    exit 1
  fi
  echo "fuzz: $target: $(grep -E '^Done ' "$log"), corpus of $(find "tests/fuzz/corpus/$target" -type f | wc -l)"
done
