"""``nearfar back-translate``: paraphrases by way of a second language."""
