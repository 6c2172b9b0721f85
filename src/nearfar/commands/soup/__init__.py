"""``nearfar soup``: one model from the average of the weights of several."""
