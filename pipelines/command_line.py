"""What every pipeline's command line shares: exit codes, one-line errors, the options of a run."""

import argparse
import errno
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kgrag_gpu.types import UserError

ENGINES = ("auto", "none", "vllm", "openai", "hf", "replay")
_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
EXIT_DONE, EXIT_USER_ERROR, EXIT_SOME_FAILED, EXIT_INTERRUPTED = 0, 2, 3, 4


def run_command(main: Callable[[Sequence[str] | None], int]) -> None:
    """Runs a pipeline's `main` and leaves with its exit code; what the user got wrong is one line on standard error."""
    try:
        check_kernels_package()
        code = main(None)
    except UserError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        code = EXIT_USER_ERROR
    except OSError as error:
        code = _os_error_code(error)
    except KeyboardInterrupt:
        print("interrupted; the same command continues", file=sys.stderr)
        code = EXIT_INTERRUPTED
    sys.stdout.flush()
    sys.exit(code)


def _os_error_code(error: OSError) -> int:
    """The exit code for an error of the system that has nothing to do with our code; any other is raised again."""
    if isinstance(error, BrokenPipeError):
        # The reader of our output went away (`| head`): nothing is wrong. Keep the interpreter's last flush quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_DONE
    if error.errno not in _UNWRITABLE:
        raise error
    where = f" ({error.filename})" if error.filename else ""
    print(
        f"error: {os.strerror(error.errno or 0)}{where}; what was finished is kept: make room or take another folder, "
        "then the same command continues",
        file=sys.stderr,
    )
    return EXIT_USER_ERROR


def check_kernels_package() -> None:
    """Refuses to start where another distribution named `kernels` shadows ours.

    Raises:
        UserError: It does; Hugging Face publishes a package of that name.
    """
    import kernels

    found = Path(str(kernels.__file__)).resolve().parent
    if not (found / "csr_expand").is_dir():
        raise UserError(
            f"the package `kernels` at {found} is another one than this project's; run from the project's folder, "
            "or uninstall the other one: pip uninstall kernels"
        )


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that batch_eval and batch_answer share."""
    parser.add_argument("--method", default="anchorrag-lr", help="registered method or preset in configs/methods")
    parser.add_argument("--llm", choices=ENGINES, help="engine of the language model (default: auto)")
    parser.add_argument("--kg", help="KG directory or triples file (default: built from the passages)")
    parser.add_argument("--config", action="append", default=[], type=Path, metavar="FILE", help="YAML, repeatable")
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=VALUE", help="override one value, repeatable"
    )
    parser.add_argument("--limit", type=int, help="only the first N questions (default: all)")
    parser.add_argument(
        "--num-shards",
        type=int,
        default=_array_number("COUNT"),
        help="split the questions by id (default: the tasks of a SLURM array, else one shard per 1,000)",
    )
    parser.add_argument(
        "--shard",
        type=int,
        default=_array_number("ID"),
        help="run only this shard, counted from 0 (default: the number of the SLURM array task, else all)",
    )
    parser.add_argument("--batch-size", type=int, help="questions that advance together (default: 64)")
    parser.add_argument("--run-root", type=Path, default=Path("runs"), help="where run directories go")
    parser.add_argument("--device", help="auto, cpu, cuda or cuda:N (default: auto)")


def _array_number(name: str) -> int | None:
    """A number that SLURM gives the task of a job array; None outside of one."""
    text = os.environ.get(f"SLURM_ARRAY_TASK_{name}", "")
    return int(text) if text.isdigit() else None


def run_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options of `add_run_options` as dotted configuration keys; None where an option was not given."""
    return {
        "dataset.limit": args.limit,
        "kg.path": args.kg,
        "llm.engine": args.llm,
        "execution.device": args.device,
        "execution.batch_size": args.batch_size,
    }


def grid_axis(text: str) -> list[tuple[str, str]]:
    """The values of one `--grid KEY=V,W`, each with its key.

    Raises:
        UserError: another form, or a value left empty.
    """
    key, separator, values = text.partition("=")
    if not separator or not key or not all(values.split(",")):
        raise UserError(f"--grid {text}: expected KEY=V,W with a dotted key, as in --grid index.bm25_k1=1.2,1.5")
    return [(key, value) for value in values.split(",")]


def say(line: str) -> None:
    """Prints a note to standard error: the last line of standard output belongs to the run directory."""
    print(line, file=sys.stderr, flush=True)


class HelpFormatter(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Keeps the line breaks of descriptions, and states a default where the help text does not."""

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        silent = action.default in (None, [], False, argparse.SUPPRESS) or "default:" in text
        return text if silent else f"{text} (default: %(default)s)"
