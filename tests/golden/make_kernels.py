#!/usr/bin/env python3
"""Generate cases/kernels.json: results and gradients of PyTorch for the operations of Llama, Mistral and Qwen.

    python tests/golden/make_kernels.py

RMS norm, gated activations, the rotary embedding of transformers' Llama (default and scaled as in Llama 3) and attention
with fewer key than query heads, a window and documents. Values are computed in double precision from fp32 inputs and
stored flat, in weft's layouts. Requirements: see make_golden.py.
"""
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

OUT = Path(__file__).resolve().parent / "cases" / "kernels.json"


def short(*shape):
    """Random values with few digits, exact in fp32."""
    return (torch.randn(*shape).double() * 16).round() / 16


def random(*shape):
    return short(*shape).requires_grad_()


def flat(tensor):
    return [float(f"{x:.6g}") for x in tensor.detach().flatten().tolist()]


def rmsnorm():
    x, weight, dy, eps = random(5, 7), random(7), short(5, 7), 1e-3
    y = F.rms_norm(x, (7,), weight, eps)
    y.backward(dy)
    return {"rows": 5, "width": 7, "eps": eps, "x": flat(x), "weight": flat(weight), "dy": flat(dy), "y": flat(y),
            "dx": flat(x.grad), "dweight": flat(weight.grad)}


def glu(name, act):
    x, dy = random(3, 10), short(3, 5)
    y = act(x[:, :5]) * x[:, 5:]
    y.backward(dy)
    return {"act": name, "rows": 3, "width": 5, "x": flat(x), "dy": flat(dy), "y": flat(y), "dx": flat(x.grad)}


def rope(scaling):
    B, T, H, G, D, P = 2, 3, 2, 1, 8, 20
    rope_parameters = {"rope_type": "default", "rope_theta": 10000.0}
    if scaling:
        rope_parameters = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                           "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
    config = LlamaConfig(hidden_size=H * D, num_attention_heads=H, num_key_value_heads=G, head_dim=D,
                         max_position_embeddings=P, rope_parameters=rope_parameters)
    embedding = LlamaRotaryEmbedding(config)
    qkv, dout = random(B, T, H + 2 * G, D), short(B, T, H + 2 * G, D)
    positions = torch.randint(0, P, (B, T))
    table = torch.cat([t[0, :, :D // 2] for t in embedding(torch.zeros(1), torch.arange(P)[None])], -1)
    cos, sin = (t.double() for t in embedding(torch.zeros(1), positions))
    q, k = apply_rotary_pos_emb(qkv[:, :, :H].transpose(1, 2), qkv[:, :, H:H + G].transpose(1, 2), cos, sin)
    out = torch.cat([q.transpose(1, 2), k.transpose(1, 2), qkv[:, :, H + G:]], 2)
    out.backward(dout)
    return {"batch": B, "seq": T, "heads": H, "kv_heads": G, "width": D, "rows": P, "positions": positions.flatten().tolist(),
            "table": flat(table), "x": flat(qkv), "dy": flat(dout), "y": flat(out), "dx": flat(qkv.grad)}


def attention(H, G, window, documents):
    B, T, D = 2, 6, 3
    qkv, dout = random(B, T, H + 2 * G, D), short(B, T, H, D)
    q, k, v = (t.transpose(1, 2) for t in qkv.split([H, G, G], 2))
    starts = torch.zeros(B, T, dtype=torch.long)
    if documents:
        starts[0, 3:], starts[1, 1:], starts[1, 4:] = 3, 1, 4
    query, key = torch.arange(T)[:, None], torch.arange(T)[None]
    mask = (key <= query) & (key >= starts[:, :, None])
    if window:
        mask = mask & (key > query - window)
    out = F.scaled_dot_product_attention(q, k, v, mask[:, None], scale=0.4, enable_gqa=True).transpose(1, 2)
    out.backward(dout)
    return {"batch": B, "seq": T, "heads": H, "kv_heads": G, "width": D, "window": window, "scale": 0.4,
            "starts": starts.flatten().tolist() if documents else [], "qkv": flat(qkv), "dout": flat(dout),
            "out": flat(out), "dqkv": flat(qkv.grad)}


def main():
    torch.manual_seed(7)
    cases = {
        "rmsnorm": [rmsnorm()],
        "glu": [glu("silu", F.silu), glu("gelu_tanh", lambda x: F.gelu(x, approximate="tanh")), glu("gelu", F.gelu)],
        "rope": [rope(False), rope(True)],
        "attention": [attention(4, 2, 0, False), attention(3, 1, 0, False), attention(2, 2, 3, False),
                      attention(4, 2, 2, False), attention(4, 2, 0, True), attention(4, 1, 3, True)],
    }
    lines = [f'"{name}": [\n' + ",\n".join(json.dumps(case) for case in group) + "\n]" for name, group in cases.items()]
    OUT.write_text("{" + f'"torch": "{torch.__version__.split("+")[0]}",\n' + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main()
