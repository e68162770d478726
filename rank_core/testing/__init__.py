"""Contract tests: properties that every model must have, including models of users:
`ranksweep check my_pkg.my_module:MyRanker`. Needs pytest."""
