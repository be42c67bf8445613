#!/usr/bin/env python3
"""Generate bpe.json, a small byte-level BPE tokenizer in Hugging Face's format, and bpe_cases.jsonl: texts and the ids that
the tokenizers library assigns to them. Requires tokenizers. Commit the script and its output together.

Lines of bpe_cases.jsonl:
  {"text", "ids", "prefixed", "places"}   prefixed: ids with add_prefix_space; places: start and end of each token of "ids"
                                          in bytes of UTF-8, widened to complete characters
  {"pattern", "hashes"}                   for each block of 4096 code points, the FNV-1a hash of the ids (4 bytes each,
                                          little-endian) of the pattern with each code point in place of its %
"""
import json
import pathlib
import random

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent

SENTENCES = """
The loom stands by the window, and the weaver's hands don't stop: she'll finish, they've said, before it's dark.
We're told that I'm late; you'd better ask who'll come. 'Tis nothing, they'd say, 'twas ever so, and that's that.
In 1987 there were 12,345 looms in 67 towns; by 2021 only 8 were left (0.065%), or one for every 4½ million people.
Der Weber öffnet müde die Tür; draußen fällt Schnee auf die Straße, und übermorgen heißt es früh aufstehen.
Le métier à tisser grince; l'œuvre s'achève à l'aube, et déjà la ville s'éveille, où rien n'a changé depuis Noël.
El telar cruje: ¿quién teje a estas horas? ¡Nadie!, contestó el niño; mañana será otro día.
Ткачиха встаёт рано, и станок стучит до вечера; нитка за ниткой ложится в полотно.
Η υφάντρα δουλεύει όλη μέρα, και το ύφασμα μεγαλώνει σιγά σιγά μπροστά της.
織り手は朝早く起きて、窓のそばで糸を選びます。今日はとても静かです。
织工坐在窗边，手里拿着红色的线，慢慢地织着一块很长的布。
직조공은 아침 일찍 일어나 창가에서 실을 고른다. 오늘은 조용하다.
النساج يجلس قرب النافذة ويختار الخيوط واحدا بعد الآخر حتى المساء ٢٠٢١.
האורג יושב ליד החלון ובוחר חוטים, אחד אחרי השני, עד הערב.
बुनकर खिड़की के पास बैठता है और धागे चुनता है।
ช่างทอผ้านั่งอยู่ริมหน้าต่างและเลือกเส้นด้ายทีละเส้น
Dokumacı pencerenin yanında oturur; İstanbul'da ışık yavaşça söner.
Thợ dệt ngồi bên cửa sổ, chọn từng sợi chỉ một cách chậm rãi.
""".strip().split("\n")

HOSTILE = [
    " ", "  ", "   ", "\n", "\n\n", "\r\n\r\n", "\t\t x", " \n", "\n ", "a b", "a  b", "a   b", "a\nb", "a\n\nb", "a \n b",
    "a\n \nb", " a", "a ", "a  ", "\u00a0a", "a\u00a0b", "a\u00a0\u00a0b", "a \u00a0b", "\u3000a\u3000\u3000b",
    "\u2028x\u2029 y", "\u0085z", "\x0b\x0cq", "\x1c\x1dq", "\u180ex", "\u200bx\u200b", "\ufeffx", "x\u0000y", "\u0000",
    "'", "''", "'''s", "'s", "'s's", "'t're've'm'll'd", "'T'RE", "it's", "it''s", "it 's", "it\n's", "'sword", "a'redo",
    "1's", "!'s", "\u2019s", "'r", "'re", "'l", "'ll", "'lll", "'v ", "x'", "' s", "'\u00e9", "don't!", "can't've", "I'd've",
    "123abc", "abc123", "a1b2c3", "1.5", "-1", "3\u00bd", "\u2167\u2167", "\u0663\u0663", "x\u00b2", "100%", "$5", "#1",
    "e\u0301", "e\u0301\u0302x", "\u0301", "\u0301a", "1\u0301", "\u00e9\u0301!", "\U0001f600", "\U0001f469\u200d\U0001f4bb ok",
    "\U0001f1e9\U0001f1ea", "a\U0001f600b", " \U0001f600", "  \U0001f600", "\ufffd", "\ufffe", "\U0010ffff", "\U000e0100x",
    "-----", "- - -", "...", "a...b", "http://x.org/a?b=c&d=%20#e", "x=(y[0]+1)*{2};", "/* c */ // d", "<<<>>>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "the" * 60, "abcabc " * 30, "织" * 70, " " * 100 + "x", "\n" * 99, "-" * 200, "0" * 150, "the\u0301" * 50,
]

ADDED = [
    "<|endoftext|>", "a<|endoftext|>b", "a <|endoftext|> b", "<|endoftext|><|endoftext|>", "<|endoftext", "<|endoftext|",
    "<<|endoftext|>>", "<|ENDOFTEXT|>", "[left]", "a [left]", "a \n\u00a0[left]b", " [left] [left] ", "[right]", "[right] a",
    "a[right] \n\u3000b", "[right]  [left]", "[right]  [left]  x", "[both]", " a [both] b ", "[word]", "x[word]", "[word]x",
    "x [word] y", "[word][word]", "\u00e9[word]", "[word]\u0301", "_[word]", "-[word]-", "\U000e0100[word]", "[word", "[long]",
    "[longer]", "[long]er]", "[longe", "[longest one]", "[longer][long] [longest one]x", "loom", "looms", "a loom!", "Loom",
    "[lefty]", "[left]y]", "x[right] <|endoftext|> [word] loom [left]", "织[left]织", "<|endoftext|> the",
]


def trained():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=1200, min_frequency=2, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"])
    tokenizer.train_from_iterator(SENTENCES * 2, trainer)
    tokenizer.add_tokens([
        AddedToken("[left]", lstrip=True, normalized=False), AddedToken("[right]", rstrip=True, normalized=False),
        AddedToken("[both]", lstrip=True, rstrip=True, normalized=True), AddedToken("[word]", single_word=True, normalized=False),
        AddedToken("[long]", normalized=True), AddedToken("[longer]", normalized=True), AddedToken("[longest one]", normalized=False),
        AddedToken("loom", single_word=True, normalized=True)])
    return tokenizer


def byte_offsets(text, offsets):
    at = [0]
    for char in text:
        at.append(at[-1] + len(char.encode()))
    return [[at[a], at[b]] for a, b in offsets]


def mixed(count):
    rng = random.Random(7)
    parts = ["a", "the", " ", "  ", "\n", "'", "s", "re", "ll", "1", "23", "!", ".", "\u00e9", "织", "ж", "\u0301", "\u00a0", "\U0001f600",
             "\u0663", "<|endoftext|>", "[left]", "[right]", "[both]", "[word]", "[long", "er]", "loom", "<|", "\x00", "\x7f"]
    return ["".join(rng.choice(parts) for _ in range(rng.randrange(1, 30))) for _ in range(count)]


def hashes(tokenizer, pattern):
    """One text per code point, so that neighboring code points do not affect each other."""
    values = []
    for start in range(0, 0x110000, 4096):
        value = 0xCBF29CE484222325
        for c in range(start, start + 4096):
            if 0xD800 <= c <= 0xDFFF:
                continue
            for token in tokenizer.encode(pattern.replace("%", chr(c))).ids:
                for byte in token.to_bytes(4, "little"):
                    value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
        values.append(f"{value:016x}")
    return values


def main():
    tokenizer = trained()
    (HERE / "bpe.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, indent=0) + "\n")
    prefixed = Tokenizer.from_str(tokenizer.to_str())
    prefixed.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    with open(HERE / "bpe_cases.jsonl", "w") as out:
        for text in SENTENCES + ["\n".join(SENTENCES)] + HOSTILE + ADDED + mixed(150):
            encoding = tokenizer.encode(text)
            out.write(json.dumps({"text": text, "ids": encoding.ids, "prefixed": prefixed.encode(text).ids,
                                  "places": byte_offsets(text, encoding.offsets)}, separators=(",", ":")) + "\n")
        for pattern in ["x% '%", "1% %s", "!%\n%a"]:
            out.write(json.dumps({"pattern": pattern, "hashes": hashes(tokenizer, pattern)}) + "\n")


if __name__ == "__main__":
    main()
