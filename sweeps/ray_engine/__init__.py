"""The only room that knows Ray: Tune runs trials, Train runs their workers."""
