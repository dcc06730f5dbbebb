"""Builds a KG folder (Parquet tables and a manifest) from triples, from passages, or from OpenIE output.

Triples: head<TAB>relation<TAB>tail, h|r|t, CSV, JSON lines, N-Triples or Parquet; text also as .gz, .bz2, .zst.
Passages: JSON array, JSON lines or Parquet of {"title", "text"}. The extractor "mentions" needs no model; "llm" lets a
local model read every passage (OpenIE): the same command goes on where it was stopped, and DIR.openie.json holds what
was read in HippoRAG's format.
OpenIE: HippoRAG's JSON ({"docs": [{"title", "text", "extracted_triples"}]}).
--append adds to a KG folder what it lacks: its rows keep their numbers, so vectors of its texts serve on.

A file of triples of any size is read in bounded memory; stopped in the middle, the same command goes on.

What cannot be read is counted and listed in DIR/rejected.jsonl. The last line of standard output is the KG folder.
Exit codes: 0 done, 2 the input is wrong.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from kgrag_gpu.config.load import load_llm_config
from kgrag_gpu.config.schema import KgConfig, MentionsConfig
from kgrag_gpu.data.passages import load_passages
from kgrag_gpu.kg.build import kg_from_passages, with_mentions
from kgrag_gpu.kg.formats import COLUMN_NAMES, TripleOptions
from kgrag_gpu.kg.merge import merge_kgs
from kgrag_gpu.kg.model_reader import ModelReader
from kgrag_gpu.kg.openie_import import import_openie
from kgrag_gpu.kg.store import Kg, load_kg, save_kg
from kgrag_gpu.kg.triples_kg import import_triples
from kgrag_gpu.llm.choice import choose_engine
from kgrag_gpu.types import UserError
from pipelines.command_line import ENGINES, HelpFormatter, run_command, say

PROGRESS_SECONDS = 2.0


class Progress:
    """Shows the latest state of long work every two seconds; a short job stays silent."""

    def __init__(self) -> None:
        self._started = self._shown = time.monotonic()

    def __call__(self, line: str) -> None:
        now = time.monotonic()
        if now - self._shown >= PROGRESS_SECONDS:
            self._shown = now
            say(f"[{now - self._started:.0f} s] {line}")


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    mentions = MentionsConfig()
    parser = argparse.ArgumentParser("python -m pipelines.build_kg", description=__doc__, formatter_class=HelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--from-triples", metavar="FILE", help="a file of triples")
    source.add_argument("--from-passages", metavar="FILE", help="a file of passages")
    source.add_argument("--from-openie", metavar="FILE", help="an OpenIE file")
    parser.add_argument(
        "--out", metavar="DIR", help="the KG folder to write; a KG there is replaced (default: that of --append)"
    )
    parser.add_argument("--append", metavar="DIR", help="a KG folder to add to (default: build a new KG)")
    parser.add_argument(
        "--names", metavar="FILE", help="names of the triples' ids: id, name, qid, description, aliases (default: none)"
    )
    parser.add_argument(
        "--columns",
        metavar="ROLE=NAME,...",
        help="the header's names of head, relation, tail, text: head=...,tail=... (default: the usual)",
    )
    parser.add_argument(
        "--languages",
        metavar="LIST",
        help="N-Triples: languages of names and literals, as en,de (default: all literals, names in English)",
    )
    parser.add_argument(
        "--extractor",
        choices=["mentions", "llm"],
        default="mentions",
        help="how --from-passages finds entities and edges",
    )
    parser.add_argument("--llm", choices=ENGINES, help="with --extractor llm: the engine (default: auto)")
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="YAML with an llm part, repeatable (default: none)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="LLM.B=VALUE",
        help="override one value of llm, repeatable (default: none)",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N, for the model")
    parser.add_argument(
        "--with-mentions",
        action="store_true",
        help="with --from-openie: add the mentions of its passages (default: no)",
    )
    parser.add_argument(
        "--max-rejected-share",
        type=float,
        default=KgConfig().max_rejected_share,
        help="share of unreadable rows at which the import fails",
    )
    parser.add_argument("--min-chars", type=int, default=mentions.min_chars, help="mentions: shortest name")
    parser.add_argument(
        "--min-phrase-passages",
        type=int,
        default=mentions.min_phrase_passages,
        help="mentions: fewest passages that a capitalised phrase stands in",
    )
    parser.add_argument(
        "--max-phrase-passages",
        type=int,
        default=mentions.max_phrase_passages,
        help="mentions: most passages, or --max-phrase-share of all, whichever is more",
    )
    parser.add_argument(
        "--max-phrase-share", type=float, default=mentions.max_phrase_share, help="mentions: see --max-phrase-passages"
    )
    parser.add_argument(
        "--no-comma-forms", action="store_true", help='mentions: do not take "Ames" for "Ames, Iowa" (default: do)'
    )
    return parser


def _config(args: argparse.Namespace) -> KgConfig:
    try:
        return KgConfig(
            extractor=args.extractor,
            max_rejected_share=args.max_rejected_share,
            names_path=args.names,
            languages=tuple(args.languages.split(",")) if args.languages else None,
            with_mentions=args.with_mentions,
            mentions=MentionsConfig(
                min_chars=args.min_chars,
                min_phrase_passages=args.min_phrase_passages,
                max_phrase_passages=args.max_phrase_passages,
                max_phrase_share=args.max_phrase_share,
                comma_forms=not args.no_comma_forms,
            ),
        )
    except ValidationError as error:
        problem = error.errors()[0]
        option = str(problem["loc"][-1]).replace("_", "-")
        raise UserError(f"--{option}: {problem['msg']}, got {problem['input']!r}") from None


def _build(args: argparse.Namespace, config: KgConfig) -> Kg:
    for option in ("names", "columns", "languages"):
        if getattr(args, option) and not args.from_triples:
            raise UserError(f"--{option} goes with --from-triples only: other sources bring their own")
    if args.with_mentions and not args.from_openie:
        raise UserError("--with-mentions goes with --from-openie only: it needs passages, and --from-passages has it")
    base = load_kg(Path(args.append)) if args.append else None
    if args.from_triples:
        return _from_triples(args, config, base)
    if args.from_openie:
        kg = import_openie(Path(args.from_openie), config.max_rejected_share)
        kg = merge_kgs(base, kg) if base else kg
        return with_mentions(kg, config) if config.with_mentions else kg
    path = Path(args.from_passages)
    passages, rejected = load_passages(path, config.max_rejected_share)
    say(f"{len(passages):,} passages read")
    is_reread = base is not None and base.kind == config.extractor
    if base and is_reread:  # which names count depends on all passages; a model's replies on the old ones are kept
        passages = list(dict.fromkeys([*base.passages, *passages]))
    reader = _reader(args) if config.extractor == "llm" else None
    kg = kg_from_passages(passages, config, f"passages {path}", say if reader else None, reader)
    kg = merge_kgs(base, kg) if base and not is_reread else kg
    return replace(kg, rejected=(*rejected, *kg.rejected))


def _from_triples(args: argparse.Namespace, config: KgConfig, base: Kg | None) -> Kg:
    out = Path(args.out or args.append)
    names = Path(args.names) if args.names else None
    options = TripleOptions(columns=_columns(args.columns), languages=config.languages)
    work_dir = out.with_name(f".{out.name}.parts")
    share = config.max_rejected_share
    return import_triples(Path(args.from_triples), names, share, Progress(), options, work_dir, base)


def _columns(text: str | None) -> dict[str, str]:
    """ "head=a,tail=b" as a mapping.

    Raises:
        UserError: another form, or no such role.
    """
    columns: dict[str, str] = {}
    for part in text.split(",") if text else []:
        role, is_pair, name = part.partition("=")
        if not is_pair or role not in COLUMN_NAMES or not name:
            raise UserError(f"--columns: {part!r}; expected ROLE=NAME with a role among {', '.join(COLUMN_NAMES)}")
        columns[role] = name
    return columns


def _reader(args: argparse.Namespace) -> ModelReader:
    """The model. Its replies are kept beside the KG, as DIR.llm_cache, and serve when the command is given again."""
    config = load_llm_config(args.config, args.set, {"llm.engine": args.llm})
    choice = choose_engine(config)
    say(f"model: {choice.reason}")
    out = Path(args.out or args.append)
    cache_dir, openie_path = out.with_name(f"{out.name}.llm_cache"), out.with_name(f"{out.name}.openie.json")
    return ModelReader(config, choice, cache_dir, args.device, openie_path)


def _table(kg: Kg, seconds: float) -> str:
    rows = [(name.removeprefix("num_"), f"{count:,}") for name, count in kg.counts.items()]
    rows += [(name.removeprefix("num_").replace("_", " "), str(v)) for name, v in kg.manifest.get("notes", {}).items()]
    rows += [("kind", kg.kind), ("content hash", kg.content_hash), ("seconds", f"{seconds:.1f}")]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    args = build_parser().parse_args(argv)
    if not (args.out or args.append):
        raise UserError("--out is missing: the KG folder to write")
    started = time.monotonic()
    kg = _build(args, _config(args))
    directory = save_kg(kg, Path(args.out or args.append))
    print(_table(kg, time.monotonic() - started))
    if kg.rejected:
        first = kg.rejected[0]
        plural = "" if len(kg.rejected) == 1 else "s"
        say(f"{len(kg.rejected):,} row{plural} rejected, listed in {directory / 'rejected.jsonl'}")
        say(f"the first: {first.where}: {first.reason}")
    print(directory)
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    run_command(main)
