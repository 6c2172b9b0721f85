"""Every setting of every command, defined once: frozen dataclasses that give flags, TOML keys and the Python API.

Each training method is one class, which extends ``TrainConfig``; its defaults are the paper's. The docstring below a
field is the help of its flag, and the field's type defines which values are valid.
"""
