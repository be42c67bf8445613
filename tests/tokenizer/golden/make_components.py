#!/usr/bin/env python3
"""Generate components.json: small tokenizers, each with the components that one rule is about, and what the tokenizers
library makes of texts with them. Requires tokenizers. Commit the script and its output together.

  name      the rule
  json      tokenizer.json
  pcre2     whether a pattern needs PCRE2
  texts     [text, ids, start and end of each token in bytes, decoded text], to be encoded in this order
  decoded   [ids, text]: decoding alone
"""
import json
import pathlib

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
LOWER = {"type": "Lowercase"}
SPACES = {"type": "WhitespaceSplit"}


def vocab(*tokens):
    return {token: i for i, token in enumerate(tokens)}


def wordpiece(tokens, **more):
    return {"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
            "vocab": vocab("<unk>", *tokens), **more}


def added(start, *tokens, **flags):
    plain = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
    return [{"id": start + i, "content": token, **plain, **flags} for i, token in enumerate(tokens)]


def case(name, model, texts, normalizer=None, pre=None, decoder=None, tokens=(), decoded=(), pcre2=False):
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": list(tokens), "normalizer": normalizer,
             "pre_tokenizer": pre, "post_processor": None, "decoder": decoder, "model": model}
    tokenizer = Tokenizer.from_str(json.dumps(whole))

    def text_back(ids):
        return tokenizer.decode(ids, skip_special_tokens=False)

    def encoded(text):
        encoding = tokenizer.encode(text, add_special_tokens=False)
        at = [len(text[:i].encode()) for i in range(len(text) + 1)]
        return [text, encoding.ids, [at[i] for pair in encoding.offsets for i in pair], text_back(encoding.ids)]

    return {"name": name, "json": whole, "pcre2": pcre2, "texts": [encoded(text) for text in texts],
            "decoded": [[ids, text_back(ids)] for ids in decoded]}


BERT = {"normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                       "lowercase": True}, "pre": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True}}


def cases():
    for limit in (3, 4):
        yield case(f"words over {limit} characters", wordpiece(["aaa", "##a", "a"], max_input_chars_per_word=limit),
                   ["aaaaa aaaa", "aaaa aaaaa", "éaaaa éaaa", "aaa aaaa aaa", "aaaa" + "aaa " * 9], **BERT)


def main():
    (HERE / "components.json").write_text("[\n" + ",\n".join(json.dumps(one, ensure_ascii=False) for one in cases()) + "\n]\n")


if __name__ == "__main__":
    main()
