"""Collections made here: the embedded one, and long documents around short passages."""
