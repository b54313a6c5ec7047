"""What the public Python code makes of a folder and of given inputs: features, states, logits, log-probs, masks.

usage: python3 reference.py --code DIR --model DIR --inputs FILE --out NAME [--device cuda|cpu]
Writes NAME-float32.safetensors, and on a card NAME-bfloat16.safetensors too. DIR of --code is projects/sa2va/hf of the public Sa2VA repository. Needs torch, transformers and safetensors.
"""
import argparse
import gc
import importlib
import json
import os
import sys
import types

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

packages = {"internvl": "models", "qwen2_5_vl": "models_qwen2_5_vl", "qwen3_vl": "models_qwen3vl"}


class Anything(types.ModuleType):
    """Stands for a package that the public code imports and does not use on this path."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def stand_in(names):
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:
            sys.modules[name] = Anything(name)
            if name == "einops":
                sys.modules[name].rearrange = rearrange


def rearrange(x, pattern, **sizes):
    """The two patterns of InternLM2's attention, where einops is not installed."""
    if pattern == "b q (h gs d) -> b q h gs d":
        return x.unflatten(-1, (-1, sizes["gs"], sizes["d"]))
    if pattern == "b q h gs d -> b q (h gs) d":
        return x.flatten(2, 3)
    raise SystemExit(f"install einops: {pattern}")


def family_of(config):
    text = config.get("text_config")
    if text is None:
        return "internvl"
    return "qwen3_vl" if text["model_type"].startswith("qwen3") else "qwen2_5_vl"


def public_class(code, family):
    sys.path.insert(0, code)
    # what the public code takes of transformers is loaded before packages stand in: it asks which of them are installed
    for name in ["AutoModel", "Qwen2ForCausalLM", "LlamaForCausalLM", "GenerationConfig", "StoppingCriteriaList"]:
        getattr(transformers, name)
    if family != "internvl":
        getattr(transformers, {"qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL"}[family] + "ForConditionalGeneration")
    stand_in(["torchvision", "torchvision.transforms", "torchvision.transforms.functional", "einops", "timm"])
    stand_in(["timm.models", "timm.models.layers", "qwen_vl_utils", "peft"])
    package = packages[family]
    if family != "internvl":
        config = importlib.import_module(f"{package}.configuration_sa2va_chat")
        return importlib.import_module(f"{package}.modeling_sa2va_qwen").Sa2VAChatModelQwen, config.Sa2VAChatConfigQwen
    for other in ["modeling_internlm2", "modeling_phi3"]:
        try:
            importlib.import_module(f"{package}.{other}")
        except Exception as error:
            print(f"{other}: stands aside, this transformers cannot import it ({error})")
            sys.modules[f"{package}.{other}"] = Anything(f"{package}.{other}")
    config = importlib.import_module(f"{package}.configuration_sa2va_chat")
    return importlib.import_module(f"{package}.modeling_sa2va_chat").Sa2VAChatModel, config.Sa2VAChatConfig


def weights_of(folder):
    files = sorted(f for f in os.listdir(folder) if f.endswith(".safetensors"))
    for file in files:
        with safe_open(os.path.join(folder, file), "pt") as f:
            for name in f.keys():
                yield name, f.get_tensor(name)


def load(model, folder):
    """Every stored tensor has a place of its shape and every parameter a stored tensor."""
    places = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    left = {name for name, _ in model.named_parameters()}
    extra = []
    with torch.no_grad():
        for name, value in weights_of(folder):
            if name not in places:
                extra.append(name)
                continue
            if places[name].shape != value.shape:
                raise SystemExit(f"{name}: {tuple(places[name].shape)} there, {tuple(value.shape)} in the file")
            places[name].copy_(value)
            left.discard(name)
    print(f"loaded; without a stored tensor: {sorted(left) or 'none'}; stored and unknown: {extra or 'none'}")
    if left or extra:
        raise SystemExit("the names differ")


def open_model(args, config, dtype):
    family = family_of(config)
    model_class, config_class = public_class(args.code, family)
    config = config_class(**{k: v for k, v in config.items() if k != "torch_dtype"})
    config._attn_implementation = "eager"
    if family == "internvl" and config.llm_config.architectures[0] == "InternLM2ForCausalLM":
        config.llm_config.rope_scaling = None  # newer transformers put an entry there that the public class cannot read
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(args.device):
            model = model_class(config, use_flash_attn=False)
    finally:
        torch.set_default_dtype(before)
    fresh_tables(model)
    load(model, args.model)
    return family, model.eval()


def fresh_tables(model):
    """Frequencies are float32 in a model that was loaded, whatever its weights are."""
    for module in model.modules():
        for name, table in list(getattr(module, "_buffers", {}).items()):
            if table is not None and name.endswith("inv_freq") and table.dtype != torch.float32:
                module._buffers[name] = rope_of(module, table)


def rope_of(module, table):
    with torch.device(table.device):
        if hasattr(module, "config"):
            made = type(module)(module.config)
        else:
            made = type(module)(module.dim, module.theta)
    return made.inv_freq.float()


class Watch:
    """Outputs and inputs of modules by name."""

    def __init__(self):
        self.seen = {}

    def output(self, name, module):
        module.register_forward_hook(lambda _m, _i, out: self.seen.__setitem__(name, out))

    def input(self, name, module):
        module.register_forward_hook(lambda _m, given, _o: self.seen.__setitem__(name, given[0]))


def internvl_states(model, inputs, dtype, watch):
    language = model.language_model
    watch.output("states", language.model.norm)
    tokens = model.extract_feature(inputs["pixels"].to(dtype))
    embeddings = language.get_input_embeddings()(inputs["ids"]).clone()
    embeddings[0, inputs["image_positions"]] = tokens.flatten(0, 1).to(embeddings.dtype)
    out = language(inputs_embeds=embeddings, use_cache=False)
    return {"vision": tokens.flatten(0, 1)}, out.logits, watch.seen["states"]


def qwen_states(model, inputs, dtype, watch, family):
    inner = model.model
    watch.output("vision", inner.model.visual)
    state = watch.input if family == "qwen3_vl" else watch.output
    state("states", inner.model.language_model.norm)
    image_id = inner.config.image_token_id
    given = dict(input_ids=inputs["ids"], pixel_values=inputs["pixels"].to(dtype), image_grid_thw=inputs["grid"][None])
    given["mm_token_type_ids"] = (inputs["ids"] == image_id).int()
    given["attention_mask"] = torch.ones_like(inputs["ids"])
    try:
        out = inner(**given, use_cache=False)
    except (TypeError, ValueError):
        given.pop("mm_token_type_ids")
        out = inner(**given, use_cache=False)
    vision = watch.seen["vision"]
    return vision_parts(vision), out.logits, watch.seen["states"]


def vision_parts(vision):
    """The tower's output is a tensor, a pair with the deepstack list, or an object with both, by version."""
    if torch.is_tensor(vision):
        return {"vision": vision}
    if isinstance(vision, tuple):
        tokens, deepstack = vision[0], vision[1]
    else:
        tokens, deepstack = vision.pooler_output, getattr(vision, "deepstack_features", None)
    parts = {"vision": whole(tokens)}
    for j, states in enumerate([] if deepstack is None else deepstack):
        parts[f"deepstack{j}"] = whole(states)
    return parts


def whole(tokens):
    """Some versions give a list with the tokens of each picture."""
    return tokens if torch.is_tensor(tokens) else torch.cat(list(tokens))


def masks_of(model, inputs, prompt, dtype, watch):
    encoder = model.grounding_encoder
    sam = encoder.sam2_model
    watch.output("decoded", sam.sam_mask_decoder)
    watch.output("image", sam.image_encoder)
    pixels = encoder.preprocess_image(inputs["sam_image"].to(dtype), dtype=dtype)[None]
    state = encoder.get_sam2_embeddings(pixels)
    state["device"] = state["storage_device"] = pixels.device
    with torch.autocast(device_type=pixels.device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        encoder.inject_language_embd(state, [prompt])
    low_res, ious = watch.seen["decoded"][:2]
    levels = watch.seen["image"]["backbone_fpn"]
    return {"sam.level2": levels[2], "masks": low_res, "ious": ious}


def compute(args, name):
    config = json.load(open(os.path.join(args.model, "config.json")))
    dtype = getattr(torch, name)
    family, model = open_model(args, config, dtype)
    inputs = {key: t.to(args.device) for key, t in load_file(args.inputs).items()}
    watch = Watch()
    start, seg = int(inputs["answer_start"]), int(inputs["seg"])
    with torch.no_grad():
        if family == "internvl":
            parts, logits, states = internvl_states(model, inputs, dtype, watch)
        else:
            parts, logits, states = qwen_states(model, inputs, dtype, watch, family)
        answer = inputs["ids"][0, start:]
        predicting = logits[0, start - 1 : -1].float()
        parts["logits"] = predicting
        parts["logps"] = predicting.log_softmax(-1).gather(-1, answer[:, None])[:, 0]
        parts["states"] = states[0, start:]
        parts["prompt"] = model.text_hidden_fcs(states[0, seg][None])
        parts.update(masks_of(model, inputs, parts["prompt"], dtype, watch))
    plain = {part: t.float().contiguous().cpu() for part, t in parts.items()}
    save_file(plain, f"{args.out}-{name}.safetensors")
    where = f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB" if args.device == "cuda" else args.device
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(f"{family} {name}: {len(parts)} quantities, {where}, {versions}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ["code", "model", "inputs", "out"]:
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if args.device == "cpu":
        torch.Tensor.cuda = lambda self, *_, **__: self
    for name in ["float32", "bfloat16"] if args.device == "cuda" else ["float32"]:
        compute(args, name)
        gc.collect()
        if args.device == "cuda":
            torch.cuda.empty_cache()


main()
