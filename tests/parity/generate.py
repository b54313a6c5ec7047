"""Writes the fixtures of this folder: small language models and vision transformers in the variants that releases use, written
down here once more from their definitions, with outputs and gradients in float32 (computed in float64).

    python3 tests/parity/generate.py        needs torch (any version) and numpy
"""

import json
import math
import struct
from pathlib import Path

import numpy as np
import torch

here = Path(__file__).parent
torch.manual_seed(7)
F = torch.nn.functional


def save(path, tensors, metadata):
    header, blobs, at = {"__metadata__": metadata}, [], 0
    for name in sorted(tensors):
        array = np.ascontiguousarray(tensors[name].detach().numpy())
        kind = {"float32": "F32", "int64": "I64"}[str(array.dtype)]
        blob = array.tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


class Weights(dict):
    """Named random weights, made when first asked for; float32 values held in float64."""

    def make(self, name, *shape, base=0.0, spread=0.2):
        if name not in self:
            value = (base + spread * torch.randn(*shape)).float().double()
            self[name] = value.requires_grad_()
        return self[name]


def rms(x, w, eps):
    return w * (x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def rotate(x, positions, theta):
    """x [H, T, D]: the pair (k, k + D/2) turns by position / theta^(2k/D)."""
    half = x.shape[-1] // 2
    k = torch.arange(half, dtype=torch.float64)
    angle = positions[:, None].double() / theta ** (2 * k / x.shape[-1])[None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


def attend(q, k, v, theta):
    """q [H, T, D], k and v [K, T, D]; each key head serves a run of query heads; causal."""
    T = q.shape[1]
    positions = torch.arange(T)
    q, k = rotate(q, positions, theta), rotate(k, positions, theta)
    out = []
    for h in range(q.shape[0]):
        g = h // (q.shape[0] // k.shape[0])
        scores = q[h] @ k[g].T / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(torch.ones(T, T).triu(1).bool(), -math.inf)
        out.append(scores.softmax(-1) @ v[g])
    return torch.cat(out, -1)  # [T, H*D]


def language_model(cfg, w, ids):
    arch = cfg["architectures"][0]
    S, H, K = cfg["hidden_size"], cfg["num_attention_heads"], cfg["num_key_value_heads"]
    D = cfg.get("head_dim", S // H)
    I, V, eps, theta = cfg["intermediate_size"], cfg["vocab_size"], cfg["rms_norm_eps"], cfg["rope_theta"]
    intern, phi = arch == "InternLM2ForCausalLM", arch == "Phi3ForCausalLM"
    bias = arch == "Qwen2ForCausalLM" or cfg.get("attention_bias", False) or cfg.get("bias", False)

    def linear(x, name, out, inp, biased=False):
        y = x @ w.make(f"{name}.weight", out, inp).T
        return y + w.make(f"{name}.bias", out) if biased else y

    def heads(x, n):
        return x.view(len(ids), n, D).transpose(0, 1)

    embedding = w.make("model.tok_embeddings.weight" if intern else "model.embed_tokens.weight", V, S, spread=1.0)
    x = embedding[ids]
    for i in range(cfg["num_hidden_layers"]):
        p = f"model.layers.{i}"
        y = rms(x, w.make(f"{p}.{'attention_norm' if intern else 'input_layernorm'}.weight", S, base=1.0), eps)
        if intern:
            packed = linear(y, f"{p}.attention.wqkv", (H + 2 * K) * D, S, bias).view(len(ids), K, H // K + 2, D)
            q = packed[:, :, : H // K].reshape(len(ids), H, D).transpose(0, 1)
            k, v = packed[:, :, H // K].transpose(0, 1), packed[:, :, H // K + 1].transpose(0, 1)
            x = x + linear(attend(q, k, v, theta), f"{p}.attention.wo", S, H * D, bias)
        elif phi:
            packed = linear(y, f"{p}.self_attn.qkv_proj", (H + 2 * K) * D, S)
            q, k, v = packed[:, : H * D], packed[:, H * D : (H + K) * D], packed[:, (H + K) * D :]
            x = x + linear(attend(heads(q, H), heads(k, K), heads(v, K), theta), f"{p}.self_attn.o_proj", S, H * D)
        else:
            q = heads(linear(y, f"{p}.self_attn.q_proj", H * D, S, bias), H)
            k = heads(linear(y, f"{p}.self_attn.k_proj", K * D, S, bias), K)
            v = heads(linear(y, f"{p}.self_attn.v_proj", K * D, S, bias), K)
            if arch == "Qwen3ForCausalLM":
                q = rms(q, w.make(f"{p}.self_attn.q_norm.weight", D, base=1.0), eps)
                k = rms(k, w.make(f"{p}.self_attn.k_norm.weight", D, base=1.0), eps)
            out_bias = bias and arch != "Qwen2ForCausalLM"
            x = x + linear(attend(q, k, v, theta), f"{p}.self_attn.o_proj", S, H * D, out_bias)
        y = rms(x, w.make(f"{p}.{'ffn_norm' if intern else 'post_attention_layernorm'}.weight", S, base=1.0), eps)
        if phi:
            both = linear(y, f"{p}.mlp.gate_up_proj", 2 * I, S)
            x = x + linear(F.silu(both[:, :I]) * both[:, I:], f"{p}.mlp.down_proj", S, I)
        else:
            gate, up, down = [f"{p}.feed_forward.w{n}" for n in (1, 3, 2)] if intern else [f"{p}.mlp.{n}_proj" for n in ("gate", "up", "down")]
            x = x + linear(F.silu(linear(y, gate, I, S)) * linear(y, up, I, S), down, S, I)
    x = rms(x, w.make("model.norm.weight", S, base=1.0), eps)
    head = embedding if cfg.get("tie_word_embeddings") else w.make("output.weight" if intern else "lm_head.weight", V, S)
    return x @ head.T


common = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=40,
              vocab_size=44, rms_norm_eps=1e-5, rope_theta=10000.0, max_position_embeddings=64, hidden_act="silu")
languages = {
    "qwen2-tied": dict(common, architectures=["Qwen2ForCausalLM"], tie_word_embeddings=True, rope_theta=1e6),
    "qwen3": dict(common, architectures=["Qwen3ForCausalLM"], head_dim=16),
    "llama": dict(common, architectures=["LlamaForCausalLM"], num_key_value_heads=4),
    "llama-bias": dict(common, architectures=["LlamaForCausalLM"], attention_bias=True, num_key_value_heads=1),
    "internlm2": dict(common, architectures=["InternLM2ForCausalLM"], bias=False, rope_scaling={"type": "dynamic", "factor": 2.0}),
    "phi3": dict(common, architectures=["Phi3ForCausalLM"], sliding_window=2047),
}
for name, cfg in languages.items():
    w = Weights()
    ids = torch.randint(0, cfg["vocab_size"], (13,))
    logits = language_model(cfg, w, ids)
    loss = F.cross_entropy(logits[:-1], ids[1:])
    loss.backward()
    out = {k: v.detach().float() for k, v in w.items()}
    out["in.ids"] = ids
    out["out.logits"] = logits.float()
    for k in [k for k in w if ".layers.1." in k or "norm" in k or "embed" in k]:
        out[f"grad.{k}"] = w[k].grad.float()
    save(here / f"llm-{name}.safetensors", out, {"config": json.dumps(cfg)})


def vision(cfg, w, pixels):
    """Returns the hidden states: after the embeddings, then after each layer."""
    h, P, n = cfg["hidden_size"], cfg["patch_size"], cfg["num_attention_heads"]
    eps, plain = cfg["layer_norm_eps"], cfg["norm_type"] == "rms_norm"
    kernel = w.make("embeddings.patch_embedding.weight", h, 3, P, P)
    patches = F.conv2d(pixels, kernel, w.make("embeddings.patch_embedding.bias", h), stride=P).flatten(2).transpose(1, 2)
    first = w.make("embeddings.class_embedding", 1, 1, h).expand(len(pixels), 1, h)
    x = torch.cat([first, patches], 1)
    x = x + w.make("embeddings.position_embedding", 1, x.shape[1], h)

    def norm(x, name):
        weight = w.make(f"{name}.weight", h, base=1.0)
        return rms(x, weight, eps) if plain else F.layer_norm(x, (h,), weight, w.make(f"{name}.bias", h), eps)

    def linear(x, name, out, inp, biased=True):
        y = x @ w.make(f"{name}.weight", out, inp).T
        return y + w.make(f"{name}.bias", out) if biased else y

    states = [x]
    for i in range(cfg["num_hidden_layers"]):
        p = f"encoder.layers.{i}"
        q, k, v = linear(norm(x, f"{p}.norm1"), f"{p}.attn.qkv", 3 * h, h, cfg["qkv_bias"]).split(h, -1)
        if cfg["qk_normalization"]:
            q = rms(q, w.make(f"{p}.attn.q_norm.weight", h, base=1.0), eps)
            k = rms(k, w.make(f"{p}.attn.k_norm.weight", h, base=1.0), eps)
        d = h // n
        parts = []
        for j in range(n):
            at = slice(j * d, (j + 1) * d)
            parts.append((q[..., at] @ k[..., at].transpose(1, 2) / math.sqrt(d)).softmax(-1) @ v[..., at])
        x = x + w.make(f"{p}.ls1", h, base=1.0) * linear(torch.cat(parts, -1), f"{p}.attn.proj", h, h)
        y = F.gelu(linear(norm(x, f"{p}.norm2"), f"{p}.mlp.fc1", cfg["intermediate_size"], h))
        x = x + w.make(f"{p}.ls2", h, base=1.0) * linear(y, f"{p}.mlp.fc2", h, cfg["intermediate_size"])
        states.append(x)
    return states


def shuffle(x, version):
    """[T, rows, columns, C] -> [T, cells, 4C], pair by pair as the released code folds them."""
    T, W, H, C = x.shape
    x = x.reshape(T, W, H // 2, C * 2).permute(0, 2, 1, 3)
    x = x.reshape(T, H // 2, W // 2, C * 4)
    if version == "v2":
        x = x.permute(0, 2, 1, 3)
    return x.reshape(T, -1, C * 4)


vit = dict(architectures=["InternVisionModel"], hidden_size=24, num_attention_heads=3, intermediate_size=32, num_hidden_layers=3,
           image_size=16, patch_size=4, layer_norm_eps=1e-6, hidden_act="gelu")
visions = {
    "layer-norm": dict(vit, qkv_bias=True, qk_normalization=False, norm_type="layer_norm"),
    "rms-qk": dict(vit, qkv_bias=False, qk_normalization=True, norm_type="rms_norm"),
}
for name, cfg in visions.items():
    w = Weights()
    pixels = torch.randn(2, 3, 16, 16).float().double()
    states = vision(cfg, w, pixels)
    states[-1].pow(2).mean().backward()
    out = {k: v.detach().float() for k, v in w.items()}
    out["in.pixels"] = pixels.float()
    out["out.last"], out["out.before"] = states[-1].float(), states[-2].float()
    for version in ("v1", "v2"):
        out[f"out.shuffle.{version}"] = shuffle(states[-1][:, 1:].reshape(2, 4, 4, -1), version).float()
    for k in [k for k in w if ".layers.0." in k]:
        out[f"grad.{k}"] = w[k].grad.float()
    save(here / f"vit-{name}.safetensors", out, {"config": json.dumps(cfg)})
