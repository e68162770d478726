"""What a reused process does before each trial."""

import gc

from rank_core.machine import release_memory


def test_libraries_are_set_aside_once_and_what_trials_leave_is_collected():
    class Node:
        pass

    release_memory()
    frozen = gc.get_freeze_count()
    assert frozen > 10_000, "the libraries"
    node = Node()
    node.itself = node
    del node
    assert any(isinstance(thing, Node) for thing in gc.get_objects())
    release_memory()
    assert gc.get_freeze_count() == frozen
    assert not any(isinstance(thing, Node) for thing in gc.get_objects())
