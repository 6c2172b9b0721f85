"""Names and texts that try to run script, and readers that find what would run in HTML and in Markdown."""

from html.parser import HTMLParser

from markdown_it import MarkdownIt

RAN = "document.title='ran';alert(1)"
HOSTILE = (
    f"<script>{RAN}</script>",
    f"</script><script>{RAN}</script>",
    f'</title></style></textarea><img src=x onerror="{RAN}">',
    f'"><svg/onload={RAN}>',
    f"' onmouseover='{RAN}' x='",
    f"<!--><script>{RAN}</script>-->",
    f"]]><script>{RAN}</script>",
    f"&lt;script&gt;{RAN}&lt;/script&gt;",
    f"[click](javascript:{RAN})",
    f"[click](<javascript:{RAN}>)",
    f"[click](javascript&colon;{RAN})",
    f"![click](javascript:{RAN})",
    f"<javascript:{RAN}>",
    f"[click]: javascript:{RAN}",
    f"[click]\n\n[click]: javascript:{RAN}\n",
    f"\r\r<script>{RAN}</script>\r\r",
    f"```\n<script>{RAN}</script>\n```",
    f"`<script>{RAN}</script>",
    f"\\`<img src=x onerror={RAN}>\\`",
    f"~~~\n<script>{RAN}</script>",
    f"| a |\n| --- |\n| <b onclick={RAN}> |",
    f"\u2028<script>{RAN}</script>\u2029",
    f"\x0b\x0c\x85<script>{RAN}</script>",
    "{{constructor.constructor('alert(1)')()}}",
    "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16") + "\x00\x1b[31m\x07",
)
_SAFE_TAGS = frozenset(
    "p h1 h2 h3 h4 h5 h6 em strong code pre ul ol li table thead tbody tr th td a img br hr blockquote s sup".split()
)
_SAFE_ATTRIBUTES = frozenset({"href", "src", "alt", "title", "style", "start", "class"})


class _Finder(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _SAFE_TAGS:
            self.found.append(f"<{tag}>")
        for name, value in attrs:
            target = "".join(str(value).split()).lower()
            unsafe = name in ("href", "src") and not target.startswith(("http://", "https://", "mailto:", "#"))
            if name not in _SAFE_ATTRIBUTES or (unsafe and ":" in target):
                self.found.append(f"<{tag} {name}={value}>")

    def handle_decl(self, decl: str) -> None:
        self.found.append(decl)

    def handle_comment(self, data: str) -> None:
        self.found.append(f"<!--{data}-->")


def rendered(markdown: str) -> str:
    """HTML of a Markdown text by a renderer that lets through raw HTML and links of every scheme."""
    renderer = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    renderer.validateLink = lambda _: True  # type: ignore[method-assign]
    return str(renderer.render(markdown))


def active_parts(markdown: str) -> list[str]:
    """Tags, attributes and links of the rendered Markdown that could run script."""
    finder = _Finder()
    finder.feed(rendered(markdown))
    return finder.found
