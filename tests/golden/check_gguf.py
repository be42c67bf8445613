#!/usr/bin/env python3
"""Compare the tokenizers and greedy text of GGUF files with weft's, Hugging Face's and llama.cpp's.

    python tests/golden/check_gguf.py --weft build/release/weft --text FILE [--count 200] [--seed 1] [--rope TYPE] [NAME ...]

The script trains small tokenizers with the structure of published ones (NAMES below) on the text, makes a random model for
each and exports it with `weft convert`. llama.cpp must tokenize COUNT texts, most of them unusual, as Hugging Face's
tokenizers and weft do, and its greedy continuations of prompts must be those of weft and transformers, up to a near tie of
tokens or of experts. With --rope, the models have scaled rotary positions, and prompts are longer than the original context.

Requirements: torch, transformers, tokenizers, sentencepiece, llama-cpp-python
"""
import argparse
import functools
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import llama_cpp
import sentencepiece
import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
TEMPLATE = "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }}\n{% endfor %}"


def byte_level(text, vocab, special, steps, first=None, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab - len(special), show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train([str(text)], trainer)
    tokenizer.add_special_tokens(special)
    steps = [processors.ByteLevel(trim_offsets=False)]
    if first:
        steps.append(processors.TemplateProcessing(single=f"{first} $A", pair=f"{first} $A {first} $B",
                                                   special_tokens=[(first, tokenizer.token_to_id(first))]))
    tokenizer.post_processor = processors.Sequence(steps)
    return tokenizer


def split(pattern):
    return [pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)]


def llama3(text, vocab):
    return byte_level(text, vocab, ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"], split(LLAMA3), "<|begin_of_text|>",
                      ignore_merges=True)


def qwen2(text, vocab):
    tokenizer = byte_level(text, vocab, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], split(QWEN2))
    tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def smollm(text, vocab):
    return byte_level(text, vocab, ["<|endoftext|>"], [pre_tokenizers.Digits(individual_digits=True),
                                                pre_tokenizers.ByteLevel(add_prefix_space=False)])


@functools.cache
def pieces_of(text, size):
    """A SentencePiece model with byte fallback, and as Hugging Face converts it: all pairs of pieces that form a piece,
    in the order of its score."""
    with tempfile.TemporaryDirectory() as folder:
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=folder + "/pieces", vocab_size=size, model_type="bpe", byte_fallback=True,
            normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True,
            allow_whitespace_only_pieces=True, max_sentence_length=1 << 16, minloglevel=2, num_threads=1)
        model = sentencepiece.SentencePieceProcessor(model_file=folder + "/pieces.model")
    vocab = {model.id_to_piece(id): id for id in range(len(model))}
    merges = []
    for piece, id in vocab.items():
        if model.is_control(id) or model.is_byte(id) or model.is_unknown(id):
            continue
        pairs = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in vocab and piece[i:] in vocab]
        pairs.sort(key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
        merges += [(model.get_score(id), len(left), len(right), (left, right)) for left, right in pairs]
    merges.sort(key=lambda merge: merge[:3], reverse=True)
    return vocab, [merge[3] for merge in merges]


def sentencepiece_like(text, size, metaspace=False):
    vocab, merges = pieces_of(text, size)
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    else:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    if metaspace:
        tokenizer.add_special_tokens(["[INST]", "[/INST]"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B",
                                                             special_tokens=[("<s>", 1)])
    return tokenizer


# name: tokenizer, model, first and end token
NAMES = {
    "llama-3": (llama3, "llama", "<|begin_of_text|>", "<|end_of_text|>"),
    "qwen2": (qwen2, "qwen2", "<|endoftext|>", "<|im_end|>"),
    "qwen3": (qwen2, "qwen3", "<|endoftext|>", "<|im_end|>"),
    "smollm": (smollm, "llama", "<|endoftext|>", "<|endoftext|>"),
    "llama-2": (sentencepiece_like, "llama", "<s>", "</s>"),
    "mistral": (sentencepiece_like, "mistral", "<s>", "</s>"),
    "mistral-3": (functools.partial(sentencepiece_like, metaspace=True), "mistral", "<s>", "</s>"),
    "mixtral": (sentencepiece_like, "mixtral", "<s>", "</s>"),
    "qwen2-moe": (qwen2, "qwen2_moe", "<|endoftext|>", "<|im_end|>"),
    "qwen3-moe": (qwen2, "qwen3_moe", "<|endoftext|>", "<|im_end|>"),
    "olmoe": (smollm, "olmoe", "<|endoftext|>", "<|endoftext|>"),
}
CLASSES = {"llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
           "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
           "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
           "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
           "mixtral": (transformers.MixtralConfig, transformers.MixtralForCausalLM),
           "qwen2_moe": (transformers.Qwen2MoeConfig, transformers.Qwen2MoeForCausalLM),
           "qwen3_moe": (transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM),
           "olmoe": (transformers.OlmoeConfig, transformers.OlmoeForCausalLM)}
EXPERTS = {"mixtral": dict(num_local_experts=6, sliding_window=None),
           "qwen2_moe": dict(num_experts=6, moe_intermediate_size=40, shared_expert_intermediate_size=56, use_sliding_window=False),
           "qwen3_moe": dict(num_experts=6, moe_intermediate_size=40, norm_topk_prob=True, head_dim=16),
           "olmoe": dict(num_experts=6, num_key_value_heads=4, pad_token_id=None)}


ROPES = {
    "linear": dict(factor=64.0),
    "llama3": dict(factor=64.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=4),
    "yarn": dict(factor=64.0, mscale=1.0, mscale_all_dim=0.5, original_max_position_embeddings=4),
    "longrope": dict(short_factor=[1.0] * 8, long_factor=[1 + 0.3 * i * i for i in range(8)],
                     original_max_position_embeddings=4),
}


def make_model(name, text, vocab, folder, rope):
    make, family, first, end = NAMES[name]
    tokenizer = make(text, vocab)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE, "eos_token": end}))
    config, model = CLASSES[family]
    more = dict(sliding_window=None) if family == "mistral" else {}
    more.update(dict(head_dim=16) if family == "qwen3" else {})
    if rope:
        more["rope_parameters"] = {"rope_type": rope, "rope_theta": 10000.0, **ROPES[rope]}
    more = dict(num_key_value_heads=2) | more
    if family in EXPERTS:
        more |= dict(num_experts_per_tok=3) | EXPERTS[family]
    config = config(vocab_size=tokenizer.get_vocab_size() + 40, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                    num_attention_heads=4, max_position_embeddings=256, bos_token_id=tokenizer.token_to_id(first),
                    eos_token_id=tokenizer.token_to_id(end), **more)
    torch.manual_seed(1)
    model = model(config).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.normal_(1 if "norm" in key else 0, 0.2 if parameter.ndim == 1 else 1.2 / parameter.shape[-1] ** 0.5)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    return tokenizer, model


SCRIPTS = [(0x20, 0x7e), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x52f), (0x590, 0x6ff), (0x900, 0x97f), (0xe00, 0xe7f),
           (0x1100, 0x11ff), (0x2000, 0x206f), (0x2070, 0x218f), (0x2190, 0x2bff), (0x3000, 0x30ff), (0x4e00, 0x4fff),
           (0xac00, 0xacff), (0xff00, 0xffef), (0x1f300, 0x1f6ff), (0x1d400, 0x1d7ff), (0x20000, 0x200ff)]
PARTS = ["'s", "'S", "'Ll", "'RE", "'ſ", " '", "don't", "I'VE", "1234567", "3.14", "²", "٣٤", "Ⅷ", "½", "\n", "\r\n", "\n\n ",
         " \n", "\t", "\t\t", " ", "  ", "   ", "    ", "\u00a0", "\u3000", "\u2028", "\u0085", "\x0b", "\x0c", "\u200d", "\ufeff",
         "...", "!!\n", "?!", "--", "_", "/*", "*/", "</", "<s", "s>", "<0x41>", "▁", "▁▁", "==", "é", "e\u0301", "ﬁ", "İ",
         "ß", "👩‍👩‍👧", "🇩🇪", "नमस्ते", "ไทย", "한국어", "日本語", "العربية", "Ǆ", "\u0000", "\u0001", "\u007f"]


def hard_text(rng, words):
    kind = rng.random()
    if kind < 0.15:
        low, high = rng.choice(SCRIPTS)
        return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 24)))
    if kind < 0.25:
        return " ".join(words[rng.randrange(len(words))] for _ in range(rng.randint(1, 20)))
    out = []
    for _ in range(rng.randint(1, 12)):
        pick = rng.random()
        if pick < 0.45:
            out.append(rng.choice(PARTS))
        elif pick < 0.75:
            out.append(rng.choice(["", " "]) + rng.choice(words))
        else:
            low, high = rng.choice(SCRIPTS)
            out.append(chr(rng.randint(low, high)))
    return "".join(out)


def certain_experts(model, sequences, prompt):
    """The number of new tokens before one whose choice of experts is almost a tie."""
    if not hasattr(model.config, "num_experts_per_tok"):
        return sequences.shape[1]
    chosen, length = model.config.num_experts_per_tok, sequences.shape[1]
    certain = length
    for logits in model(sequences, output_router_logits=True).router_logits:
        best = logits.reshape(length, -1).topk(chosen + 1).values
        tied = (best[:, -2] - best[:, -1] < 1e-3).nonzero()
        certain = min(certain, int(tied[0]) if len(tied) else length)
    return max(0, certain - prompt + 1)


class Check:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.words = [word for word in options.text.read_text().split() if "<unk>" not in word]
        self.failures = 0

    def weft(self, *arguments):
        done = subprocess.run([self.options.weft, *map(str, arguments)], capture_output=True,
                              env={**os.environ, "WEFT_CACHE": str(self.work / "cache"), "OMP_NUM_THREADS": "1"})
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def encode(self, folder, text):
        path = self.work / "text"
        path.write_bytes(text.encode())
        return json.loads(self.weft("tokenizer", "encode", folder, "--file", path, "--json"))["ids"]

    def differ(self, name, what, *values):
        self.failures += 1
        if self.failures <= 20:
            print(f"{name}: {what}", *map(repr, values), sep="\n    ", flush=True)

    def tokenize(self, name, folder, tokenizer, llama):
        rng = random.Random(f"{name} {self.options.seed}")
        special = [token.content for token in tokenizer.get_added_tokens_decoder().values() if token.content != "<unk>"]
        count = 0
        for i in range(self.options.count):
            text = hard_text(rng, self.words)
            if tokenizer.normalizer and "NFC" in str(tokenizer.normalizer):
                text = tokenizer.normalizer.normalize_str(text)  # llama.cpp does not
            if i % 10 == 0:
                text = text[:5] + rng.choice(special) + text[5:]
            if name == "mistral-3":  # a Metaspace puts no space before a space, nor after a special token
                text = text.lstrip(" ▁")
                if not text or any(token in text for token in special):
                    continue
            theirs = tokenizer.encode(text).ids
            cpp = llama.tokenize(text.encode(), add_bos=True, special=True)
            count += cpp == theirs
            if cpp != theirs:
                self.differ(name, "llama.cpp's tokens differ from Hugging Face's", text, cpp, theirs)
            if i % self.options.every == 0 and self.encode(folder, text) != theirs:
                self.differ(name, "weft's tokens differ from Hugging Face's", text, theirs)
        return count

    def generate(self, name, folder, tokenizer, model, llama):
        rng = random.Random(name)
        new, compared = 24, 0
        for _ in range(8):
            prompt = " ".join(rng.choice(self.words) for _ in range(6))
            ids = tokenizer.encode(prompt).ids
            out = model.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=new, pad_token_id=0, output_logits=True,
                                 attention_mask=torch.ones(1, len(ids)), return_dict_in_generate=True)
            theirs = out.sequences[0, len(ids):].tolist()
            top = torch.stack(out.logits)[:, 0].topk(2).values
            tied = (top[:, 0] - top[:, 1] < 1e-3).nonzero()
            count = min(int(tied[0]) if len(tied) else len(theirs), certain_experts(model, out.sequences, len(ids)))
            ours = json.loads(self.weft("generate", folder, "--prompt", prompt, "--greedy", "--max-tokens", new, "--json"))
            found = ours["samples"][0]["new_ids"]
            cpp, tokens = [], llama.tokenize(prompt.encode(), add_bos=True, special=True)
            for token in llama.generate(tokens, temp=0.0, repeat_penalty=1.0):
                cpp.append(token)
                if len(cpp) == count or token == llama.token_eos():
                    break
            if tokens != ids or found[:count] != theirs[:count] or cpp[:count] != theirs[:count]:
                self.differ(name, "greedy text differs", prompt, theirs[:count], found[:count], cpp)
            compared += count
        return compared

    def one(self, name):
        folder, file = self.work / name, self.work / f"{name}.gguf"
        folder.mkdir()
        tokenizer, model = make_model(name, self.options.text, self.options.vocab, folder, self.options.rope)
        self.weft("convert", "--model", folder, "--out", file, "--dtype", "fp32")
        f32 = llama_cpp.GGML_TYPE_F32
        llama = llama_cpp.Llama(str(file), n_ctx=256, n_threads=1, verbose=False, type_k=f32, type_v=f32)
        if llama.metadata.get("tokenizer.chat_template") != TEMPLATE:
            self.differ(name, "no chat template")
        same = self.tokenize(name, folder, tokenizer, llama)
        tokens = self.generate(name, folder, tokenizer, model, llama)
        print(f"{name}: {same} texts tokenized alike, {tokens} greedy tokens compared", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", required=True, type=os.path.abspath)
    parser.add_argument("--text", required=True, type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--vocab", type=int, default=3000, help="size of the vocabularies (default 3000)")
    parser.add_argument("--every", type=int, default=1, help="weft tokenizes every so many texts")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rope", choices=ROPES, help="scaled rotary positions of this type; Qwen: linear or yarn")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as work:
        check = Check(options, Path(work))
        for name in options.names or NAMES:
            check.one(name)
    return f"{check.failures} differences" if check.failures else 0


if __name__ == "__main__":
    sys.exit(main())
