"""Rankers over similarities of query and document terms (CEDR, TK, PACRR, DRMM)."""
