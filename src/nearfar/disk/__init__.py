"""Files and folders: atomic writes, reads with clear errors, locks, and checks of output paths."""

from nearfar.disk.checks import (
    check_output_path,
    check_writable_folder,
    path_errors,
    refuse_existing,
    refuse_overwriting_inputs,
)
from nearfar.disk.folders import (
    LOCK,
    FolderBusyError,
    check_new_folder,
    folder_lock,
    forget_folder,
    new_folder,
    restore_folder,
)
from nearfar.disk.model_folder import CARD_MARK, SEEN_FILE, SeenHashes, model_of_run, read_seen, write_seen
from nearfar.disk.private import exclusive_file, is_private, private_temporary_folder
from nearfar.disk.reading import check_regular, read_errors, read_json, read_text
from nearfar.disk.writing import (
    apply_umask,
    create_folder,
    disk_errors,
    flush,
    flush_entries,
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
    "folder_lock",
    "forget_folder",
    "is_private",
    "model_of_run",
    "new_file",
    "new_folder",
    "path_errors",
    "private_temporary_folder",
    "publish",
    "read_errors",
    "read_json",
    "read_seen",
    "read_text",
    "refuse_existing",
    "refuse_overwriting_inputs",
    "remove",
    "restore_folder",
    "write_bytes",
    "write_npy",
    "write_seen",
    "write_text",
]
