"""ClueWeb12: 733 million web pages, with the topics of the Web tracks of 2013 and 2014.

Licensed by Carnegie Mellon University. A run file is needed, and only the documents that it ranks
or that are relevant are kept.
"""

from rank_core.data.named.recipe import Recipe, pool

_WEB_TRACK = ["clueweb12/trec-web-2013", "clueweb12/trec-web-2014"]

CLUEWEB12: dict[str, Recipe] = {
    "clueweb12-title": Recipe(pool(_WEB_TRACK, "query"), ranked_only=True),
    "clueweb12-desc": Recipe(pool(_WEB_TRACK, "description"), ranked_only=True),
}
