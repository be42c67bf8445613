#!/usr/bin/env python3
"""Writes tests/cli/configs/transformers-arguments.json: what TrainingArguments.to_json_string gives, for
tests/cli/test_keys.c.

    python tests/golden/make_training_arguments.py

Requirements: torch==2.15.0  transformers==5.23.0  accelerate==1.15.0
"""
from pathlib import Path

from transformers import TrainingArguments

CONFIG = Path(__file__).resolve().parent.parent / "cli" / "configs" / "transformers-arguments.json"

arguments = TrainingArguments(
    output_dir="runs/finetuned",
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    num_train_epochs=2,
    learning_rate=3e-5,
    weight_decay=0.01,
    warmup_steps=10,
    activation_checkpointing=True,
    eval_strategy="steps",
    eval_steps=20,
    save_strategy="steps",
    save_steps=20,
    save_total_limit=2,
    load_best_model_at_end=True,
    use_cpu=True,
)
CONFIG.write_text(arguments.to_json_string() + "\n")
