"""``nearfar finetune``: a classifier, or a study of many."""
