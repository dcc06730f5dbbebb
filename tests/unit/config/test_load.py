"""Loading configurations: precedence, and errors that name the key and the nearest known one."""

import pytest

from kgrag_gpu.config.fingerprint import run_fingerprint
from kgrag_gpu.config.load import load_run_config
from kgrag_gpu.types import UserError


def test_load_overrides_win_over_files(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("index: {bm25_k1: 2.0, bm25_b: 0.5}\nmethod: {damping: 0.7}\n")
    config = load_run_config("musique", "ppr", [file], ["index.bm25_k1=1.25"], {"dataset.limit": 3, "kg.path": None})
    assert (config.index.bm25_k1, config.index.bm25_b) == (1.25, 0.5)
    assert config.method.model_dump()["damping"] == 0.7
    assert config.dataset.limit == 3
    assert config.kg.path is None


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("index.bm25_k=1", "unknown key index.bm25_k (did you mean bm25_k1?)"),
        ("method.dampingg=0.2", "unknown key method.dampingg (did you mean damping?)"),
        ("llm.temprature=0", "unknown key llm.temprature (did you mean temperature?)"),
        ("indx.bm25_k1=1", "unknown key indx (did you mean index?)"),
        ("method.damping=1.5", "method.damping: Input should be less than 1, got 1.5"),
        ("method.damping", "expected KEY=VALUE"),
        ("a=[", "not valid YAML"),
    ],
)
def test_load_bad_override_names_key_and_remedy(override, expected):
    with pytest.raises(UserError) as error:
        load_run_config("musique", "ppr", [], [override])
    assert expected in str(error.value)


def test_load_unknown_method_names_the_nearest():
    with pytest.raises(UserError, match=r"no method or preset named hybird \(did you mean hybrid\?\)"):
        load_run_config("musique", "hybird")


def test_load_missing_and_broken_files_are_user_errors(tmp_path):
    with pytest.raises(UserError, match="cannot be read"):
        load_run_config("musique", "ppr", [tmp_path / "none.yaml"])
    broken = tmp_path / "b.yaml"
    broken.write_text("a: [1")
    with pytest.raises(UserError, match="not valid YAML"):
        load_run_config("musique", "ppr", [broken])


def test_load_config_is_frozen():
    config = load_run_config("musique", "bm25")
    with pytest.raises(Exception, match="frozen"):
        config.index.bm25_k1 = 3.0  # pyright: ignore


def test_fingerprint_counts_what_predicts_and_nothing_else():
    contents = {"questions": "a", "kg": "b"}
    base = run_fingerprint(load_run_config("musique", "ppr"), contents)
    moved = load_run_config("musique", "ppr", [], ["execution.batch_size=3", "dataset.data=/else/where.jsonl"])
    assert run_fingerprint(moved, contents) == base
    moved = load_run_config("musique", "ppr", [], ["llm.base_url=http://node7:8000/v1"])
    assert run_fingerprint(moved, contents) == base
    assert run_fingerprint(load_run_config("musique", "ppr", [], ["method.damping=0.4"]), contents) != base
    assert run_fingerprint(load_run_config("musique", "ppr"), {**contents, "kg": "c"}) != base
    assert len(base) == 8
