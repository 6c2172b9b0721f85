"""``nearfar mine``: pairs -> triplets with hard negatives."""
