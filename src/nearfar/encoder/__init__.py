"""Text -> vectors: backbones, ragged batches, pooling, and the sentence-transformers folder."""
