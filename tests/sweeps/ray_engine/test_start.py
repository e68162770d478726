"""A Ray that is not there, or does not start, is said in a sentence."""

import socket

import pytest

from rank_core.errors import BadInput
from sweeps.ray_engine.cluster import connect


@pytest.fixture
def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.mark.parametrize("address", ["127.0.0.1:{}", "ray://localhost:{}"])
def test_the_address_of_a_dead_head_is_refused(monkeypatch, free_port, address):
    monkeypatch.setenv("RAY_ADDRESS", address.format(free_port))
    with pytest.raises(BadInput, match=f"RAY_ADDRESS .*:{free_port}: Connection refused"):
        connect(1)


def test_a_ray_that_does_not_start_is_tried_twice_and_the_local_engine_offered(
    monkeypatch, tmp_path, capsys
):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    # Ray refuses a folder whose sockets would have too long a name.
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("x" * 120)))
    with pytest.raises(BadInput, match="--engine local"):
        connect(1)
    assert capsys.readouterr().out.count("trying once more") == 1
