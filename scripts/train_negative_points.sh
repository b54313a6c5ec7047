#!/bin/sh
# The prototype's way to start: scripts/train_negative_points.sh --config FILE --output_dir DIR [--key value ...]
# Its keys are accepted in the file and as flags; recipes/points.yaml has the defaults.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
for word; do # `--config` means a recipe, wherever it stands
  shift
  case $word in
  --config) word=--recipe ;;
  --config=*) word=--recipe=${word#--config=} ;;
  esac
  set -- "$@" "$word"
done
exec node "$root/bin/roundtrip.mjs" train --recipe points "$@"
