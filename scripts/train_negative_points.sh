#!/bin/sh
# The prototype's way to start: scripts/train_negative_points.sh --config FILE --output_dir DIR [--key value ...]
# Its keys are accepted in the file and as flags; recipes/points.yaml has the defaults.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
if [ "${1:-}" = "--config" ]; then
  config=$2
  shift 2
  set -- --recipe "$config" "$@"
fi
exec node "$root/bin/roundtrip.mjs" train --recipe points "$@"
