"""The arguments of every public name: a value of any kind is taken as the plain value that it
means, or refused in a sentence."""

import traceback
from collections.abc import Iterator

import pytest

from rank_core.errors import BadInput
from tests.ranksweep.doors import STRANGE, Door, called, doors


class Reached(Exception):
    """The arguments were taken; what would follow takes minutes."""


@pytest.fixture(scope="module")
def every_door(small_trial, backbone, tmp_path_factory) -> Iterator[dict[str, Door]]:
    def reached(*_: object) -> None:
        raise Reached

    with pytest.MonkeyPatch.context() as patch:
        found = doors(tmp_path_factory.mktemp("doors"), small_trial, backbone)
        patch.setattr("sweeps.driver.sweep.run_sweep", reached)
        patch.setattr("rank_core.trial.trial.load_inputs", reached)
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        yield found


def outcome(door: Door, argument: str, value: object) -> str:
    """Empty for a result or a refusal, else the error."""
    try:
        called(door, {argument: value})
    except (BadInput, Reached):
        return ""
    except BaseException as error:
        return " ".join(traceback.format_exception_only(error))[:150].strip()
    return ""


def test_no_value_of_any_kind_ends_in_a_bare_error(every_door) -> None:
    bare = [
        f"{name}({argument}={kind}): {found}"
        for name, door in every_door.items()
        for argument in door.plain
        for kind, make in STRANGE.items()
        if (found := outcome(door, argument, make()))
    ]
    assert not bare, "\n".join([f"{len(bare)} bare errors", *bare])
