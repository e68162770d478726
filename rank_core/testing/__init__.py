"""Contract tests: properties that every model must have, including models of users:
`pytest --pyargs rank_core.testing --model my_pkg.my_module:MyRanker`. Needs pytest."""
