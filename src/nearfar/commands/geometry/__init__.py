"""``nearfar geometry``: measures and plots of embedding spaces."""
