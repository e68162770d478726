"""Collections: by name (`load`), on disk, made on the spot, and transformed into others."""
