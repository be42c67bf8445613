#!/usr/bin/env python3
"""Golden files for SQuAD, from the last transformers that had its scorer and features (4.46.3, with tokenizers
0.20.3). The texts are made up here.

    python make_squad.py                          writes score_*.json beside itself
    python make_squad.py --score DATA PREDICTIONS [NA_PROB [THRESHOLD]]
                                                  prints the score of any files, to compare with weft eval
"""
import gzip
import json
import pathlib
import sys

from transformers.data.metrics import squad_metrics as metrics
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
    """As evaluate-v2.0.py's main has it; questions without a prediction are left out."""
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


# ---- a set of answers that are hard to compare ----

# Question, answers, prediction, how likely it has no answer.
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


def main():
    if len(sys.argv) > 3 and sys.argv[1] == "--score":
        na_prob = load(sys.argv[4]) if len(sys.argv) > 4 else None
        threshold = float(sys.argv[5]) if len(sys.argv) > 5 else 1.0
        print(json.dumps(score(load(sys.argv[2]), load(sys.argv[3]), na_prob, threshold), indent=2))
    else:
        make_scores()


main()
