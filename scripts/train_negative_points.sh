#!/bin/sh
# Starts a run from the prototype's config file. recipes/negative-points.yaml has the values that its code fixes.
set -eu
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
if [ $# -eq 0 ]; then
  cat >&2 <<TEXT
usage: scripts/train_negative_points.sh --config FILE --output_dir DIR [--key value ...]

Trains a vision-language model to place points for SAM2, with the keys of the prototype's configs/negative_points_config.yaml:
  model_path      folder of the model (config.json, weights, tokenizer)
  sam_checkpoint  SAM2 checkpoint
  train_data      arrow_dir (shards) and mask_dir (masks named by id), or any data of docs/data.md
Every key is also a flag, and so is every setting (npx roundtrip-rl settings): --max_steps 10 --dry-run shows the first record.

example: scripts/train_negative_points.sh --config configs/negative_points_config.yaml --output_dir outputs/negative_points_exp1
TEXT
  exit 2
fi
for word; do # `--config` means a recipe, in any position
  shift
  case $word in
  --config) word=--recipe ;;
  --config=*) word=--recipe=${word#--config=} ;;
  esac
  set -- "$@" "$word"
done
exec node "$root/bin/roundtrip.mjs" train --recipe negative-points "$@"
