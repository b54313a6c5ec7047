"""Loads a trained adapter with transformers and PEFT, and compares its logits with those of the exported model.

usage: python3 check_adapter.py MODEL ADAPTER MERGED
ADAPTER is a folder with adapter_config.json: a checkpoint of a run. MERGED is written by
`npx roundtrip-rl export --model MODEL --adapter ADAPTER --out MERGED`. Fails if a key is missing or unknown, or if logits differ.
"""

import json
import os
import sys

import peft
import torch
import transformers


def open_model(folder):
    with open(os.path.join(folder, "config.json")) as file:
        name = json.load(file)["architectures"][0]
    model, info = getattr(transformers, name).from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    if info["missing_keys"] or info["unexpected_keys"]:
        sys.exit(f"{folder}: missing {sorted(info['missing_keys'])}, unknown {sorted(info['unexpected_keys'])}")
    return model.eval()


def inputs_for(config):
    """Random ids around an image of random patches."""
    torch.manual_seed(0)
    vision, merge = config.vision_config, config.vision_config.spatial_merge_size
    rows, columns = 4 * merge, 6 * merge
    ends = [config.vision_start_token_id, config.vision_end_token_id]
    words = lambda: torch.randint(0, min(config.image_token_id, *ends), (24,)).tolist()
    image = [config.image_token_id] * (rows * columns // merge**2)
    ids = torch.tensor([words() + ends[:1] + image + ends[1:] + words()])
    pixels = torch.randn(rows * columns, 3 * vision.temporal_patch_size * vision.patch_size**2)
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": pixels}
    return {**given, "image_grid_thw": torch.tensor([[1, rows, columns]]), "mm_token_type_ids": (ids == config.image_token_id).int()}


def logits_of(model, given):
    with torch.no_grad():
        try:
            return model(**given).logits
        except (TypeError, ValueError):  # transformers before 5 has no mm_token_type_ids
            return model(**{k: v for k, v in given.items() if k != "mm_token_type_ids"}).logits


def main(folder, adapter, merged):
    transformers.utils.logging.set_verbosity_error()
    base = open_model(folder)
    given = inputs_for(base.config)
    before = logits_of(base, given)
    adapted = peft.PeftModel(base, peft.PeftConfig.from_pretrained(adapter))
    found = adapted.load_adapter(adapter, "default")
    wrapped = sum("lora_A" in name for name, _ in adapted.named_parameters())
    got, want = logits_of(adapted.eval(), given), logits_of(open_model(merged), given)
    size = want.abs().max()
    apart, moved = ((got - want).abs().max() / size).item(), ((got - before).abs().max() / size).item()
    print(f"{type(base).__name__}, transformers {transformers.__version__}, peft {peft.__version__}, torch {torch.__version__}")
    print(f"{wrapped} adapted layers, {len(found.missing_keys)} missing keys, {len(found.unexpected_keys)} unknown keys")
    print(f"logits: {apart:.1e} from the exported model, {moved:.1e} from the model without adapter (of the largest logit)")
    passed = not found.missing_keys and not found.unexpected_keys and apart < 1e-5 and moved > 10 * apart
    print("PASS" if passed else "FAIL")
    return 0 if passed else 1


if len(sys.argv) != 4:
    sys.exit(__doc__)
sys.exit(main(*sys.argv[1:]))
