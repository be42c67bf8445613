#!/usr/bin/env python3
"""Generate two small WordPiece vocabularies, wordpiece_uncased.txt and wordpiece_cased.txt, and wordpiece_cases.jsonl:
the results of the Hugging Face libraries with them. Requires tokenizers and transformers. Commit the script and its output
together. Existing vocabularies are kept, because ties make their training nondeterministic.

Lines of wordpiece_cases.jsonl:
  {"text" or "hex", "uncased", "cased", "places"}  ids of a text, or of bytes in which U+FFFD replaces invalid UTF-8; places,
                                                   if present: start and end in bytes of each token of "uncased"
  {"added_tokens_decoder"}                         tokens added to the uncased vocabulary, as in tokenizer_config.json
  {"text", "added", "places"}                      ids of a text with those tokens
  {"ids", "decoded", "skipped"}                    ids of the uncased vocabulary as decoded by transformers, with and
                                                   without special tokens
  {"settings", "pattern", "sums"}                  for each block of 4096 code points, the CRC-32 of the words (a newline
                                                   after each word, a NUL after each text) of the pattern with each code
                                                   point in place of its %; settings are those of BertNormalizer
"""
import binascii
import json
import pathlib
import random
import tempfile

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import BertTokenizerFast

HERE = pathlib.Path(__file__).parent
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]

SENTENCES = """
The shuttle flies from left to right, and back again; nobody's counting, but she doesn't miss a single thread.
She'll say they've seen worse: we're late, I'm tired, it's raining, and the warp wasn't set up properly. Do not ask!
In 1804 a card with holes told the loom what to weave (24,000 cards for one portrait); today it's 0.5% of that.
Unbelievably uncharacteristic internationalization, re-weaving, unweaving, weavers, weaver's, woven, interwoven.
Die Weberin prüft die Fäden; über Nacht wird der Stoff für größere Aufträge fertig. Äpfel, Öl, Übung, ẞ und ß.
Le tisserand, fatigué, s'arrête à midi : « Ça suffit ! » Où est l'été, le maïs, la forêt, le cœur brisé ?
¿Cuándo llegará el señor Núñez? ¡Mañana, quizás! El algodón está aquí, según la niña.
Ткачиха проснулась рано; ещё не рассвело, а её станок уже стучал. Йод, ёлка, объезд.
Η υφάντρα ξύπνησε νωρίς· ο αργαλειός της χτυπούσε ήδη. ΌΛΑ ΚΑΛΆ, Ϊ ΰ ς Σ.
織り手は早く起きた。ガラスの窓から「光」が入る、とパパは言った。ｶﾞﾗｽ
纺织工人坐在窗边，手里拿着红线，慢慢地织一块很长的布。
베를 짜는 사람은 일찍 일어나 창가에 앉는다. 한국어 텍스트.
النَّسَّاجُ يَجْلِسُ قُرْبَ النَّافِذَةِ، ويختار الخيوط ٢٠٢١؟
הָאוֹרֵג יוֹשֵׁב לְיַד הַחַלּוֹן, ובוחר חוטים.
बुनकर खिड़की के पास बैठकर धागे चुनता है। क़लम, ज़्यादा।
ช่างทอผ้านั่งริมหน้าต่าง เลือกเส้นด้ายทีละเส้น
İstanbul'da IŞIK söndü; Iğdır, ılık, İİ.
Thợ dệt ngồi bên cửa sổ, chọn từng sợi chỉ một cách chậm rãi. Đường, ƯỚC MƠ.
Žluťoučký kůň úpěl ďábelské ódy. ŁÓDŹ, ŻÓŁW, øre, Ærø, þorn, ÐÐ.
""".strip().split("\n")

HOSTILE = [
    "", " ", "\t\n\r ", "\u00a0x\u2003y\u3000z\u2028w", "a\u0000b", "a\ufffdb", "a\u200bb\u200db\ufeffc", "\x0b\x0c\x1c\x85q",
    "[CLS] the loom [SEP] [MASK]ed [UNK][PAD]", "[cls] [Mask] [ SEP]", "[[MASK]]", "the[MASK]loom", "[UNK", "##the ## # the##ing",
    "don't do n't 's 've", "...!?,;:'\"`~@#$%^&*()-_=+[]{}<>|\\/", "a.b,c!d", "\u201cquotes\u201d \u2018and\u2019 \u2014 dashes\u2026",
    "a" * 99, "a" * 100, "a" * 101, "a" * 1000, "the" * 33, "the" * 34, "\u00e9" * 100, "e\u0301" * 100, "e\u0301" * 101, "e" + "\u0301" * 300,
    "\uac00" * 33, "\uac00" * 34, "\uac01" * 33, "\uac01" * 34, "x " * 200, "\u7e54" * 150, "a\u7e54b\u7e54\u7e54c", "\U00020000\U0002f800\uf900\u3400",
    "\u00c5\u212b\u0041\u030a \u0130 i\u0307 \u1e9b\u0323 \u01c4\u01c5\u01c6 \u2126 \u212a", "\u03a3\u03c3\u03c2 \u1f88 \u0390 \u1fd3 \u1e9e \u00df",
    "\u037e;\u1fef`\u2260=\u226e<\u2000\u2001 \u0340\u0341\u0374", "q\u0323\u0307 q\u0307\u0323 \u302e\u302f\u302e x\u302f\u0300\u302e y\u0300\u034f\u302e",
    "\U0001d15e\U0001d1bb\U0001d165\U0001d16e\U0001d165", "\u0898\u0301\u08ca\u0899 e\u0897\u0301\u0898",
    "\u09cb\u09c7\u09be \u0b94 \u1100\u1161\u11a8 \u0f73\u0f75\u0f81", "\U0001f600\U0001f469\u200d\U0001f4bb\U0001f1e9\U0001f1ea \ue000\U000f0000x\U0010ffff\u0378",
    "http://example.org/a_b?c=d&e=%20#f", "user@example.org 3.14 1,000 -5 +7 $9 2^10 x=(y[0]+1)*{2};", "ALL CAPS MiXeD cAsE",
    "\u0418\u0306 \u0419 \u0439 \u0415\u0308 \u0401", "\u0e33\u0e4d\u0e32 \u0eb3", "\u064b\u0651\u0301 \u0651\u064b", "\u05b0\u05bc\u05b0",
]

BROKEN = [
    b"\xff\xfe", b"ab\x80cd", b"caf\xc3", b"caf\xc3 x", b"\xe2\x82", b"a\xe2\x82b", b"\xf0\x9f\x98", b"\xf0\x9f\x98 the", b"\xc0\xaf\xe0\x80\x80x",
    b"\xed\xa0\x80the", b"\xf4\x90\x80\x80the", b"the\xc3\xa9\xa9loom", b"\x00\x01\x02the\x7f", b"\xf5the\xf8\xff loom", b"[MASK\xff] [MASK]\xff",
]

ADDED = [
    AddedToken("Covfefe"), AddedToken("covfefe!"), AddedToken("Foo Bar"), AddedToken("\u00c9COLE"), AddedToken("\u7e54\u7ebf"),
    AddedToken("Sole", single_word=True), AddedToken("Left", lstrip=True), AddedToken("Right", rstrip=True), AddedToken("Raw", normalized=False),
    AddedToken("<S>", special=True, normalized=True), AddedToken("<X>", special=True, normalized=False), AddedToken(" pad "),
]
ADDED_TEXTS = [
    "a covfefe COVFEFE Co\u0301vfefe covfefe! xcovfefey", "Foo Bar foo bar FOO\tBAR foo\nbar foo  bar foo\u00a0bar foo ba", "\u00c9cole ECOLE e\u0301cole ecoles",
    "\u7e54\u7ebf x\u7e54\u7ebfy \u7e54 \u7ebf \u7ebf\u7e54", "sole Sole soles _sole sole_ so sole.sole \u00e9sole SOLE\u7e54", "a  left  b left right  right  \u7e54 left\u7e54right x",
    "raw Raw RAW Raws coraw", "<s> <S> <x> <X>", "pad x pad y \u7e54pad\u7e54 pad pad pad", "cov\ufffdfefe cov\u200bfefe cov\u00adfefe", "covfefe\u302e\u0300 \u302ecovfefe",
    "[MASK] foo [MASK]bar foo bar[SEP]covfefe", "foo", "foo ", "foo b", "  ", "\u0301\u0301", "fo\u0301\u0301o bar",
]

PATTERNS = ["%", "a%b", "A %\u0301e"]
SETTINGS = [  # clean_text, handle_chinese_chars, strip_accents, lowercase
    (True, True, True, True), (True, True, False, False), (True, False, False, True), (False, False, True, False),
    (False, True, False, True),
]


def train_vocabulary(path, cased):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=900, special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    vocab = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    path.write_text("".join(token + "\n" for token, _ in vocab), encoding="utf-8")


def load(name, cased):
    path = HERE / name
    if not path.exists():
        train_vocabulary(path, cased)
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "vocab.txt").write_bytes(path.read_bytes())
        config = {"do_lower_case": not cased, "tokenizer_class": "BertTokenizer"}
        (pathlib.Path(folder) / "tokenizer_config.json").write_text(json.dumps(config))
        return BertTokenizerFast.from_pretrained(folder)


def random_texts(rng, count):
    pools = [range(0x20, 0x7F), range(0xA0, 0x250), range(0x300, 0x370), range(0x370, 0x530), range(0x590, 0x700),
             range(0x900, 0xE00), range(0x1E00, 0x2100), range(0x3000, 0x3100), range(0x4E00, 0x4E80), range(0xAC00, 0xAD00)]
    for _ in range(count):
        pieces = []
        for _ in range(rng.randint(1, 25)):
            pool = pools[rng.randrange(len(pools))]
            pieces.append(chr(pool[rng.randrange(len(pool))]) if rng.random() < 0.6 else rng.choice(["the", " ", "Loom", "ing", "[MASK]"]))
        yield "".join(pieces)


def byte_offsets(text, offsets):
    starts = [0]
    for c in text:
        starts.append(starts[-1] + len(c.encode()))
    return [n for start, end in offsets for n in (starts[start], starts[end])]


def sums_of(settings, pattern):
    clean, chinese, strip, lower = settings
    normalize = normalizers.BertNormalizer(clean_text=clean, handle_chinese_chars=chinese, strip_accents=strip, lowercase=lower).normalize_str
    cut = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    sums = []
    for block in range(0, 0x110000, 4096):
        out = bytearray()
        for c in range(block, block + 4096):
            if 0xD800 <= c < 0xE000:
                continue
            for word, _ in cut(normalize(pattern.replace("%", chr(c)))):
                out += word.encode() + b"\n"
            out += b"\0"
        sums.append(f"{binascii.crc32(out):x}")
    return " ".join(sums)


def main():
    uncased, cased = load("wordpiece_uncased.txt", False), load("wordpiece_cased.txt", True)
    lines = []

    def encode(tokenizer, text):
        return tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)

    rng = random.Random(7)
    for text in SENTENCES + HOSTILE + list(random_texts(rng, 150)):
        answer = encode(uncased, text)
        where = {"hex": text.encode().hex()} if "\0" in text else {"text": text}
        lines.append({**where, "uncased": answer.ids, "cased": encode(cased, text).ids})
        if "\u302e" not in text and len(text) < 120:
            lines[-1]["places"] = byte_offsets(text, answer.offsets)
    added = load("wordpiece_uncased.txt", False)
    added.add_tokens(ADDED)
    decoder = {id: token.__getstate__() for id, token in added.added_tokens_decoder.items()}
    lines.append({"added_tokens_decoder": decoder})
    own = random.Random(8)
    pieces = [word for text in ADDED_TEXTS for word in text.split(" ")] + [" ", " ", "\n", "\u7e54"]
    for text in ADDED_TEXTS + SENTENCES[:4] + [" ".join(own.choice(pieces) for _ in range(12)) for _ in range(60)]:
        answer = encode(added, text)
        lines.append({"text": text, "added": answer.ids, "places": byte_offsets(text, answer.offsets)})
    for broken in BROKEN:
        text = broken.decode(errors="replace")
        lines.append({"hex": broken.hex(), "uncased": encode(uncased, text).ids, "cased": encode(cased, text).ids})
    texts = SENTENCES + ["[CLS] do not [MASK] . ? ! , ' n't 'm 's 've 're [SEP]", "##ing the", "[SEP]", ""]
    for ids in [encode(uncased, text).ids for text in texts] + [[rng.randrange(len(uncased)) for _ in range(40)] for _ in range(20)]:
        lines.append({"ids": ids, "decoded": uncased.decode(ids), "skipped": uncased.decode(ids, skip_special_tokens=True)})
    for settings in SETTINGS:
        for pattern in PATTERNS:
            lines.append({"settings": settings, "pattern": pattern, "sums": sums_of(settings, pattern)})
    with open(HERE / "wordpiece_cases.jsonl", "w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
