#!/usr/bin/env bash
# fuzz.sh [seconds]: runs all fuzz targets at the same time, each for its share of the seconds, from the committed
# corpus. New inputs go to build/fuzz/corpus, so the committed corpus does not change.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
scripts/build.sh fuzz
mapfile -t targets <build/fuzz/tests/fuzz/targets.txt
[ ${#targets[@]} -gt 0 ] || { echo "fuzz: no targets" >&2; exit 1; }

# smoke <target>: runs one target; its output goes to build/fuzz/<target>.log.
smoke() {
  local target=$1 grown=build/fuzz/corpus/$1
  mkdir -p "$grown"
  build/fuzz/tests/fuzz/"$target" -max_total_time=$((seconds / ${#targets[@]})) -timeout=10 \
    -rss_limit_mb=2048 -artifact_prefix="build/fuzz/$target-" "$grown" "tests/fuzz/corpus/$target" >"build/fuzz/$target.log" 2>&1
}

declare -A running
for target in "${targets[@]}"; do
  smoke "$target" &
  running[$target]=$!
done
for target in "${targets[@]}"; do
  log=build/fuzz/$target.log
  if ! wait "${running[$target]}"; then
    tail -60 "$log"
    echo "fuzz: $target FAILED; the input that fails is build/fuzz/$target-*" >&2
    exit 1
  fi
  echo "fuzz: $target: $(grep -E '^Done ' "$log"), corpus of $(find "tests/fuzz/corpus/$target" -type f | wc -l)"
done
