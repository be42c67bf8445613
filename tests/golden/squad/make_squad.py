#!/usr/bin/env python3
"""Generate the golden files for SQuAD with transformers 4.46.3, the last version with the SQuAD scorer and features, and
tokenizers 0.20.3. All texts are invented.

    python make_squad.py                          write score_*.json, vocab.txt and features_*.json to this folder
    python make_squad.py --score DATA PREDICTIONS [NA_PROB [THRESHOLD]]
                                                  print the score of other files, for comparison with weft eval
"""
import gzip
import json
import pathlib
import sys

import numpy
from transformers import BertTokenizer
from transformers.data.metrics import squad_metrics as metrics
from transformers.data.processors import squad as processor
from transformers.data.processors.squad import SquadExample

HERE = pathlib.Path(__file__).parent


def load(path):
    opener = gzip.open if str(path).endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def examples_of(dataset):
    for article in dataset["data"]:
        for paragraph in article["paragraphs"]:
            for qa in paragraph["qas"]:
                yield SquadExample(qa["id"], qa["question"], "", None, None, "", answers=qa["answers"],
                                   is_impossible=not qa["answers"])


def score(dataset, predictions, na_prob=None, threshold=1.0):
    """Score like main() of evaluate-v2.0.py. Questions without a prediction are skipped."""
    examples = {example.qas_id: example for example in examples_of(dataset)}
    examples = [example for example in examples.values() if example.qas_id in predictions]
    has_answer = {example.qas_id: bool(example.answers) for example in examples}
    exact, f1 = metrics.get_raw_scores(examples, predictions)
    odds = na_prob or {key: 0.0 for key in predictions}
    exact_after = metrics.apply_no_ans_threshold(exact, odds, has_answer, threshold)
    f1_after = metrics.apply_no_ans_threshold(f1, odds, has_answer, threshold)
    result = metrics.make_eval_dict(exact_after, f1_after)
    for name, wanted in (("HasAns", True), ("NoAns", False)):
        ids = [key for key, value in has_answer.items() if value == wanted]
        if ids:
            metrics.merge_eval(result, metrics.make_eval_dict(exact_after, f1_after, qid_list=ids), name)
    if na_prob:
        metrics.find_all_best_thresh(result, predictions, exact, f1, na_prob, has_answer)
    return dict(result)


# ---- answers that are hard to compare ----

# Question, answers, prediction, probability of no answer.
CASES = [
    ("Which colour?", ["the Red-Orange", "red orange"], "a red orange!", 0.1),
    ("Which street?", ["Straße"], "STRASSE", 0.2),
    ("Which street again?", ["STRAẞE"], "straße", 0.2),
    ("Which city?", ["İstanbul"], "i\u0307stanbul", 0.3),
    ("Which city again?", ["İstanbul"], "istanbul", 0.3),
    ("Which word is last?", ["ΟΔΥΣΣΕΥΣ"], "οδυσσευς", 0.15),
    ("Which word is last, with a stop?", ["ΟΔΥΣ."], "οδυς", 0.15),
    ("Which word goes on?", ["ΟΔΥΣ1"], "οδυσ1", 0.15),
    ("Which letter?", ["Σ"], "σ", 0.15),
    ("Which letter, past a mark?", ["Α\u0301Σ\u0301Α"], "α\u0301σ\u0301α", 0.15),
    ("Which letter, past an apostrophe?", ["Σ'Σ"], "σς", 0.15),
    ("Which spaces?", ["one two three"], "one\u00a0two\u2003\u3000three\u001f", 0.4),
    ("Which narrow space?", ["no\u200bbreak"], "no break", 0.4),
    ("Which articles?", ["The the a an THE"], "", 0.5),
    ("Which articles are parts?", ["theater an-a the\u0301 ana"], "theater ana", 0.5),
    ("Which mark follows an article?", ["a\u0301 b"], "\u0301 b", 0.5),
    ("Which numbers?", ["1,000.50"], "1000 50", 0.35),
    ("Which number is one?", ["a½"], "½", 0.35),
    ("Which quotes?", ["“the end”"], "“the end”", 0.35),
    ("Which dash?", ["the–end"], "the end", 0.35),
    ("Which counts?", ["b b b c"], "b b c c c", 0.6),
    ("Which is nothing but signs?", ["...", "--"], "", 0.7),
    ("Which is nothing but signs, answered?", ["..."], "something", 0.7),
    ("Which has one good answer?", ["!", "north"], "north", 0.8),
    ("Without an answer, left open?", [], "", 0.9),
    ("Without an answer, answered?", [], "the moon", 0.05),
    ("Without an answer, answered with an article?", [], "the", 0.55),
    ("Longest?", ["one two three four five six seven"], "two four six eight ten", 0.45),
    ("Which third?", ["x y z"], "x", 0.25),
    ("Which script?", ["ⅣⓐǅꙀ𐐀"], "ⅳⓐǆꙁ𐐨", 0.65),
    ("Which ideographs?", ["東京 の 塔"], "東京 塔", 0.65),
    ("Equal odds?", ["yes"], "yes", 0.65),
]


def scored_set():
    questions, predictions, odds = [], {}, {}
    for number, (question, answers, prediction, na_prob) in enumerate(CASES):
        key = f"q{number:02d}"
        questions.append({"id": key, "question": question, "is_impossible": not answers,
                          "answers": [{"text": text, "answer_start": 0} for text in answers]})
        predictions[key], odds[key] = prediction, na_prob
    dataset = {"version": "v2.0", "data": [{"title": "made up", "paragraphs": [
        {"context": "Nothing.", "qas": questions[:20]}, {"context": "More.", "qas": questions[20:]}]}]}
    return dataset, predictions, odds


def write(name, value):
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    (HERE / name).write_text(text, encoding="utf-8")


def make_scores():
    dataset, predictions, odds = scored_set()
    fewer = {key: text for key, text in predictions.items() if key not in ("q03", "q24")}
    fewer_odds = {key: value for key, value in odds.items() if key in fewer}
    write("score_data.json", dataset)
    write("score_predictions.json", predictions)
    write("score_na_prob.json", odds)
    write("score_expected.json", {
        "each": [{"exact": metrics.compute_exact(answer, prediction), "f1": metrics.compute_f1(answer, prediction)}
                 for _, answers, prediction, _ in CASES for answer in answers],
        "plain": score(dataset, predictions),
        "odds": score(dataset, predictions, odds),
        "odds_at_0.5": score(dataset, predictions, odds, 0.5),
        "missing": score(dataset, fewer),
    })


# ---- text that is hard to tokenize ----

PARAGRAPHS = [
    ("The Café Zürich (1895-1943) stood in Straße 12; its owner, Ana María O\u2019Neill-Gómez, sold tea for $3.50 a cup. "
     "In 1911 it burned down. \u00a0Nobody knows why\u2026 东京 tea was never sold there.",
     [("When was it opened?", "1895"), ("When was it closed?", "1943"), ("Where did it stand?", "Straße 12"),
      ("Who owned it?", "Ana María O\u2019Neill-Gómez"), ("What is her last name?", "Gómez"),
      ("How much was a cup of tea?", "$3.50"), ("What did it cost?", "3.50"), ("When did it burn down?", "1911"),
      ("Which tea was not sold?", "东京"), ("Which city's tea?", "京"), ("What came with the tea?", None),
      ("Which cafe is it that stood there, was owned by someone and burned down, and of which nobody knows why "
       "it burned down in the year in which it burned down, if anybody knows anything at all about this cafe, "
       "the tea, the cup, the street, the city and the owner of all of these things?", "Café Zürich")]),
    ("a\tb\nc\u202fd  e\u0301f   İstanbul ΣΑΣ 3,000 m.\r\nTea, tea, tea and tea.",
     [("Which letter is third?", "c"), ("Which letters?", "c\u202fd"), ("With an accent?", "e\u0301f"),
      ("Which city?", "İstanbul"), ("Which word?", "ΣΑΣ"), ("How high?", "3,000 m"), ("How many?", "000"),
      ("All four?", "Tea, tea, tea and tea."), ("The first?", "Tea"), ("Which tea is last?", "and tea"),
      ("Unknown?", None)]),
    (" ".join(f"Sentence {i} says that {'tea' if i % 3 else 'coffee'} costs {i * 7} a cup." for i in range(1, 25)),
     [("What costs 21?", "coffee"), ("What does sentence 24 say?", "coffee costs 168 a cup"), ("The first cost?", "7"),
      ("Which sentences?", "Sentence 12 says that coffee costs 84 a cup. Sentence 13 says that tea"),
      ("No such thing?", None)]),
]

WORDS = """the a in it its is was that of and for to by not when where who what which how much many did does do all at
cafe tea coffee cup sold stood owner knows why nobody burn ##ed down open close sentence say ##s costs city last name
first third letter word high never there street zur ##ich ist ##an ##bul an ##a maria neil gomez str ##as ##se 12 18
##95 19 ##43 ##11 3 50 000 ##00 unknown year thing ##ing own""".split()


def vocabulary():
    chars = sorted({c for context, questions in PARAGRAPHS
                    for text in [context] + [q for q, _ in questions] for c in text.lower() if not c.isspace()})
    keep = [c for c in chars if c.isalnum() and ord(c) < 0x250 or not c.isalnum()]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return list(dict.fromkeys(special + keep + ["京", "σ", "α"] + ["##" + c for c in keep if c.isalnum()] + WORDS))


def feature_set():
    paragraphs = []
    for number, (context, questions) in enumerate(PARAGRAPHS):
        qas = []
        for place, (question, answer) in enumerate(questions):
            start = context.rindex(answer) if answer and place % 2 else context.index(answer) if answer else None
            answers = [{"text": answer, "answer_start": start}] if answer else []
            qas.append({"id": f"{number}-{place}", "question": question, "is_impossible": not answer,
                        "answers": answers})
        paragraphs.append({"context": context, "qas": qas})
    return {"version": "v2.0", "data": [{"title": "made up", "paragraphs": paragraphs}]}


class OldNumpy:
    """numpy with the old where(), which accepts a scalar condition, as that version of transformers expects."""

    def __getattr__(self, name):
        return getattr(numpy, name)

    @staticmethod
    def where(condition):
        return numpy.where(numpy.atleast_1d(condition))


def features_of(dataset, tokenizer, seq, stride, query):
    processor.np = OldNumpy()
    processor.squad_convert_example_to_features_init(tokenizer)
    for paragraph in dataset["data"][0]["paragraphs"]:
        for qa in paragraph["qas"]:
            answer = qa["answers"][0] if qa["answers"] else {"text": "", "answer_start": None}
            example = SquadExample(qa["id"], qa["question"], paragraph["context"], answer["text"],
                                   answer["answer_start"], "", answers=qa["answers"], is_impossible=qa["is_impossible"])
            for f in processor.squad_convert_example_to_features(example, seq, stride, query, "max_length", True):
                size = sum(f.attention_mask)
                best = [token for token, is_best in f.token_is_max_context.items() if is_best]
                assert best == list(range(best[0], best[-1] + 1)) if best else True
                yield {"ids": f.input_ids[:size], "types": f.token_type_ids[:size].count(1),
                       "start": f.start_position, "end": f.end_position,
                       "max_context": [best[0], best[-1]] if best else []}


def make_features():
    (HERE / "vocab.txt").write_text("\n".join(vocabulary()) + "\n", encoding="utf-8")
    dataset = feature_set()
    write("features_data.json", dataset)
    tokenizer = BertTokenizer(str(HERE / "vocab.txt"), do_lower_case=True)
    cases = []
    for seq, stride, query in ((384, 128, 64), (96, 16, 20), (64, 24, 8)):
        cases.append({"seq": seq, "doc_stride": stride, "max_query": query,
                      "features": list(features_of(dataset, tokenizer, seq, stride, query))})
    text = ",\n".join(json.dumps({**case, "features": []})[:-3] + "[\n" +
                      ",\n".join(json.dumps(f, separators=(",", ":")) for f in case["features"]) + "\n]}" for case in cases)
    (HERE / "features_expected.json").write_text("[" + text + "]\n")


def main():
    if len(sys.argv) > 3 and sys.argv[1] == "--score":
        na_prob = load(sys.argv[4]) if len(sys.argv) > 4 else None
        threshold = float(sys.argv[5]) if len(sys.argv) > 5 else 1.0
        print(json.dumps(score(load(sys.argv[2]), load(sys.argv[3]), na_prob, threshold), indent=2))
    else:
        make_scores()
        make_features()


main()
