"""Small programs that write a file rightly and wrongly; a module of its own, which a fork imports at once."""

HEAD = """if True:
    import json, os, sys
    def flush(name):
        file = os.open(name, os.O_RDONLY)
        os.fsync(file)
        os.close(file)
    if os.path.exists('out'):
        sys.exit(2)
"""
WHOLE = "    open('out.new', 'w').write('[1]'); {}os.rename('out.new', 'out'); flush('.')"
WRITERS = {
    "right": WHOLE.format("flush('out.new'); "),
    "without rename": "    open('out', 'w').write('[1]'); flush('out'); flush('.')",
    "without flush": WHOLE.format(""),
    "random name": "    import tempfile; name = tempfile.mkstemp(dir='.')[1]; open(name, 'w').write('[1]')\n"
    "    flush(name); os.rename(name, 'out'); flush('.')",
    "other content": "    text = '[2]' if os.path.exists('out.new') else '[1]'\n"
    + WHOLE.format("flush('out.new'); ").replace("'[1]'", "text"),
    "name not flushed": WHOLE.format("flush('out.new'); ").replace("; flush('.')", ""),
}


def execute(program: str) -> None:
    """Run a program; called in a fork of the server."""
    exec(program, {})
