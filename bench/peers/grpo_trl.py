"""The peer's side of `npm run bench -- peers`: TRL's GRPOTrainer on the folder that the bench wrote.

  python grpo_trl.py make FOLDER     writes FOLDER/model, a random Qwen2.5-VL of the size in FOLDER/settings.json
  python grpo_trl.py train FOLDER    trains it and prints a JSON object: seconds, processor seconds and peak memory;
                                     on a GPU a second one, of a run with gradient checkpointing
"""

import gc
import json
import os
import resource
import sys
import time
from pathlib import Path

import torch
from transformers import (
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessorPil,
)

TEMPLATE = (
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}<|im_start|>system\nYou are a helpful assistant."
    "<|im_end|>\n{% endif %}<|im_start|>{{ m.role }}\n{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for c in m.content %}{% if c.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def dtype_of(settings: dict) -> torch.dtype:
    return torch.float32 if settings["device"] == "cpu" else torch.bfloat16


def make(folder: Path, settings: dict) -> None:
    torch.manual_seed(0)
    config = Qwen2_5_VLConfig(**settings["config"])
    with torch.device(settings["device"]):
        model = Qwen2_5_VLForConditionalGeneration(config).to(dtype_of(settings))
    model.save_pretrained(folder / "model")
    # one file for both sides: the flat layout of the released folders
    (folder / "model" / "config.json").write_text(json.dumps(settings["flat"]))


class StillImages(Qwen2_5_VLProcessor):
    """Without a video processor, which would ask for torchvision."""

    def check_argument_for_proper_class(self, name, argument):
        return None if name == "video_processor" else super().check_argument_for_proper_class(name, argument)


def processor_of(folder: Path) -> Qwen2_5_VLProcessor:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "model" / "tokenizer.json"),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        padding_side="left",
    )
    for name in ("image", "video", "vision_start", "vision_end"):
        word = f"<|{name}_pad|>" if name in ("image", "video") else f"<|{name}|>"
        setattr(tokenizer, f"{name}_token", word)
        setattr(tokenizer, f"{name}_token_id", tokenizer.convert_tokens_to_ids(word))
    pixels = json.loads((folder / "model" / "preprocessor_config.json").read_text())
    images = Qwen2VLImageProcessorPil(
        patch_size=pixels["patch_size"],
        merge_size=pixels["merge_size"],
        temporal_patch_size=pixels["temporal_patch_size"],
        image_mean=pixels["image_mean"],
        image_std=pixels["image_std"],
        size={"shortest_edge": pixels["min_pixels"], "longest_edge": pixels["max_pixels"]},
    )
    return StillImages(image_processor=images, tokenizer=tokenizer, video_processor=None, chat_template=TEMPLATE)


def share_of_digits(completions, **_):
    texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
    return [sum(ch.isdigit() for ch in text) / max(len(text), 1) for text in texts]


def train(folder: Path, settings: dict) -> None:
    for checkpointing in [False] if settings["device"] == "cpu" else [False, True]:
        result = json.dumps(train_once(folder, settings, checkpointing))
        for stream in (sys.stdout, sys.stderr):  # the second is seen at once
            print(result, file=stream, flush=True)


def train_once(folder: Path, settings: dict, checkpointing: bool) -> dict:
    from datasets import Dataset, Image
    from peft import LoraConfig
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    cpu = settings["device"] == "cpu"
    if cpu:
        torch.set_num_threads(settings["threads"])
    else:
        gc.collect()  # the run before
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    files = sorted((folder / "images").glob("*.png"))
    text = [{"role": "user", "content": settings["question"]}]
    data = Dataset.from_dict({"prompt": [text] * len(files), "image": [str(f) for f in files]}).cast_column("image", Image())
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder / "model", dtype=dtype_of(settings))
    special = ["image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id"]
    marks: list[tuple[float, float]] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_, **__):
            if not cpu:
                torch.cuda.synchronize()
            marks.append((time.perf_counter(), time.process_time()))

    args = GRPOConfig(
        output_dir=str(folder / "trl"),
        max_steps=settings["steps"],
        per_device_train_batch_size=settings["batch"] * settings["k"],
        num_generations=settings["k"],
        max_completion_length=settings["tokens"],
        generation_kwargs={
            "min_new_tokens": settings["tokens"],
            "suppress_tokens": [settings["flat"][name] for name in special],
        },
        temperature=1.0,
        top_k=0,
        beta=0.0,
        learning_rate=settings["lr"],
        lr_scheduler_type="constant",
        gradient_checkpointing=checkpointing,
        use_cpu=cpu,
        bf16=not cpu,
        save_strategy="no",
        report_to=[],
        logging_steps=1,
        disable_tqdm=True,
        dataloader_num_workers=0,
        seed=1,
    )
    lora = LoraConfig(
        r=settings["rank"], lora_alpha=settings["alpha"], target_modules=r".*language_model.*\.[qkvo]_proj", lora_dropout=0.0
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=share_of_digits,
        args=args,
        train_dataset=data,
        processing_class=processor_of(folder),
        peft_config=lora,
        callbacks=[Clock()],
    )
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "completions/mean_length" in entry]
    host_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "seconds": [b[0] - a[0] for a, b in zip(marks, marks[1:])],
        "processor": [b[1] - a[1] for a, b in zip(marks, marks[1:])],
        "peak": host_peak if cpu else torch.cuda.max_memory_allocated(),
        "tokens": logs[-1]["completions/mean_length"],
        "trained": sum(p.numel() for p in trainer.model.parameters() if p.requires_grad),
        "torch": torch.__version__,
    }


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    what, where = sys.argv[1], Path(sys.argv[2])
    {"make": make, "train": train}[what](where, json.loads((where / "settings.json").read_text()))
