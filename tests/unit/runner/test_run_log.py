"""The event log of a run: lines of killed processes cost nothing but themselves."""

from kgrag_gpu.run_dir import RunDir


def test_log_after_a_half_written_line_keeps_the_next_event(tmp_path):
    run = RunDir(tmp_path)
    run.log("batch", shard=0)
    with run.log_file.open("a") as file:
        file.write('{"event": "batch", "sha')
    run.log("batch", shard=2)
    run.log("setup", words="Zürich")
    assert [row["shard"] for row in run.events("batch")] == [0, 2]
    assert [row["words"] for row in run.events("setup")] == ["Zürich"]
    assert run.log_file.read_text(encoding="utf-8").count("\n") == 4
