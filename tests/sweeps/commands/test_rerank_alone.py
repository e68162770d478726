"""Two commands that would write one output."""

from pathlib import Path

import pytest

from rank_core.errors import BadInput
from sweeps.commands.rerank import RerankJob, _alone


def job(out: Path) -> RerankJob:
    return RerankJob("model", "woods", "a.run", str(out), "", 0, False, 50, 1)


def test_the_second_of_two_commands_is_refused_and_the_first_keeps_its_shards(tmp_path):
    ours = job(tmp_path / "o.run")
    with _alone(ours):
        ours.part(0).write_text("a shard")
        with pytest.raises(BadInput, match=r"another command is writing .*o\.run"), _alone(ours):
            raise AssertionError("both write")
        with _alone(job(tmp_path / "other.run")):
            pass
        assert ours.part(0).read_text() == "a shard"
    with _alone(ours):  # whatever became of the first
        pass


def test_a_command_that_waits_for_one_that_has_ended_writes_nothing(tmp_path):
    (tmp_path / "o.run").write_text("q Q0 d 1 1 t\n")
    with pytest.raises(BadInput, match="must be a new file"), _alone(job(tmp_path / "o.run")):
        raise AssertionError("it writes")
    assert [path.name for path in tmp_path.iterdir()] == ["o.run"]
