"""A disk that applies a log of shim.c, and forgets at a power loss what was not flushed.

    disk = Disk(start_state, ordered=False)
    for call in calls[:moment]:
        disk.apply(call, bytes_folder)
    disk.after_power_loss(random.Random(1)).write_to(folder)

What is durable: the content of a file at its last fsync, and the entries of a folder at its last fsync. What is not,
is drawn:

- *unordered* (what POSIX promises): each folder keeps the first of its entry changes since its last fsync, a random
  number of them; a name may be durable before the content of its file. A rename between two folders that only the
  target kept leaves both names; one that only the source kept is lost in both.
- *ordered* (ext4 with data=ordered): all entry changes are one sequence, of which the first ones are kept; each fsync
  makes all earlier ones durable. Content is drawn as above: blocks are allocated late.
- the content of a file that was written since its last fsync is as of that fsync, or as if it was written up to some
  byte, or has zeros in place of what made it longer (and its old bytes elsewhere), or is complete.
"""

import os
import random
from dataclasses import dataclass, field
from pathlib import Path

from tests.campaign.trace import Call


@dataclass(eq=False)
class File:
    """Content of a file: what is durable, and the changes since. A change is (offset, bytes) or (new length, None)."""

    durable: bytes = b""
    changes: list[tuple[int, bytes | None]] = field(default_factory=list)

    def content(self, changes: list[tuple[int, bytes | None]] | None = None) -> bytes:
        """The durable content with changes applied, by default all."""
        content = bytearray(self.durable)
        for offset, written in self.changes if changes is None else changes:
            if written is None:
                del content[offset:]
                content.extend(b"\0" * (offset - len(content)))
            else:
                content.extend(b"\0" * (offset - len(content)))
                content[offset : offset + len(written)] = written
        return bytes(content)

    def flush(self) -> None:
        """Make all changes durable."""
        self.durable, self.changes = self.content(), []

    def after_power_loss(self, draw: random.Random) -> bytes:
        """Draw what is left of the file."""
        outcome = draw.choice(("durable", "part", "zeros", "complete"))
        if not self.changes or outcome == "complete":
            return self.content()
        if outcome == "durable":
            return self.durable
        if outcome == "zeros":
            whole, kept = self.content(), self.content([change for change in self.changes if change[1] is None])
            return kept[: len(whole)].ljust(len(whole), b"\0")
        kept = draw.choice([index for index, (_, written) in enumerate(self.changes) if written] or [0])
        offset, written = self.changes[kept]
        length = draw.randint(0, len(written or b""))
        return self.content([*self.changes[:kept], *([(offset, written[:length])] if written and length else [])])


@dataclass(eq=False)
class Link:
    """A symbolic link."""

    target: str


@dataclass(eq=False)
class Folder:
    """Entries of a folder now, and those that are durable."""

    entries: dict[str, "Node"] = field(default_factory=dict)
    durable: dict[str, "Node"] = field(default_factory=dict)


Node = File | Link | Folder


@dataclass(eq=False)
class Change:
    """A change of entries: (folder, name, node or None for a removal). A rename has two."""

    entries: list[tuple[Folder, str, Node | None]]
    durable: set[int] = field(default_factory=set)
    """ids of the folders in which it is durable."""


class Disk:
    """Files and folders, what of them is durable, and the changes of entries since the start."""

    def __init__(self, start: Path | None = None, *, ordered: bool) -> None:
        self.root, self._ordered = Folder(), ordered
        self._changes: list[Change] = []
        self._inodes: dict[int, Node] = {}
        if start is not None:
            _load(start, self.root)

    def apply(self, call: Call, content: Path) -> None:
        """Apply a call that succeeded; ``content`` is the folder with the bytes of the writes."""
        if call.result < 0 or call.kind in ("close", "read", "map"):
            if call.call == "mmap-shared":
                raise ValueError(f"{call.path} is written through a map, which the log does not show")
            if call.result >= 0 and call.inode in self._inodes:
                self._infer_rename(call)
            return
        if call.kind in ("open", "create"):
            self._open(call)
        elif call.kind == "write":
            written = (content / str(call.number)).read_bytes() if call.result else b""
            self._file(call).changes.append((call.offset, written))
        elif call.kind == "truncate":
            self._file(call).changes.append((call.offset, None))
        elif call.kind == "sync":
            self._flush(call)
        elif call.kind == "mkdir":
            self._change((call.path, Folder()))
        elif call.kind == "unlink":
            self._change((call.path, None))
        elif call.kind == "link":
            is_symbolic = call.call.startswith("symlink")
            self._change((call.path, Link(call.path2)) if is_symbolic else (call.path2, self._find(call.path)))
        elif call.kind == "rename":
            self._change((call.path2, self._find(call.path)), (call.path, None))
        else:
            raise ValueError(f"unknown call {call}")

    def after_power_loss(self, draw: random.Random) -> "Disk":
        """Draw what a power loss now leaves: a disk on which everything is durable."""
        kept: dict[int, dict[str, Node]] = {}

        def keep(change: Change, folders: set[int]) -> None:
            for folder, name, node in change.entries:
                if id(folder) in folders:
                    entries = kept.setdefault(id(folder), dict(folder.durable))
                    entries.pop(name, None) if node is None else entries.update({name: node})

        pending = self._changes
        if self._ordered:
            for change in pending[: draw.randint(0, len(pending))]:
                keep(change, {id(folder) for folder, _, _ in change.entries} - change.durable)
        else:
            waiting: dict[int, int] = {}
            for change in pending:
                for one in {id(folder) for folder, _, _ in change.entries} - change.durable:
                    waiting[one] = waiting.get(one, 0) + 1
            left = {one: draw.randint(0, count) for one, count in waiting.items()}
            for change in pending:
                target, *others = dict.fromkeys(id(folder) for folder, _, _ in change.entries)
                has_target = target in change.durable
                for one in (target, *others):
                    if one in change.durable:
                        continue
                    left[one] -= 1
                    if left[one] >= 0 and (one == target or has_target):
                        keep(change, {one})
                        has_target = True
                    else:
                        left[one] = 0  # a folder that lost a change loses all later ones
        new, contents = Disk(ordered=self._ordered), dict[int, Node]()

        def copy(node: Node) -> Node:
            if id(node) not in contents:
                if isinstance(node, Folder):
                    contents[id(node)] = made = Folder()
                    made.entries = {name: copy(one) for name, one in kept.get(id(node), node.durable).items()}
                    made.durable = dict(made.entries)
                elif isinstance(node, File):
                    contents[id(node)] = File(node.after_power_loss(draw))
                else:
                    contents[id(node)] = Link(node.target)
            return contents[id(node)]

        root = copy(self.root)
        assert isinstance(root, Folder)
        new.root = root
        return new

    def not_flushed(self) -> list[str]:
        """Paths of the files whose content, and of the entries, new (+) or removed (-), that are not durable yet."""
        names = {id(self.root): ""}
        names |= {id(node): f"{path}/" for path, node in self._walk(self.root, "") if isinstance(node, Folder)}
        entries = [
            f"{'-' if node is None else '+'}{names[id(folder)]}{name}"
            for change in self._changes
            for folder, name, node in change.entries
            if id(folder) in names and id(folder) not in change.durable
        ]
        files = [path for path, node in self._walk(self.root, "") if isinstance(node, File) and node.changes]
        return [*files, *entries]

    def file_at(self, path: str) -> File | None:
        """The file of this path now, or None if there is none."""
        node: Node | None = self.root
        for part in path.split("/"):
            node = node.entries.get(part) if isinstance(node, Folder) else None
        return node if isinstance(node, File) else None

    def write_to(self, folder: Path) -> None:
        """Write files, links and folders, as they are without a power loss."""
        written: dict[int, Path] = {}

        def write(node: Node, path: Path) -> None:
            if isinstance(node, Folder):
                path.mkdir(exist_ok=True)
                for name, one in node.entries.items():
                    write(one, path / name)
            elif isinstance(node, Link):
                path.symlink_to(node.target)
            elif id(node) in written:
                os.link(written[id(node)], path)
            else:
                path.write_bytes(node.content())
                os.utime(path, (1e9, 1e9))  # an input that is older than the run, as it was
                written[id(node)] = path

        write(self.root, folder)

    def _locate(self, path: str) -> tuple[Folder, str]:
        folder: Node = self.root
        *parents, name = path.split("/")
        for part in parents:
            assert isinstance(folder, Folder), path
            folder = folder.entries[part]
        assert isinstance(folder, Folder), path
        return folder, name

    def _find(self, path: str) -> Node:
        if path == ".":
            return self.root
        folder, name = self._locate(path)
        return folder.entries[name]

    def _open(self, call: Call) -> None:
        folder, name = self._locate(call.path)
        if call.path == ".":
            node: Node = self.root
        elif name not in folder.entries:
            node = File()
            self._change((call.path, node))
        else:
            node = folder.entries[name]
        if isinstance(node, Link):
            raise ValueError(f"{call.path} is opened through a symbolic link")
        if isinstance(node, File) and call.size & os.O_TRUNC:
            node.changes.append((0, None))
        self._inodes[call.inode] = node

    def _file(self, call: Call) -> File:
        if call.inode:
            self._infer_rename(call)
        node = self._inodes[call.inode] if call.inode else self._find(call.path)
        assert isinstance(node, File), call
        return node

    def _flush(self, call: Call) -> None:
        self._infer_rename(call)
        node = self._inodes[call.inode]
        if isinstance(node, File):
            node.flush()
        if call.call == "fdatasync":
            return
        for change in self._changes:
            for folder, name, other in change.entries:
                if id(folder) not in change.durable and (folder is node or self._ordered):
                    folder.durable.pop(name, None) if other is None else folder.durable.update({name: other})
            change.durable |= {id(folder) for folder, _, _ in change.entries if folder is node or self._ordered}
        self._changes = [
            change
            for change in self._changes
            if any(id(folder) not in change.durable for folder, _, _ in change.entries)
        ]

    def _change(self, *entries: tuple[str, Node | None]) -> None:
        change = Change([(*self._locate(path), node) for path, node in entries])
        for folder, name, node in change.entries:
            folder.entries.pop(name, None) if node is None else folder.entries.update({name: node})
        self._changes.append(change)

    def _infer_rename(self, call: Call) -> None:
        """Apply a rename that the log does not show: the file that a descriptor belongs to has another name now."""
        node = self._inodes.get(call.inode)
        places = [path for path, one in self._walk(self.root, "") if one is node]
        if isinstance(node, File) and places and call.path not in places:
            self._change((call.path, node), (places[0], None))

    def _walk(self, folder: Folder, prefix: str) -> list[tuple[str, Node]]:
        found: list[tuple[str, Node]] = []
        for name, node in folder.entries.items():
            found.append((prefix + name, node))
            if isinstance(node, Folder):
                found += self._walk(node, f"{prefix}{name}/")
        return found


def _load(source: Path, folder: Folder) -> None:
    for path in source.iterdir():
        node: Node
        if path.is_symlink():
            node = Link(os.readlink(path))
        elif path.is_dir():
            node = Folder()
            _load(path, node)
        else:
            node = File(path.read_bytes())
        folder.entries[path.name] = folder.durable[path.name] = node
