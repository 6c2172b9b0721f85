"""``nearfar push``: uploads a model to the Hugging Face Hub, with its model card."""
