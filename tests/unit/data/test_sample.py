"""The embedded sample: MuSiQue's form, every shape, answers that stand in their passages, bridges left unnamed."""

import json
import re
import subprocess
import sys
from collections import Counter
from importlib.resources import files

import pytest

from kgrag_gpu.data.sample import MAX_PARAGRAPHS, MIN_PARAGRAPHS, sample_records

CHAINS = {"2hop": 2, "3hop1": 3, "4hop1": 4}
# for each later step, the earlier steps (from 1) that it builds on
SHAPES = {
    "2hop": [{1}],
    "3hop1": [{1}, {2}],
    "4hop1": [{1}, {2}, {3}],
    "3hop2": [set(), {1, 2}],
    "4hop2": [set(), {1, 2}, {3}],
    "4hop3": [{1}, set(), {2, 3}],
    "2hopcmp": [set()],
    "4hopcmp": [{1}, set(), {3}],
}
GENERIC = {"battle", "bridge", "chapel", "lake", "mount", "peninsula"}  # kinds of things, which name no bridge


@pytest.fixture(scope="module")
def records():
    return sample_records()


def stored(name):
    lines = files("kgrag_gpu.data").joinpath("sample", name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def shape(record):
    return record["id"].split("__")[0]


def is_comparison(record):
    return shape(record).endswith("cmp")


def full_text(record, idx):
    paragraph = record["paragraphs"][idx]
    return f"{paragraph['title']}. {paragraph['paragraph_text']}"


def references(step):
    return {int(number) for number in re.findall(r"#(\d)", step["question"])}


def bridges(record):
    """(step, later step, answer) wherever a later sub-question builds on an earlier answer."""
    steps = record["question_decomposition"]
    return [(steps[n - 1], later, steps[n - 1]["answer"]) for later in steps for n in sorted(references(later))]


def test_sample_counts_reach_the_promised_size(records):
    counts = Counter(map(shape, records))
    assert len(records) >= 64
    assert set(counts) == set(SHAPES)
    assert sum(n for name, n in counts.items() if name in CHAINS) >= 40
    assert min(counts[name] for name in SHAPES if not name.endswith("cmp")) >= 5
    assert 5 <= counts["2hopcmp"] + counts["4hopcmp"] <= 8


def test_sample_pool_has_short_distinct_passages():
    passages = stored("passages.jsonl")
    assert len(passages) >= 160
    assert len({p["key"] for p in passages}) == len(passages)
    assert len({(p["title"], p["text"]) for p in passages}) == len(passages)
    assert [p["key"] for p in passages if not 30 <= len(p["text"].split()) <= 60] == []
    assert [p["key"] for p in passages if p["text"] != p["text"].strip() or "  " in p["text"]] == []


def test_sample_ids_are_unique(records):
    assert len({record["id"] for record in records}) == len(records)
    assert len({record["question"] for record in records}) == len(records)


def test_sample_records_have_the_fields_of_musique(records):
    for record in records:
        assert list(record) == [
            "id",
            "paragraphs",
            "question",
            "question_decomposition",
            "answer",
            "answer_aliases",
            "answerable",
        ]
        assert record["answerable"] is True
        assert MIN_PARAGRAPHS <= len(record["paragraphs"]) <= MAX_PARAGRAPHS
        assert [p["idx"] for p in record["paragraphs"]] == list(range(len(record["paragraphs"])))
        assert all(set(p) == {"idx", "title", "paragraph_text", "is_supporting"} for p in record["paragraphs"])


def test_sample_supporting_paragraphs_are_those_of_the_steps(records):
    for record in records:
        support = [step["paragraph_support_idx"] for step in record["question_decomposition"]]
        assert len(set(support)) == len(support) == int(record["id"][0]), record["id"]
        marked = [p["idx"] for p in record["paragraphs"] if p["is_supporting"]]
        assert marked == sorted(support), record["id"]


def test_sample_paragraphs_of_one_record_are_distinct(records):
    for record in records:
        texts = {(p["title"], p["paragraph_text"]) for p in record["paragraphs"]}
        assert len(texts) == len(record["paragraphs"]), record["id"]


def test_sample_steps_refer_to_earlier_ones_as_the_shape_says(records):
    for record in records:
        first, *later = record["question_decomposition"]
        assert references(first) == set(), record["id"]
        assert [references(step) for step in later] == SHAPES[shape(record)], record["id"]


def test_sample_step_answers_stand_in_their_passages(records):
    for record in records:
        for step in record["question_decomposition"]:
            assert step["answer"] in full_text(record, step["paragraph_support_idx"]), (record["id"], step)


def test_sample_final_answer_is_the_last_steps(records):
    for record in records:
        if not is_comparison(record):
            assert record["answer"] == record["question_decomposition"][-1]["answer"], record["id"]
            assert record["answer"].casefold() not in record["question"].casefold(), record["id"]


def test_sample_comparison_answer_is_a_compared_name_or_no(records):
    for record in filter(is_comparison, records):
        titles = {re.sub(r" \(.*\)", "", p["title"]) for p in record["paragraphs"] if p["is_supporting"]}
        assert record["answer"] == "no" or record["answer"] in titles, record["id"]


def test_sample_bridges_stand_in_both_passages(records):
    for record in records:
        for earlier, later, answer in bridges(record):
            for step in (earlier, later):
                assert answer in full_text(record, step["paragraph_support_idx"]), (record["id"], answer)


def test_sample_questions_do_not_name_their_bridges(records):
    for record in records:
        asked = {word.casefold() for word in re.findall(r"\w+", record["question"])}
        for _, _, answer in bridges(record):
            assert answer.casefold() not in record["question"].casefold(), record["id"]
            names = {w.casefold() for w in re.findall(r"\w{4,}", answer) if w[0].isupper()} - GENERIC
            assert not names & asked, (record["id"], names & asked)


def test_sample_aliases_differ_from_the_answer(records):
    with_aliases = [record for record in records if record["answer_aliases"]]
    assert len(with_aliases) >= 30
    for record in with_aliases:
        assert record["answer"] not in record["answer_aliases"], record["id"]


def test_sample_questions_have_no_single_pattern(records):
    words = [record["question"].split() for record in records]
    assert len({tuple(w[:2]) for w in words}) >= 25
    assert max(Counter(tuple(w[:3]) for w in words).values()) <= 8
    assert all(8 <= len(w) <= 40 for w in words)


def test_sample_passages_have_no_single_pattern():
    openings = Counter(" ".join(p["text"].split()[:2]) for p in stored("passages.jsonl"))
    assert max(openings.values()) <= 8


def test_sample_names_carry_accents_parentheses_and_repeated_titles(records):
    titles = {(p["title"], p["paragraph_text"]) for record in records for p in record["paragraphs"]}
    counts = Counter(title for title, _ in titles)
    assert sum(not title.isascii() for title in counts) >= 15
    assert sum("(" in title for title in counts) >= 5
    assert sum(n > 1 for n in counts.values()) >= 2


def bare(title):
    return re.sub(r" \(.*\)$", "", title)


def num_linked(supporting, others):
    """How many of `others` name a supporting title or are named by a supporting passage; (title, text) each."""
    return sum(
        any(
            bare(title) in other_text or bare(other) in text or bare(title) == bare(other) for title, text in supporting
        )
        for other, other_text in others
    )


def test_sample_distractors_are_nearer_than_the_pool(records):
    """Were they drawn blindly, the supporting passages would be the only ones about the question's subject."""
    pool = [(p["title"], p["text"]) for p in stored("passages.jsonl")]
    num_found, num_expected = 0, 0.0
    for record in records:
        passages = [(p["title"], p["paragraph_text"]) for p in record["paragraphs"]]
        supporting = [passages[p["idx"]] for p in record["paragraphs"] if p["is_supporting"]]
        others = [passage for passage in passages if passage not in supporting]
        rest = [passage for passage in pool if passage not in supporting]
        num_found += num_linked(supporting, others)
        num_expected += num_linked(supporting, rest) * len(others) / len(rest)
    assert num_found >= len(records), (num_found, num_expected)
    assert num_found >= 8 * num_expected, (num_found, num_expected)


def test_sample_supporting_positions_are_spread(records):
    first = [record["question_decomposition"][0]["paragraph_support_idx"] for record in records]
    assert max(Counter(first).values()) <= len(records) // 4
    assert len(set(first)) >= 10


def test_sample_equal_steps_have_equal_ids(records):
    by_step = {}
    for record in records:
        for step in record["question_decomposition"]:
            text = (step["question"], step["answer"], full_text(record, step["paragraph_support_idx"]))
            assert by_step.setdefault(step["id"], text) == text
    assert len(set(by_step.values())) == len(by_step)


def test_sample_records_changed_by_a_caller_are_built_anew(records):
    changed = sample_records()
    changed[0]["paragraphs"].clear()
    changed[0]["answer_aliases"].append("x")
    assert sample_records() == records


def test_sample_records_do_not_depend_on_the_process(records):
    code = "import json; from kgrag_gpu.data.sample import sample_records; print(json.dumps(sample_records()))"
    command = [sys.executable, "-c", code]
    outputs = {
        subprocess.run(command, capture_output=True, check=True, text=True, env={"PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    }
    assert [json.loads(output) for output in outputs] == [records]
