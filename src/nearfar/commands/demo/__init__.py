"""``nearfar demo``: train an encoder on generated pairs, test it on held-out ones, and put it to use, offline."""
