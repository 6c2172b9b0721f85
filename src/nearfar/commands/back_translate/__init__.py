"""``nearfar back-translate``: paraphrases by way of another language."""
