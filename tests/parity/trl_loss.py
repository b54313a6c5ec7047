"""Golden cases of TRL's own loss code: python tests/parity/trl_loss.py > tests/fixtures/trl-loss.json

Needs torch and the source of trl 1.13 (pip install --no-deps trl==1.13.0 torch). The trainer's methods are taken from its file and run
unchanged, so that none of the other dependencies is imported. Everything is computed in float64.
"""

import ast
import importlib.util
import json
import math
import os
import types
from collections import defaultdict

import torch

METHODS = ["_compute_loss", "get_off_policy_mask", "get_gamma_weights", "get_high_entropy_mask"]


def trl_methods():
    folder = os.path.dirname(importlib.util.find_spec("trl").origin)
    source = open(os.path.join(folder, "trainer", "grpo_trainer.py")).read()
    trainer = next(n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == "GRPOTrainer")
    trainer.bases, trainer.decorator_list, trainer.keywords = [], [], []
    trainer.body = [n for n in trainer.body if isinstance(n, ast.FunctionDef) and n.name in METHODS]
    nan = lambda value: (lambda t: value(t[~t.isnan()]) if (~t.isnan()).any() else torch.tensor(math.nan))
    scope = {"torch": torch, "math": math, "nanmin": nan(torch.min), "nanmax": nan(torch.max)}
    module = ast.Module(body=[trainer], type_ignores=[])
    exec(compile(ast.fix_missing_locations(module), "grpo_trainer.py", "exec"), scope)
    return scope["GRPOTrainer"]


class OneProcess:
    num_processes = 1
    sync_gradients = True
    gather = staticmethod(lambda t: t.reshape(-1))
    pad_across_processes = staticmethod(lambda t, **_: t)
    reduce = staticmethod(lambda t, **_: t)


DEFAULTS = dict(
    loss_type="dapo", importance_sampling_level="token", beta=0.0, epsilon=0.2, epsilon_high=None, delta=None,
    max_completion_length=512, use_bias_correction_kl=True, top_entropy_quantile=1.0, entropy_coef=0.0,
    off_policy_mask_threshold=None, gradient_accumulation_steps=1, steps_per_generation=1,
)


def run(trainer_class, batch, config):
    c = {**DEFAULTS, **config}
    self = trainer_class.__new__(trainer_class)
    for name in ["loss_type", "importance_sampling_level", "beta", "max_completion_length", "top_entropy_quantile",
                 "entropy_coef", "off_policy_mask_threshold"]:
        setattr(self, name, c[name])
    self.epsilon_low = c["epsilon"]
    self.epsilon_high = c["epsilon"] if c["epsilon_high"] is None else c["epsilon_high"]
    self.args = types.SimpleNamespace(
        delta=c["delta"], use_bias_correction_kl=c["use_bias_correction_kl"], steps_per_generation=c["steps_per_generation"],
        sapo_temperature_pos=1.0, sapo_temperature_neg=1.05, vespo_k_pos=2.0, vespo_lambda_pos=3.0, vespo_k_neg=3.0,
        vespo_lambda_neg=2.0,
    )
    self.current_gradient_accumulation_steps = c["gradient_accumulation_steps"]
    self.aux_loss_enabled = self.use_vllm = self.use_adaptive_entropy = False
    self._entropy_bonus_enabled = c["entropy_coef"] != 0.0
    self.accelerator, self.model = OneProcess(), types.SimpleNamespace(training=True)
    self._metrics = {"train": defaultdict(list)}
    tensor = lambda rows: torch.tensor(rows, dtype=torch.float64)
    logps = tensor(batch["logps"]).requires_grad_()
    entropies = tensor(batch["entropies"]).requires_grad_()
    self._get_per_token_logps_and_entropies = lambda *a, **k: (logps, entropies, None)
    mask = tensor(batch["mask"])
    empty = torch.zeros(mask.shape[0], 0)
    inputs = dict(prompt_ids=empty, prompt_mask=empty, completion_ids=mask, completion_mask=mask,
                  advantages=tensor(batch["advantages"]), num_items_in_batch=torch.tensor(batch["generation_tokens"], dtype=torch.float64))
    if batch.get("old_logps"):
        inputs["old_per_token_logps"] = tensor(batch["old_logps"])
    if c["beta"] != 0:
        inputs["ref_per_token_logps"] = tensor(batch["ref_logps"])
    loss = self._compute_loss(None, inputs)
    loss.backward()
    zero = torch.zeros_like(mask)
    metrics = {key: values[0] for key, values in self._metrics["train"].items() if key != "entropy_coef"}
    return dict(loss=loss.item(), grad_logps=logps.grad.tolist(),
                grad_entropies=(zero if entropies.grad is None else entropies.grad).tolist(),
                metrics={k: (None if math.isnan(v) else v) for k, v in metrics.items()})


def batch_of(generator, rows=4, columns=6, on_policy=False):
    draw = lambda low, high: [[round(low + (high - low) * torch.rand((), generator=generator).item(), 4) for _ in range(columns)] for _ in range(rows)]
    logps = draw(-3, -0.1)
    shift = lambda by: [[round(v + d, 4) for v, d in zip(r, s)] for r, s in zip(logps, draw(-by, by))]
    lengths = [columns, columns - 2, 1 + columns // 2, columns - 1][:rows]
    mask = [[1 if t < n else 0 for t in range(columns)] for n in lengths]
    tokens = sum(map(sum, mask))
    return dict(logps=logps, old_logps=None if on_policy else shift(0.5), ref_logps=shift(0.4), mask=mask,
                entropies=draw(0.05, 3), advantages=[1.2, -0.7, 0.4, -0.9][:rows], generation_tokens=tokens * 3 + 5)


def main():
    torch.set_default_dtype(torch.float64)  # also what torch.where makes of two numbers
    trainer_class = trl_methods()
    generator = torch.Generator().manual_seed(13)
    cases = []
    def add(name, config, **kwargs):
        batch = batch_of(generator, **kwargs)
        cases.append(dict(name=name, config=config, input=batch, expected=run(trainer_class, batch, config)))
    for loss_type in ["dapo", "cispo", "vespo", "grpo", "bnpo", "dr_grpo", "sapo"]:
        cap = {"epsilon_high": 5.0} if loss_type == "cispo" else {}
        base = {"loss_type": loss_type, **cap}
        add(f"{loss_type}: entropy bonus", {**base, "entropy_coef": 0.3})
        add(f"{loss_type}: entropy bonus after the entropy filter, accumulated", {**base, "entropy_coef": 0.5, "top_entropy_quantile": 0.3, "gradient_accumulation_steps": 4, "steps_per_generation": 4})
        for accumulation, generation in [(4, 2), (2, 8)]:
            add(f"{loss_type}: {accumulation} accumulation steps, {generation} per generation", {**base, "beta": 0.05, "gradient_accumulation_steps": accumulation, "steps_per_generation": generation})
        add(f"{loss_type}: corrected KL on policy", {**base, "beta": 0.2}, on_policy=True)
        add(f"{loss_type}: plain KL", {**base, "beta": 0.2, "use_bias_correction_kl": False})
    for level in ["sequence"]:
        add("grpo by sequence: corrected KL", {"loss_type": "grpo", "importance_sampling_level": level, "beta": 0.1, "epsilon": 0.05})
    print(json.dumps({"format": "trl-loss", "trl": "1.13.0", "torch": torch.__version__, "cases": cases}))


main()
