"""`ranksweep board`: a page of tied ranks over a folder of verified bundles."""
