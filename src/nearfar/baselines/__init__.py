"""Baseline encoders, which nearfar does not train: averaged word vectors, whitening, SBERT-WK, BERT-flow, USE."""
