"""Robust04: 528,155 news articles of TREC disks 4 and 5, 249 topics, the folds of Huston and Croft.

Licensed by NIST: https://trec.nist.gov/data/cd45/index.html.
"""

from rank_core.data.named.recipe import Recipe, pool

_ID = "disks45/nocr/trec-robust-2004"

ROBUST04: dict[str, Recipe] = {
    "robust04-title": Recipe(pool([_ID], "title"), folds="huston-croft"),
    "robust04-desc": Recipe(pool([_ID], "description"), folds="huston-croft"),
}
