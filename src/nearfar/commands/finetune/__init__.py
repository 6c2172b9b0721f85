"""``nearfar finetune``: fine-tunes a classifier, or runs a study of many runs."""
