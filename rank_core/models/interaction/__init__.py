"""Rankers over similarities of query and document tokens (CEDR, TK, PACRR, DRMM)."""
