"""The disk store of compiled programs: ``python -m torch_tpu.cache list | size | clear | directory``."""

import argparse
import time

from torch_tpu import _C


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m torch_tpu.cache", description="Compiled programs kept on disk.")
    parser.add_argument("command", choices=["list", "size", "clear", "directory"], help="what to do")
    command = parser.parse_args(arguments).command
    folder = _C.cache_directory()
    if not folder:
        print("the disk store is off")
        return 0
    if command == "directory":
        print(folder)
    elif command == "clear":
        print(f"removed {_C.clear_cache()} files from {folder}")
    else:
        entries = sorted(_C.cache_entries(), key=lambda entry: entry["modified"])
        if command == "list":
            for entry in entries:
                when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry["modified"]))
                print(f"{entry['key'][:16]}  {entry['bytes']:>10}  {when}  {entry['op']}")
        total = sum(entry["bytes"] for entry in entries)
        print(f"{len(entries)} programs, {total / 2**20:.1f} MiB in {folder}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
