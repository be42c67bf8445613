#!/usr/bin/env python3
"""Generate the golden files under bnb/: checkpoints that bitsandbytes has quantized to 4 bits.

    python tests/golden/make_bnb.py

Requirements: torch==2.15.0  transformers==5.22.2  safetensors==0.8.0  bitsandbytes==0.50.2. README.md describes the files.
"""
import shutil
from pathlib import Path

import bitsandbytes.functional as F
import torch
from safetensors.torch import save_file
from transformers import BitsAndBytesConfig, LlamaConfig, LlamaForCausalLM

FOLDER = Path(__file__).resolve().parent / "bnb"
SHOWN = "model.layers.0.mlp.down_proj.weight"


def make(name, kind, nested, source, weights):
    config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=nested,
                                bnb_4bit_compute_dtype=torch.float32)
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    LlamaForCausalLM.from_pretrained(source, quantization_config=config, device_map="cpu").save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    codes, state = F.quantize_4bit(weights[SHOWN], blocksize=64, quant_type=kind, compress_statistics=nested)
    save_file({"original": weights[SHOWN].contiguous(), "decoded": F.dequantize_4bit(codes, state).contiguous(),
               "codes": codes.flatten()}, folder / "expected.safetensors")


if __name__ == "__main__":
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=8, hidden_size=64, intermediate_size=64, num_hidden_layers=1,
                                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16,
                                         bos_token_id=6, eos_token_id=7))
    source = Path("/tmp/weft-bnb-source")
    model.save_pretrained(source)
    for name, kind, nested in (("nf4", "nf4", False), ("nf4-nested", "nf4", True), ("fp4", "fp4", False)):
        make(name, kind, nested, source, model.state_dict())
    shutil.rmtree(source)
