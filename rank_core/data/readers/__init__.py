"""Records of documents, queries and judgments, from files of any format."""
