"""What the public Python code computes from a model folder: transformers, PEFT and TRL, in the requested dtype and in float64.

`roundtrip verify --against python` starts it, isolated and offline. `reference.py probe` prints the versions of the packages.
`reference.py FOLDER` reads request.json there and writes inputs.safetensors (drawn by the seed), an adapter in PEFT's layout and
python.safetensors, whose names are `DTYPE/quantity`. With `layers` it also writes folders with the first layers of the model.
"""

import importlib.metadata
import inspect
import json
import os
import re
import sys


def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


if sys.argv[1] == "probe":
    print(json.dumps({name: version(name) for name in ("torch", "transformers", "peft", "trl")}))
    sys.exit(0)

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from torch.overrides import TorchFunctionMode

FOLDER = sys.argv[1]


class Exact(TorchFunctionMode):
    """Casts to float32 inside the public code become casts to float64, so that a float64 pass is float64 throughout."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.Tensor.float:
            return args[0].double()
        if func is torch.Tensor.to:
            args = [torch.float64 if value is torch.float32 else value for value in args]
            kwargs = {key: torch.float64 if value is torch.float32 else value for key, value in kwargs.items()}
        return func(*args, **kwargs)


# loading -------------------------------------------------------------------------------------------------------------


def read_weights(folder, rename):
    """Tensors of a folder under the names that `rename` gives; None leaves one out."""
    index = os.path.join(folder, "model.safetensors.index.json")
    files = ["model.safetensors", "base.safetensors"]
    listed = None
    if os.path.exists(index) and not os.path.exists(os.path.join(folder, files[0])):
        with open(index) as file:
            listed = json.load(file)["weight_map"]
        files = sorted(set(listed.values()))
    state = {}
    for file in files:
        path = os.path.join(folder, file)
        if not os.path.exists(path):
            continue
        with safe_open(path, "pt") as stored:
            for name in stored.keys():
                new = rename(name) if listed is None or name in listed else None
                if new is not None:
                    state[new] = stored.get_tensor(name)
    if not state:
        raise RuntimeError(f"{folder}: no weights in safetensors files")
    return state


def first_layers(folder, count, name):
    """A folder with the first layers of the language model; the towers are kept whole."""
    into = os.path.join(FOLDER, name)
    os.mkdir(into)
    for file in os.listdir(folder):
        if not re.search(r"^config\.json$|\.(safetensors|bin|pth?|index\.json)$", file):
            os.symlink(os.path.join(folder, file), os.path.join(into, file))
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    parts = [part for part in (config, config.get("text_config"), config.get("llm_config")) if part and "num_hidden_layers" in part]
    if count > parts[-1]["num_hidden_layers"]:
        raise RuntimeError(f"--layers: the language model has {parts[-1]['num_hidden_layers']} layers, not {count}")
    for part in parts:
        part["num_hidden_layers"] = count
        if "layer_types" in part:
            part["layer_types"] = part["layer_types"][:count]
    with open(os.path.join(into, "config.json"), "w") as file:
        json.dump(config, file)
    layer = re.compile(r"^(?!vision_model\.|grounding_encoder\.|visual\.)(?:.*\.)?layers\.(\d+)\.")
    kept = lambda name: name if not layer.match(name) or int(layer.match(name)[1]) < count else None
    single = "base" if os.path.exists(os.path.join(folder, "base.safetensors")) else "model"
    save_file(read_weights(folder, kept), os.path.join(into, f"{single}.safetensors"), {"format": "pt"})
    return into


def inside(prefix):
    return lambda name: name[len(prefix) :] if name.startswith(prefix) else None


def llama_of_internlm2(state, config):
    """InternLM2 is Llama with other names and q, k, v in one matrix: for each key head its queries, its key, its value."""
    groups, heads = config["num_key_value_heads"], config["num_attention_heads"]
    names = {"tok_embeddings": "embed_tokens", "attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
    names |= {"attention.wo": "self_attn.o_proj", "feed_forward.w1": "mlp.gate_proj", "feed_forward.w3": "mlp.up_proj"}
    names |= {"feed_forward.w2": "mlp.down_proj", "output.": "lm_head."}
    out = {}
    for name, tensor in state.items():
        if "attention.wqkv" in name:
            rows = tensor.unflatten(0, (groups, heads // groups + 2, -1))
            for part, piece in zip("qkv", (rows[:, :-2], rows[:, -2], rows[:, -1])):
                out[name.replace("attention.wqkv", f"self_attn.{part}_proj")] = piece.reshape(-1, *tensor.shape[1:]).contiguous()
            continue
        for old, new in names.items():
            name = name.replace(old, new)
        out[name] = tensor
    return out


def language_model(config, state):
    kind = config["model_type"]
    if kind == "internlm2":
        state, kind = llama_of_internlm2(state, config), "llama"
        config = {**config, "attention_bias": config.get("bias", False), "mlp_bias": False}
    drop = ("auto_map", "architectures", "torch_dtype", "dtype", "model_type", "attn_implementation", "_attn_implementation")
    settings = transformers.AutoConfig.for_model(kind, **{k: v for k, v in config.items() if k not in drop})
    return transformers.AutoModelForCausalLM.from_config(settings).__class__, settings, state


def grounded_qwen(config, base, state):
    """The whole Qwen-VL of a Sa2VA folder; its config has the keys of the wrapper too."""
    settings = transformers.AutoConfig.for_model(
        base, **{k: v for k, v in config.items() if k not in ("auto_map", "architectures", "torch_dtype", "dtype", "model_type")}
    )
    settings.text_config.vocab_size = state["model.language_model.embed_tokens.weight"].shape[0]
    return transformers.AutoModelForImageTextToText.from_config(settings).__class__, settings, state


def open_model(request, dtype):
    folder, family = request["model"], request["family"]
    with open(os.path.join(folder, "config.json")) as file:
        config = json.load(file)
    if request["trustRemoteCode"] and "auto_map" in config:
        whole = transformers.AutoModel.from_pretrained(folder, trust_remote_code=True, dtype=dtype, local_files_only=True)
        return whole.language_model if family == "sa2va-internvl" else whole.model
    if not family.startswith("sa2va") and family != "language":
        cls = getattr(transformers, config["architectures"][0])
        model, info = cls.from_pretrained(folder, dtype=dtype, local_files_only=True, output_loading_info=True)
    else:
        if family == "language":
            cls, settings, state = language_model(config, read_weights(folder, lambda name: name.removeprefix("language_model.")))
        elif family == "sa2va-internvl":
            cls, settings, state = language_model(config["llm_config"], read_weights(folder, inside("language_model.")))
        else:
            cls, settings, state = grounded_qwen(config, family[len("sa2va-") :], read_weights(folder, inside("model.")))
        model, info = cls.from_pretrained(None, config=settings, state_dict=state, dtype=dtype, output_loading_info=True)
    if info["missing_keys"]:
        missing = sorted(info["missing_keys"])
        raise RuntimeError(f"{cls.__name__} does not find {len(missing)} of its weights in {folder}, such as {missing[0]}")
    return model


# quantities ----------------------------------------------------------------------------------------------------------


def first(value):
    return value[0] if isinstance(value, tuple) else value


class Watch:
    """Records what leaves each part of the model, while it is open."""

    def __init__(self, model, image_rows):
        self.seen, self.handles = {}, []
        text = next(m for m in model.modules() if hasattr(m, "layers") and hasattr(m, "embed_tokens"))
        visual = next((m for m in model.modules() if hasattr(m, "blocks") and hasattr(m, "patch_embed")), None)
        if visual is not None and image_rows is not None:
            self.leaves("visual.patch_embed", visual.patch_embed)
            if hasattr(visual, "pos_embed"):
                self.enters("visual.pos_embed", visual.blocks[0])
            for i, block in enumerate(visual.blocks):
                self.leaves(f"visual.blocks.{i}", block)
            for i, merger in enumerate(getattr(visual, "deepstack_merger_list", [])):
                self.leaves(f"visual.deepstack_merger_list.{i}", merger)
        self.enters("embeddings", text.layers[0])
        for i, after in enumerate([*text.layers[1:], text.norm]):
            self.enters(f"layers.{i}", after)
        self.leaves("norm", text.norm)

    def leaves(self, name, module):
        keep = lambda m, args, out: self.seen.__setitem__(name, first(out).detach())
        self.handles.append(module.register_forward_hook(keep))

    def enters(self, name, module):
        def keep(m, args, kwargs):
            self.seen[name] = (args[0] if args else kwargs["hidden_states"]).detach()

        self.handles.append(module.register_forward_pre_hook(keep, with_kwargs=True))

    def close(self, image_rows):
        for handle in self.handles:
            handle.remove()
        rows = self.seen.pop("embeddings")[0]
        if image_rows is not None:
            self.seen["visual.merger"] = rows[image_rows]
            rows = rows[~image_rows]
        return {**self.seen, "embed_tokens": rows}


def inputs_for(model, ids, image, count=1):
    """Arguments of the model's forward for `count` rows of ids [B, L], each with the image."""
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if image is None:
        return given
    given["pixel_values"] = image["pixel_values"].to(model.dtype).repeat(count, 1)
    given["image_grid_thw"] = image["grid"].repeat(count, 1)
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    if "mm_token_type_ids" in inspect.signature(base.forward).parameters:
        given["mm_token_type_ids"] = (ids == model.config.image_token_id).int()
    return given


def scores(model, stored, image):
    prompt, answer = stored["prompt_ids"], stored["answer_ids"]
    ids = torch.cat([prompt, answer])[None]
    logits = model(**inputs_for(model, ids, image), use_cache=False).logits[0, len(prompt) - 1 : -1]
    logps = logits.float().log_softmax(-1).gather(-1, answer[:, None])[:, 0]
    return logits, logps


def plain_rows(model, stored, image):
    """States of the prompt, part by part, and the scores of the answer."""
    prompt = stored["prompt_ids"]
    rows = None if image is None else prompt == model.config.image_token_id
    with torch.no_grad():
        watch = Watch(model, rows)
        model(**inputs_for(model, prompt[None], image), use_cache=False)
        states = watch.close(rows)
        logits, logps = scores(model, stored, image)
    return {**{f"states.{k}": v for k, v in states.items()}, "logits": logits, "logps": logps, "loss": -logps.mean()}


def greedy(model, stored, image, count):
    ids = stored["prompt_ids"][None]
    model.generation_config = transformers.GenerationConfig(do_sample=False, max_new_tokens=count, pad_token_id=0)
    with torch.no_grad():
        return model.generate(**inputs_for(model, ids, image))[0, ids.shape[1] :]


def margins(model, stored, image, generated):
    """How far the best logit is above the second, for each generated token."""
    with torch.no_grad():
        logits, _ = scores(model, {**stored, "answer_ids": generated}, image)
        best = logits.topk(2, dim=-1).values
        return best[:, 0] - best[:, 1]


def text_layers(model):
    return next(m.layers for m in model.modules() if hasattr(m, "layers") and hasattr(m, "embed_tokens"))


def write_adapter(model):
    """Random LoRA on every linear of the language model's layers, as PEFT writes it."""
    import peft

    inner = {id(m) for m in text_layers(model).modules() if isinstance(m, torch.nn.Linear)}
    names = [name for name, m in model.named_modules() if id(m) in inner]
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=names, init_lora_weights=False)
    adapted = peft.get_peft_model(model, config)
    for name, weight in adapted.named_parameters():
        if "lora_" in name:
            weight.data = 0.1 * torch.randn(weight.shape).to(weight)
    adapted.save_pretrained(os.path.join(FOLDER, "adapter"))
    return adapted.unload()


def with_adapter(model, dtype):
    import peft

    return peft.PeftModel.from_pretrained(model, os.path.join(FOLDER, "adapter"), is_trainable=True).to(dtype)


def gradients(model, loss, part):
    model.zero_grad(set_to_none=True)
    loss.backward()
    named = ((name.replace(".default", ""), p.grad) for name, p in model.named_parameters() if "lora_" in name)
    return {f"{part}.{name}": grad for name, grad in named if grad is not None}


def adapter_rows(model, stored, image):
    loss = -scores(model, stored, image)[1].mean()
    return {"adapter.loss": loss, **gradients(model, loss, "grad")}


def grpo_rows(model, stored, image, settings):
    """The loss of TRL's trainer for given completions. No record is read and no tokenizer of the folder is needed."""
    from datasets import Dataset
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from trl import GRPOConfig, GRPOTrainer

    words = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({"<pad>": 0, "<eos>": 1}, "<pad>")), pad_token="<pad>", eos_token="<eos>"
    )
    completions, mask = stored["completions"], stored["mask"]
    count = len(completions)
    args = GRPOConfig(
        output_dir=os.path.join(FOLDER, "trl"), report_to=[], bf16=False, use_cpu=stored["prompt_ids"].device.type == "cpu",
        per_device_train_batch_size=count, num_generations=count, gradient_checkpointing=False, temperature=1.0,
        max_completion_length=completions.shape[1], **settings,
    )  # fmt: skip
    rows = Dataset.from_dict({"prompt": ["<eos>"] * count})
    trainer = GRPOTrainer(model, reward_funcs=lambda **_: [0.0], args=args, train_dataset=rows, processing_class=words)
    prompts = stored["prompt_ids"][None].repeat(count, 1)
    given = inputs_for(model, torch.cat([prompts, completions], 1), image, count)
    batch = {k: given[k] for k in ("pixel_values", "image_grid_thw", "mm_token_type_ids") if k in given}
    if image is not None:
        batch["num_images"] = [1] * count
    batch |= {"prompt_ids": prompts, "prompt_mask": torch.ones_like(prompts), "completion_ids": completions}
    batch |= {"completion_mask": mask, "advantages": stored["advantages"].to(model.dtype), "num_items_in_batch": mask.sum()}
    batch |= {f"{k}_per_token_logps": stored[f"{k}_logps"].to(model.dtype) for k in ("old", "ref")}
    trainer.model.eval()
    loss = trainer._compute_loss(trainer.model, batch)
    return {"grpo.loss": loss, **gradients(model, loss, "grpo.grad")}


def draw_inputs(model, has_image):
    """A prompt, an answer and completions of random ids without a special meaning; for a Qwen-VL an image of random patches."""
    config, stored, around = model.config, {}, [[], []]
    limit = config.get_text_config().vocab_size
    if has_image:
        vision = config.vision_config
        merge = vision.spatial_merge_size
        rows, columns = 4 * merge, 6 * merge  # more than one window, and sides that differ
        size = 3 * vision.temporal_patch_size * vision.patch_size**2
        stored = {"pixel_values": torch.randn(rows * columns, size), "grid": torch.tensor([[1, rows, columns]])}
        ends = [config.vision_start_token_id, config.vision_end_token_id]
        limit = min(config.image_token_id, *ends)
        around = [ends[:1], [config.image_token_id] * (rows * columns // merge**2) + ends[1:]]
    words = lambda *shape: torch.randint(0, limit, shape)
    lengths = torch.tensor([8, 5, 8, 3])
    mask = (torch.arange(8) < lengths[:, None]).long()
    stored |= {"prompt_ids": torch.cat([words(12), torch.tensor(sum(around, []), dtype=torch.long), words(12)])}
    stored |= {"answer_ids": words(12), "completions": words(4, 8) * mask, "mask": mask}
    return {**stored, "advantages": torch.tensor([1.1, 0.2, -0.4, -0.9])}


def moved_logps(model, stored, image):
    """Scores for the sampler and the KL reference: those of the policy, moved at random."""
    rows = []
    for completion in stored["completions"]:
        with torch.no_grad():
            rows.append(scores(model, {**stored, "answer_ids": completion}, image)[1])
    noise = lambda: (0.6 * torch.rand(stored["mask"].shape) - 0.3).to(rows[0])
    return {f"{name}_logps": (torch.stack(rows) + noise()) * stored["mask"] for name in ("old", "ref")}


def folders(request):
    """The folder that Python reads; with `layers` the first layers of both folders."""
    if not request["layers"]:
        return request["reference"]
    part = first_layers(request["model"], request["layers"], "model")
    if request["reference"] == request["model"]:
        return part
    return first_layers(request["reference"], request["layers"], "reference")


def main():
    with open(os.path.join(FOLDER, "request.json")) as file:
        request = json.load(file)
    transformers.utils.logging.set_verbosity_error()
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(request["seed"])
    device = request["device"] if torch.cuda.is_available() else "cpu"
    model = open_model({**request, "model": folders(request)}, torch.float32).to(device).eval()
    stored = {k: v.to(device) for k, v in draw_inputs(model, request["image"]).items()}
    image = {k: stored[k] for k in ("pixel_values", "grid")} if request["image"] else None
    out = {"generated": greedy(model, stored, image, request["newTokens"])}
    if request["adapter"]:
        model = write_adapter(model)
    for dtype in (torch.float32, torch.float64):
        if dtype is torch.float64:
            model = model.double()
            Exact().__enter__()
            out["margins"] = margins(model, stored, image, out["generated"])
        rows = plain_rows(model, stored, image)
        if request["adapter"]:
            adapted = with_adapter(model, dtype)
            rows |= adapter_rows(adapted, stored, image)
            if request["grpo"]:
                stored = {**moved_logps(adapted, stored, image), **stored}  # float64 keeps the first
                rows |= grpo_rows(adapted, stored, image, request["grpo"])
            model = adapted.unload()
        out |= {f"{str(dtype)[6:]}/{k}": v for k, v in rows.items()}
    plain = lambda tensors, **to: {k: v.detach().to("cpu", **to).contiguous().clone() for k, v in tensors.items()}
    save_file(plain(stored), os.path.join(FOLDER, "inputs.safetensors"))
    save_file(plain(out, dtype=torch.float64), os.path.join(FOLDER, "python.safetensors"))
    print(json.dumps({"class": type(model).__name__}))


try:
    main()
except Exception as error:  # the caller shows the last line
    print(f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
    sys.exit(3)
