"""Text -> vectors without our training: averaged word vectors, whitening, SBERT-WK, BERT-flow, USE."""
