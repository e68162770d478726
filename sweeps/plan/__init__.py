"""The plan: options, grids, cells and trials, known before anything is launched."""
