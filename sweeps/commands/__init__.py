"""The commands of `ranksweep`."""
