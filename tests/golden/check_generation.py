#!/usr/bin/env python3
"""Compare `weft generate` with transformers' generate on random models, prompts and settings.

    python tests/golden/check_generation.py --weft build/release/weft [--cases 100] [--seed 1] [--device cuda]

Each case is a random tiny GPT-2 with one to four prompts, and greedy decoding or beam search with random beams, length
penalty, early stopping, end tokens, repetition penalty, n-gram size, biases and number of returned sequences. Half of the
cases give the settings as options, the others in generation_config.json. All tokens must match, and the scores of beam
search within 1e-4. Cases whose tokens in transformers differ between fp32 and fp64 have near ties; they are not compared.
Without penalties the prompts form one padded batch in transformers. With penalties each prompt runs alone, because
transformers also penalizes padding.

Requirements: torch==2.15.0  transformers==5.22.2
"""
import argparse
import copy
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import transformers

OPTIONS = {"repetition_penalty": "repetition-penalty", "no_repeat_ngram_size": "no-repeat-ngram", "num_beams": "beams",
           "length_penalty": "length-penalty", "early_stopping": "early-stopping", "num_return_sequences": "samples",
           "max_new_tokens": "max-tokens"}


def random_model(rng):
    heads = rng.choice([1, 2, 4])
    config = transformers.GPT2Config(
        vocab_size=rng.choice([11, 40, 97, 300]), n_positions=48, n_embd=heads * rng.choice([4, 8, 12]),
        n_layer=rng.choice([1, 2, 3]), n_head=heads, tie_word_embeddings=rng.random() < 0.7, bos_token_id=0,
        eos_token_id=0)
    model = transformers.GPT2LMHeadModel(config)
    gen = torch.Generator().manual_seed(rng.randrange(1 << 30))
    scale = rng.choice([0.2, 0.4, 0.8])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=gen) * scale)
    model.tie_weights()
    return model.eval()


def random_settings(rng, model, prompts):
    beams = rng.choice([1, 2, 3, 4, 5])
    settings = {"max_new_tokens": rng.choice([1, 2, 5, 12, 24]), "num_beams": beams}
    if beams > 1:
        settings["length_penalty"] = rng.choice([0.5, 1.0, 2.0, 0.0, -1.0])
        settings["early_stopping"] = rng.choice([False, True, "never"])
        settings["num_return_sequences"] = rng.randint(1, beams)
    if rng.random() < 0.4:
        settings["repetition_penalty"] = rng.choice([1.3, 2.0, 0.8])
    if rng.random() < 0.4:
        settings["no_repeat_ngram_size"] = rng.choice([1, 2, 3])
    # In small vocabularies short n-grams run out; weft then fails and transformers chooses token 0.
    if "no_repeat_ngram_size" in settings and model.config.vocab_size < 60:
        settings["no_repeat_ngram_size"] = 3
    # End tokens that the model chooses early on
    ends = []
    for _ in range(rng.choice([0, 1, 1, 2])):
        with torch.no_grad():
            ids = torch.tensor([rng.choice(prompts)])
            for _ in range(rng.randint(1, 4)):
                ids = torch.cat([ids, model(ids).logits[:, -1:].topk(3).indices[..., rng.randrange(3)]], 1)
        ends.append(int(ids[0, -1]))
    return settings, list(dict.fromkeys(ends))


def expected(model, prompts, settings, ends, biases, together):
    """New tokens and scores of all sequences, in order."""
    results = []
    for group in ([prompts] if together else [[p] for p in prompts]):
        longest = max(map(len, group))
        ids = torch.tensor([[0] * (longest - len(p)) + p for p in group])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in group])
        more = {"sequence_bias": {(token,): bias for token, bias in biases.items()}} if biases else {}
        out = model.generate(ids, attention_mask=mask, do_sample=False, eos_token_id=ends or None,
                             pad_token_id=model.config.vocab_size - 1, return_dict_in_generate=True, output_scores=True,
                             **settings, **more)
        scores = getattr(out, "sequences_scores", None)
        for i, row in enumerate(out.sequences[:, longest:].tolist()):
            stop = next((t + 1 for t, token in enumerate(row) if token in ends), len(row))
            results.append((row[:stop], None if scores is None else float(scores[i])))
    return results


def weft(binary, folder, prompts, settings, ends, biases, rng, more):
    line = [binary, "generate", "--model", str(folder), "--json", "--threads", "1", *more]
    file = {"eos_token_id": ends} if ends else {}
    if rng.random() < 0.5:
        file.update(settings, do_sample=False)
    else:
        for key, value in settings.items():
            line += ["--" + OPTIONS[key], str(value).lower()]
        if settings["num_beams"] == 1:
            line.append("--greedy")
    (folder / "generation_config.json").write_text(json.dumps(file))
    if not ends:
        line.append("--ignore-end")
    if rng.random() < 0.5:
        line += ["--batch", str(rng.randint(1, 12))]
    for token, bias in biases.items():
        line += ["--logit-bias", f"{token}:{bias}"]
    for prompt in prompts:
        line += ["--prompt-ids", ",".join(map(str, prompt))]
    run = subprocess.run(line, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"{' '.join(line)}: {run.stderr}")
    return [(s["new_ids"], s.get("score")) for s in json.loads(run.stdout)["samples"]], line


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--weft", required=True)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    compared = sequences = ties = wrong = 0
    for case in range(args.cases):
        rng = random.Random(args.seed * 100003 + case)
        model = random_model(rng)
        vocab = model.config.vocab_size
        prompts = [[rng.randrange(vocab) for _ in range(rng.randint(1, 12))] for _ in range(rng.randint(1, 4))]
        settings, ends = random_settings(rng, model, prompts)
        biases = {rng.randrange(vocab): rng.choice([-2.0, 1.5, float("-inf")])
                  for _ in range(rng.choice([0, 0, 1, 3]))}
        together = not any(key in settings for key in ("repetition_penalty", "no_repeat_ngram_size"))
        wanted = expected(model, prompts, settings, ends, biases, together)
        exact = expected(copy.deepcopy(model).double(), prompts, settings, ends, biases, together)
        if [w[0] for w in wanted] != [e[0] for e in exact]:
            ties += 1
            continue
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            got, line = weft(args.weft, Path(folder), prompts, settings, ends, biases, rng,
                             ["--device", args.device, "--precision", "fp32"])
        same = [g[0] for g in got] == [w[0] for w in wanted] and all(
            w[1] is None or abs(g[1] - w[1]) <= 1e-4 * max(1, abs(w[1])) for g, w in zip(got, wanted))
        compared += 1
        sequences += len(wanted)
        if not same:
            wrong += 1
            print(f"case {case}: settings {settings} ends {ends}\n  {' '.join(line)}\n  got    {got}\n  wanted {wanted}")
    print(f"{compared} cases with {sequences} sequences compared, {wrong} differ; {ties} with near ties skipped")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
