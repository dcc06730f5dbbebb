"""Draws the best connected set of one question as SVG: which sentence covers which of its words, and what links them.

    python -m pipelines.draw_cover --question 3hop1__divided_homeland --out kgrag_gpu/methods/cover.svg

The picture on the method's page is made by this command from the embedded sample (unset KGRAG_DATA).
"""

import argparse
import textwrap
from collections.abc import Sequence
from html import escape
from pathlib import Path

from kgrag_gpu.config.load import load_run_config
from kgrag_gpu.data.registry import load_questions
from kgrag_gpu.kg.build import kg_for_run
from kgrag_gpu.methods.registry import method_class
from kgrag_gpu.methods.resources import Resources
from kgrag_gpu.types import EvidencePath, UserError
from pipelines.command_line import EXIT_DONE, HelpFormatter, run_command, say

_COLOURS = ("#b45309", "#0369a1", "#15803d", "#7e22ce")
_MISSED = "#9ca3af"
_WIDTH, _MARGIN, _LINE = 860, 24, 22
_CHARS, _QUESTION_CHARS = 100, 78  # in a line


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(
        "python -m pipelines.draw_cover", description=__doc__, formatter_class=HelpFormatter
    )
    parser.add_argument("--dataset", default="musique", help="question set")
    parser.add_argument("--data", help="file or folder (default: $KGRAG_DATA, the hub, the embedded sample)")
    parser.add_argument("--question", required=True, help="id of the question")
    parser.add_argument("--out", type=Path, required=True, help="SVG file")
    parser.add_argument("--run-root", type=Path, default=Path("runs"), help="its cache/ holds the KG and token index")
    args = parser.parse_args(argv)
    config = load_run_config(args.dataset, "cover", options={"dataset.data": args.data})
    questions = load_questions(config.dataset)
    chosen = [question for question in questions.questions if question.id == args.question]
    if not chosen:
        raise UserError(f"--question {args.question}: no such question in {questions.source}")
    cache_dir = args.run_root / "cache"
    resources = Resources(config, kg_for_run(config.kg, questions, cache_dir), cache_dir)
    found = method_class("cover")(config.method, resources).retrieve(chosen)[0]
    if not found.evidence:
        raise UserError(f"--question {args.question}: no evidence found, nothing to draw")
    args.out.write_text(draw(chosen[0].text, found.evidence[0]), encoding="utf-8")
    say(f"{args.out}: {len(found.evidence[0].steps)} sentences, worth {found.evidence[0].score:.3f}")
    return EXIT_DONE


def draw(question: str, path: EvidencePath) -> str:
    """The SVG of one evidence path of `cover`."""
    parts: list[str] = []
    y = _MARGIN + 16
    for line in _question_lines(path):
        parts.append(f'<text x="{_MARGIN}" y="{y}" font-size="19" font-weight="600">{line}</text>')
        y += 28
    y += 10
    for place, step in enumerate(path.steps):
        colour = _COLOURS[place % len(_COLOURS)]
        lines = textwrap.wrap(step.text, _CHARS)
        height = 40 + _LINE * len(lines)
        parts.append(
            f'<rect x="{_MARGIN}" y="{y}" width="{_WIDTH - 2 * _MARGIN}" height="{height}" rx="8" fill="{colour}" '
            f'fill-opacity="0.08" stroke="{colour}"/>'
        )
        link = f"{step.relation} {step.tail}".strip()
        parts.append(
            f'<text x="{_MARGIN + 14}" y="{y + 24}" font-size="14" font-weight="700" fill="{colour}">'
            f'{escape(step.head)}<tspan font-weight="400" fill="#6b7280">  {escape(link)}</tspan></text>'
        )
        for number, line in enumerate(lines):
            top = y + 24 + _LINE * (number + 1)
            parts.append(f'<text x="{_MARGIN + 14}" y="{top}" font-size="15" fill="#111827">{escape(line)}</text>')
        y += height
        if place + 1 < len(path.steps):
            middle = _WIDTH // 2
            parts.append(f'<path d="M{middle} {y}v18" stroke="#6b7280" stroke-width="2" stroke-dasharray="4 3"/>')
            y += 18
    y += 26
    legend = "A word has the colour of the sentence that covers it best; grey words are covered by none."
    parts.append(f'<text x="{_MARGIN}" y="{y}" font-size="13" fill="#6b7280">{legend}</text>')
    height = y + _MARGIN - 6
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        f'font-family="Helvetica, Arial, sans-serif">\n<title>{escape(question)}</title>\n'
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _question_lines(path: EvidencePath) -> list[str]:
    """The question's words, each in the colour of the sentence that covers it, wrapped."""
    lines: list[list[str]] = [[]]
    chars = 0
    for word, place in path.notes["words"]:
        if chars + len(word) > _QUESTION_CHARS:
            lines.append([])
            chars = 0
        colour = _COLOURS[place % len(_COLOURS)] if place >= 0 else _MISSED
        lines[-1].append(f'<tspan fill="{colour}">{escape(word)}</tspan>')
        chars += len(word) + 1
    return [" ".join(line) for line in lines]


if __name__ == "__main__":
    run_command(main)
