#!/usr/bin/env bash
# format.sh <option of clang-format>...: runs clang-format over all C++ files of the repository.
set -euo pipefail
cd "$(dirname "$0")/.."
folders=()
for folder in include src runtime python tools tests bench examples; do
  [ ! -d $folder ] || folders+=("$folder")
done
find "${folders[@]}" \( -name '*.h' -o -name '*.cc' \) -print0 | xargs -0 clang-format-14 "$@"
