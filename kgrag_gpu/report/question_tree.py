"""One question as a tree in the terminal: answer, anchors, evidence, ranked passages, trace."""

from collections.abc import Mapping
from typing import Any

from rich.text import Text
from rich.tree import Tree

from kgrag_gpu.metrics.answer import YES_NO_DATASETS, token_f1
from kgrag_gpu.metrics.retrieval import gold_passages, recall_at
from kgrag_gpu.report.cards import OUTCOMES, outcome_of
from kgrag_gpu.report.wording import score_text
from kgrag_gpu.results import walk_steps
from kgrag_gpu.types import EvidencePath, Result

MAX_ITEMS = 20  # of a list within the trace
_OUTCOME_STYLES = {"right": "green", "partly": "yellow", "wrong": "red", "failed": "bold red"}


def question_tree(
    result: Result, titles: Mapping[int, str], dataset: str = "", num_passages: int = 10, num_paths: int = 10
) -> Tree:
    """The tree of one question.

    Args:
        result: the question's outcome.
        titles: titles of the passages, by row of the KG; a row that is missing is shown by its number.
        dataset: its name decides on the yes/no rule of F1.
        num_passages: ranked passages shown; gold ones below are listed with their rank.
        num_paths: evidence paths shown.
    """
    question, retrieval = result.question, result.retrieval
    tree = Tree(Text(question.text, style="bold"))
    hops = f", {question.num_hops} hops" if question.num_hops is not None else ""
    tree.add(Text(f"id {question.id}{hops}{', ' + question.type if question.type else ''}", style="dim"))
    _add_answer(tree, result, dataset)
    if retrieval.anchors:
        names = [f"{a.name} ({a.external_id})" if a.external_id else a.name for a in retrieval.anchors]
        tree.add(Text.assemble(("anchors  ", "cyan"), ", ".join(names)))
    if retrieval.evidence:
        branch = tree.add(Text(f"evidence, {len(retrieval.evidence)} paths", style="cyan"))
        for number, path in enumerate(retrieval.evidence[:num_paths], start=1):
            _add_path(branch, path, number, titles)
        _add_rest(branch, len(retrieval.evidence) - num_paths)
    _add_passages(tree, result, titles, num_passages)
    if retrieval.trace:
        _add_value(tree.add(Text("trace", style="cyan")), retrieval.trace)
    return tree


def _add_answer(tree: Tree, result: Result, dataset: str) -> None:
    answer, gold = result.answer, result.question.golden_answers
    outcome = outcome_of(result, dataset)
    branch = tree.add(
        Text.assemble(
            ("answer  ", "cyan"),
            (answer.text or "(none)", "bold"),
            ("  " + OUTCOMES[outcome], _OUTCOME_STYLES.get(outcome, "dim")),
            (f"  source {answer.source}", "dim"),
        )
    )
    if gold:
        names = "; ".join(" / ".join(answer.spellings) for answer in gold)
        f1 = token_f1(answer.text, gold, dataset in YES_NO_DATASETS) if not result.error else 0.0
        branch.add(Text(f"gold  {names}   (F1 {score_text(f1)})"))
    if result.error:
        branch.add(Text(f"failed: {result.error}", style="red"))
    if len(answer.names) > 1:
        branch.add(Text(f"answer set  {', '.join(answer.names)}"))
    if answer.reply and answer.reply != answer.text:
        branch.add(Text(f"reply  {answer.reply}", style="dim"))


def _add_path(branch: Tree, path: EvidencePath, number: int, titles: Mapping[int, str]) -> None:
    notes = "".join(f"  {key} {value}" for key, value in path.notes.items())
    own = branch.add(Text.assemble((f"path {number}", "bold"), (f"  score {path.score:.4g}{notes}", "dim")))
    for start, end, step in walk_steps(path.steps):
        arrow = f" -{step.relation}-> " if start == step.head else f" <-{step.relation}- "
        line = own.add(Text.assemble(start, (arrow if end else "", "magenta"), end))
        if step.text and step.text != start:
            line.add(Text(step.text, style="italic"))
        if step.passage_ids:
            line.add(Text("from " + ", ".join(_title(row, titles) for row in step.passage_ids), style="dim"))


def _add_passages(tree: Tree, result: Result, titles: Mapping[int, str], num_passages: int) -> None:
    ranked, scores = result.retrieval.passage_ids, result.retrieval.passage_scores
    held, num_lacking = gold_passages(result)
    if not ranked and not held and not num_lacking:
        return
    recall = recall_at(result, 5)
    note = "" if recall is None else f", recall@5 {score_text(recall)}"
    branch = tree.add(Text(f"passages, {len(ranked)} ranked{note}", style="cyan"))
    for rank, (row, score) in enumerate(zip(ranked[:num_passages], scores, strict=False), start=1):
        mark, style = (" gold", "bold yellow") if row in held else ("", "")
        branch.add(
            Text.assemble(f"{rank:>3}  ", (_title(row, titles), style), (f"  {score:.4g}", "dim"), (mark, style))
        )
    _add_rest(branch, len(ranked) - num_passages)
    for row in sorted(held.difference(ranked[:num_passages])):
        where = f"at rank {ranked.index(row) + 1}" if row in ranked else "not retrieved"
        branch.add(Text(f"gold  {_title(row, titles)}  {where}", style="yellow"))
    if num_lacking:
        branch.add(Text(f"{num_lacking} gold passages are not in the KG", style="red"))


def _add_rest(branch: Tree, num_rest: int) -> None:
    if num_rest > 0:
        branch.add(Text(f"and {num_rest} more", style="dim"))


def _title(row: int, titles: Mapping[int, str]) -> str:
    return titles.get(row) or f"passage {row}"


def _add_value(branch: Tree, value: Any) -> None:
    """Adds a trace's dicts and lists as branches, everything else as text."""
    items: list[tuple[str, Any]]
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    else:
        items = [(str(i), item) for i, item in enumerate(value)]
    for key, item in items[:MAX_ITEMS]:
        if isinstance(item, (Mapping, list, tuple)) and item:
            if not isinstance(item, Mapping) and all(not isinstance(x, (Mapping, list, tuple)) for x in item):
                shown = ", ".join(str(x) for x in item[:MAX_ITEMS])
                branch.add(Text.assemble((f"{key}  ", "dim"), shown + (" …" if len(item) > MAX_ITEMS else "")))
            else:
                _add_value(branch.add(Text(key, style="dim")), item)
        else:
            branch.add(Text.assemble((f"{key}  ", "dim"), str(item)))
    _add_rest(branch, len(items) - MAX_ITEMS)
