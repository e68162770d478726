"""Records of documents, queries and judgments, whatever kind of file they are in."""
