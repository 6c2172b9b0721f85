"""``nearfar get-data``: downloads the public data sets, and converts downloads into the layout of NEARFAR_DATA."""
