"""GOV2: 25 million pages of .gov sites, with the topics of the Terabyte and Million Query tracks.

Licensed by the University of Glasgow. Far too large for an index of ours: a run file is needed, and
only the documents that it ranks or that are relevant are kept.
"""

from rank_core.data.named.recipe import Recipe, pool

_TERABYTE = [f"gov2/trec-tb-{year}" for year in (2004, 2005, 2006)]

GOV2: dict[str, Recipe] = {
    "gov2-title": Recipe(pool(_TERABYTE, "title"), ranked_only=True),
    "gov2-desc": Recipe(pool(_TERABYTE, "description"), ranked_only=True),
    "gov2-mq2007": Recipe(pool(["gov2/trec-mq-2007"]), ranked_only=True),
    "gov2-mq2008": Recipe(pool(["gov2/trec-mq-2008"]), ranked_only=True),
}
