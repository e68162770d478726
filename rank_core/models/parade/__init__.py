"""Rankers that aggregate chunk vectors (PARADE and its relatives)."""
