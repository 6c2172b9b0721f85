"""Files and folders: atomic writes, reads with clear errors, locks, and checks of output paths."""

from nearfar.disk.checks import (
    check_output_path,
    check_writable_folder,
    path_errors,
    refuse_existing,
    refuse_overwriting_inputs,
)
from nearfar.disk.folders import check_new_folder, forget_folder, new_folder, restore_folder
from nearfar.disk.locking import LOCK, FolderBusyError, folder_lock
from nearfar.disk.model_folder import CARD_MARK, model_of_run
from nearfar.disk.private import exclusive_file, fresh_file, is_private, private_temporary_folder, refuse_planted
from nearfar.disk.reading import check_regular, read_bytes, read_errors, read_json, read_text
from nearfar.disk.seen_file import SEEN_FILE, SeenHashes, read_seen, write_seen
from nearfar.disk.writing import (
    apply_umask,
    create_folder,
    disk_errors,
    flush,
    flush_entries,
    flush_tree,
    new_file,
    publish,
    remove,
    write_bytes,
    write_npy,
    write_text,
)

__all__ = [
    "CARD_MARK",
    "LOCK",
    "SEEN_FILE",
    "FolderBusyError",
    "SeenHashes",
    "apply_umask",
    "check_new_folder",
    "check_output_path",
    "check_regular",
    "check_writable_folder",
    "create_folder",
    "disk_errors",
    "exclusive_file",
    "flush",
    "flush_entries",
    "flush_tree",
    "folder_lock",
    "forget_folder",
    "fresh_file",
    "is_private",
    "model_of_run",
    "new_file",
    "new_folder",
    "path_errors",
    "private_temporary_folder",
    "publish",
    "read_bytes",
    "read_errors",
    "read_json",
    "read_seen",
    "read_text",
    "refuse_existing",
    "refuse_overwriting_inputs",
    "refuse_planted",
    "remove",
    "restore_folder",
    "write_bytes",
    "write_npy",
    "write_seen",
    "write_text",
]
