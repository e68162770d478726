"""Collections: loaded by name (`load`), stored on disk, generated, and transformed."""
