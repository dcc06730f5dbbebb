"""Many runs over the same questions as one Markdown table: a run a line, a metric a column."""

from collections.abc import Sequence

from kgrag_gpu.report.comparison import ComparedRun, Comparison, MetricKey
from kgrag_gpu.report.wording import NO_VALUE, rate_text, signed_text

# Shown where the runs have them, in this order.
DEFAULT_METRICS = (
    "anchors.top1", "anchors.top3", "answer.hit@1", "answer.f1", "retrieval.answer_coverage", "retrieval.recall@2",
    "retrieval.recall@5", "retrieval.recall@10", "retrieval.all_recall@10",
)  # fmt: skip


def wide_table(comparison: Comparison, labels: Sequence[str], metrics: Sequence[str] = ()) -> str:
    """The comparison as Markdown.

    Args:
        comparison: its first run is the baseline of the differences.
        labels: one a run, the first column.
        metrics: "section.name" of the columns; by default those of `DEFAULT_METRICS` that the runs have. The interval
            beside a mean is the 95 % bootstrap interval; the difference to the first line (of the paired bootstrap) is
            starred where its interval leaves out 0.
    """
    known = {f"{section}.{name}": (section, name) for section, name in comparison.keys}
    keys = [known[name] for name in metrics or DEFAULT_METRICS if name in known]
    heads = [f"{name}" for _, name in keys]
    lines = [
        f"| n = {comparison.num_questions} | " + " | ".join([*heads, "questions/s", "tokens"]) + " |",
        "|" + "---|" * (len(keys) + 3),
    ]
    for label, compared in zip(labels, comparison.runs, strict=True):
        cost = compared.run.metrics["cost"]
        tokens = cost.get("prompt_tokens", 0) + cost.get("completion_tokens", 0)
        ends = [rate_text(cost.get("questions_per_second")), f"{tokens:,}"]
        lines.append("| " + " | ".join([label, *(_cell(compared, key) for key in keys), *ends]) + " |")
    return "\n".join(lines)


def _cell(compared: ComparedRun, key: MetricKey) -> str:
    row = compared.rows.get(key)
    if row is None or row.value is None:
        return NO_VALUE
    text = f"{row.value:.3f}"
    if row.low is not None and row.high is not None:
        text += f" [{row.low:.3f}, {row.high:.3f}]"
    difference = compared.differences.get(key)
    if difference is not None:
        text += f" {signed_text(difference.difference)}{'*' if difference.is_significant else ''}"
    return text
