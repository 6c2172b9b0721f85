"""``nearfar finetune``: fine-tunes a classifier."""
