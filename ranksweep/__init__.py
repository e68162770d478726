"""ranksweep in other tools: `ranksweep.pt` is a transformer of PyTerrier."""
