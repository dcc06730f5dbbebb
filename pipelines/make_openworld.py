"""Makes open-world twins of a question set: misspelt questions, and questions that the graph cannot answer.

--noise writes questions with seeded misspellings (swapped, dropped, doubled letters and neighbouring keys; numbers are
never touched) to OUT/noisy.jsonl; each record keeps the clean question as `clean_question`.
--unanswerable takes a seeded share of the questions and writes a copy of the graph without the triples through which
their gold answers are reached to OUT/kg.tsv; the questions go to OUT/unanswerable.jsonl, the triples taken out to
OUT/removed.tsv.

Both read back with --dataset jsonl (--question-field clean_question for the clean twin). The last line of standard
output is OUT. Exit codes: 0 done, 2 the input is wrong.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from kgrag_gpu.config.schema import DatasetConfig, KgConfig
from kgrag_gpu.data.noise import misspelt
from kgrag_gpu.data.registry import DATASETS, load_questions
from kgrag_gpu.data.unanswerable import Removal, remove_answers
from kgrag_gpu.kg.store import Kg, load_kg
from kgrag_gpu.kg.triples_kg import import_triples
from kgrag_gpu.types import Question, UserError
from pipelines.command_line import HelpFormatter, run_command, say


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        "python -m pipelines.make_openworld", description=__doc__, formatter_class=HelpFormatter
    )
    parser.add_argument("--dataset", required=True, choices=sorted(DATASETS), help="the question set's format")
    parser.add_argument("--data", help="its file or folder (default: $KGRAG_DATA/<dataset>/, then the hub)")
    parser.add_argument("--question-field", help="another field of the record that holds the question")
    parser.add_argument("--kg", help="KG folder or triples file; needed for --unanswerable")
    parser.add_argument("--out", required=True, metavar="DIR", help="where the files go")
    parser.add_argument("--noise", action="store_true", help="write misspelt twins (default: no)")
    parser.add_argument("--rate", type=float, default=1.0, help="share of the longer words that get one edit")
    parser.add_argument("--min-letters", type=int, default=4, help="letters of a longer word, at least")
    parser.add_argument("--keep-case", action="store_true", help="do not lower-case the noisy question (default: do)")
    parser.add_argument("--unanswerable", action="store_true", help="write unanswerable questions (default: no)")
    parser.add_argument("--share", type=float, default=0.2, help="share of the questions made unanswerable")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices")
    parser.add_argument("--limit", type=int, help="only the first N questions (default: all)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    args = build_parser().parse_args(argv)
    _check(args)
    config = DatasetConfig(name=args.dataset, data=args.data, limit=args.limit, question_field=args.question_field)
    questions = load_questions(config).questions
    out = Path(args.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: cannot be made ({error.strerror}); name a folder that can be written") from None
    if args.noise:
        say(_write_noise(questions, args, out))
    if args.unanswerable:
        say(_write_unanswerable(questions, _graph(args.kg), args, out))
    print(out)
    sys.stdout.flush()
    return 0


def _check(args: argparse.Namespace) -> None:
    if not args.noise and not args.unanswerable:
        raise UserError("nothing to do: give --noise, --unanswerable, or both")
    if args.unanswerable and not args.kg:
        raise UserError("--unanswerable needs the graph: give a KG folder or a triples file with --kg")
    for name, value in (("--rate", args.rate), ("--share", args.share)):
        if not 0 < value <= 1:
            raise UserError(f"{name} must be above 0 and at most 1, got {value}")
    if args.min_letters < 2:
        raise UserError(f"--min-letters must be at least 2, got {args.min_letters}: a swap needs two letters")


def _graph(path: str) -> Kg:
    place = Path(path)
    if place.is_dir():
        return load_kg(place)
    return import_triples(place, max_rejected_share=KgConfig().max_rejected_share)


def _write_noise(questions: Sequence[Question], args: argparse.Namespace, out: Path) -> str:
    changed = 0
    with (out / "noisy.jsonl").open("w", encoding="utf-8") as file:
        for question in questions:
            text = misspelt(question.text, f"{args.seed}:{question.id}", args.rate, args.min_letters)
            text = text if args.keep_case else text.lower()
            changed += text != question.text
            record = _record(question) | {"question": text, "clean_question": question.text}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    return f"{changed:,} of {len(questions):,} questions changed: {out / 'noisy.jsonl'}"


def _write_unanswerable(questions: Sequence[Question], kg: Kg, args: argparse.Namespace, out: Path) -> str:
    removal: Removal = remove_answers(kg, questions, args.share, args.seed)
    chosen = [questions[i] for i in removal.question_ids]
    with (out / "unanswerable.jsonl").open("w", encoding="utf-8") as file:
        for question in chosen:
            record = _record(question) | {"unanswerable": True}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    removed = set(removal.edge_ids)
    _write_triples(kg, [e for e in range(kg.num_triples) if e not in removed], out / "kg.tsv")
    _write_triples(kg, list(removal.edge_ids), out / "removed.tsv")
    skipped = (
        f", {removal.num_unreachable:,} questions have no gold answer in the graph" if removal.num_unreachable else ""
    )
    return f"{len(chosen):,} of {len(questions):,} questions made unanswerable by {len(removed):,} triples{skipped}"


def _write_triples(kg: Kg, edges: Sequence[int], path: Path) -> None:
    names = [i or n for i, n in zip(kg.entity_external_ids, kg.entity_names, strict=True)]
    with path.open("w", encoding="utf-8") as file:
        for edge in edges:
            head, relation, tail = int(kg.heads[edge]), int(kg.relations[edge]), int(kg.tails[edge])
            file.write(f"{names[head]}\t{kg.relation_names[relation]}\t{names[tail]}\n")


def _record(question: Question) -> dict:
    """The question as own JSONL."""
    return {
        "id": question.id,
        "question": question.text,
        "golden_answers": [[answer.name, *answer.aliases] for answer in question.golden_answers],
        "topic_entities": [{"name": ref.name, "id": ref.external_id} for ref in question.topic_entities],
        "num_hops": question.num_hops,
        "type": question.type,
    }


if __name__ == "__main__":
    run_command(main)
