"""Contract tests: the laws that every model keeps, to be run on a model from outside as well:
`pytest --pyargs rank_core.testing --model my_pkg.my_module:MyRanker`. Needs pytest."""
