"""What will run: options, grids, cells and trials, known before anything is launched."""
