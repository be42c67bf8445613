#!/usr/bin/env python3
"""Generate golden files of transformers' generate, for the checkpoints in cases/ that make_golden.py wrote.

    python tests/golden/make_generation.py

    cases/generation.json   greedy decoding and beam search with penalties, n-grams, biases and end tokens: for each case
                            the prompts, the settings, and the new tokens and scores of all sequences
    cases/filters.json      probabilities of the next token after all rules and filters, in the order of transformers'
                            generate

Cases with near ties, whose tokens differ between fp32 and fp64, are left out.

Requirements: torch==2.15.0  transformers==5.22.2
"""
import copy
import itertools
import json
import random
from pathlib import Path

import torch
import transformers
from check_generation import expected, random_settings

CASES = Path(__file__).resolve().parent / "cases"
MODELS = ["gpt2", "gpt2-untied-padded", "gpt2-layer-scale", "gpt2-unscaled-relu", "gpt2-generate"]
PER_MODEL = 14


def write(name, cases):
    (CASES / name).write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
    print(f"{name}: {len(cases)} cases")


def search_cases():
    cases = []
    for name in MODELS:
        model = transformers.GPT2LMHeadModel.from_pretrained(CASES / name, dtype=torch.float32).eval()
        vocab = model.config.vocab_size
        exact = copy.deepcopy(model).double()
        rng = random.Random(name)
        while sum(case["model"] == name for case in cases) < PER_MODEL:
            prompts = [[rng.randrange(vocab) for _ in range(rng.randint(1, 12))] for _ in range(rng.randint(1, 3))]
            settings, ends = random_settings(rng, model, prompts)
            settings["max_new_tokens"] = min(settings["max_new_tokens"], 16)
            biases = {rng.randrange(vocab): rng.choice([-2.0, 1.5]) for _ in range(rng.choice([0, 0, 1, 3]))}
            together = not any(key in settings for key in ("repetition_penalty", "no_repeat_ngram_size"))
            result = expected(model, prompts, settings, ends, biases, together)
            if [r[0] for r in result] != [r[0] for r in expected(exact, prompts, settings, ends, biases, together)]:
                continue
            cases.append({"model": name, "prompts": prompts, "ends": ends, **settings,
                          "biases": [[token, bias] for token, bias in biases.items()],
                          "sequences": [r[0] for r in result],
                          "scores": [r[1] for r in result if r[1] is not None]})
    return cases


def processors(model, length, **settings):
    """The processors that generate() would apply."""
    config = copy.deepcopy(model.generation_config)
    config.update(do_sample=True, **settings)
    defaults = transformers.GenerationConfig._get_default_generation_params()
    config.update(**defaults, defaults_only=True)
    model._prepare_special_tokens(config, False, device="cpu")
    return model._get_logits_processor(config, input_ids_seq_length=length, device="cpu")


def filter_cases():
    model = transformers.GPT2LMHeadModel.from_pretrained(CASES / "gpt2", dtype=torch.float32)
    gen = torch.Generator().manual_seed(11)
    vectors = [torch.randn(12, generator=gen) * 2, torch.randn(40, generator=gen),
               torch.tensor([1.0, 1.0, 1.0, 1.0, 0.0]), torch.tensor([9.0, 0.0, 0.5, -3.0])]
    choices = [
        dict(min_p=0.1), dict(min_p=1.0), dict(typical_p=0.5), dict(typical_p=0.95), dict(typical_p=0.01),
        dict(repetition_penalty=1.3), dict(repetition_penalty=0.7), dict(bias=True), dict(no_repeat_ngram_size=2),
        dict(temperature=0.7, min_p=0.05), dict(temperature=1.4, typical_p=0.8, top_k=8), dict(top_p=0.9, min_p=0.2),
        dict(top_p=0.9, typical_p=0.6), dict(min_p=0.02, typical_p=0.7),
        dict(bias=True, repetition_penalty=1.5, no_repeat_ngram_size=2, temperature=1.2, top_k=9, top_p=0.95, min_p=0.02,
             typical_p=0.9)]
    cases = []
    for scores, choice in itertools.product(vectors, choices):
        vocab = len(scores)
        ids = torch.randint(0, vocab, (1, 9), generator=gen)
        ids[0, 3] = ids[0, 8]  # the last token has occurred, so that a bigram is excluded
        biases = [[1, 0.75], [vocab - 1, -1.5]] if choice.get("bias") else []
        settings = {"temperature": 1.0, "top_k": 0, "top_p": 1.0,
                    **{key: value for key, value in choice.items() if key != "bias"}}
        more = {"sequence_bias": [[[token], bias] for token, bias in biases]} if biases else {}
        out = processors(model, 9, **settings, **more)(ids, scores[None, :].clone())
        cases.append({"scores": scores.tolist(), "ids": ids[0].tolist(), "biases": biases, **settings,
                      "probabilities": torch.softmax(out[0], -1).tolist()})
    return cases


def main():
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    write("generation.json", search_cases())
    write("filters.json", filter_cases())


if __name__ == "__main__":
    main()
