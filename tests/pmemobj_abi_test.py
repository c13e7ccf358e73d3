"""libtenuto_pmemobj.so exports what libpmemobj's headers declare, with its version, and no more.

usage: pmemobj_abi_test.py LIBRARY FOLDER_OF_THE_HEADERS [LIBPMEMOBJ]
"""
import pathlib
import re
import subprocess
import sys

VERSION = "LIBPMEMOBJ_1.0"


def exported(library):
    """Names with their versions."""
    out = subprocess.run(["objdump", "-T", library], check=True, capture_output=True, text=True)
    symbols = {}
    for line in out.stdout.splitlines():
        words = line.split()
        if len(words) < 6 or "*UND*" in words or words[-1] == VERSION and "*ABS*" in words:
            continue
        if re.fullmatch("[0-9a-f]{16}", words[0]):
            symbols[words[-1]] = words[-2]
    return symbols


def declared(folder):
    """Functions that the headers declare and do not define."""
    names = set()
    for header in pathlib.Path(folder).glob("*.h"):
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
        text = re.sub(r"^#.*?(?<!\\)$", "", text, flags=re.S | re.M)
        names |= set(re.findall(r"\b(_?pm?e?m?obj_\w+)\s*\([^;{]*\)\s*;", text))
    return {n for n in names if not n.endswith(("U", "W", "_inline"))}


def main():
    library, headers, *peer = sys.argv[1:]
    ours = exported(library)
    wrong = [f"{name} has the version {v}" for name, v in ours.items() if v != VERSION]
    wanted = declared(headers) | {"_pobj_cache_invalidate", "_pobj_cached_pool"}
    if len(wanted) < 100:
        wrong.append(f"only {len(wanted)} names were found in {headers}")
    wrong += [f"{name} is not exported" for name in sorted(wanted - ours.keys())]
    if peer:
        theirs = exported(peer[0])
        wrong += [f"{n} is not exported, libpmemobj has it" for n in theirs if n not in ours]
        wrong += [f"{n} is exported, libpmemobj has it not" for n in ours if n not in theirs]
    print("\n".join(wrong) or f"{len(ours)} symbols")
    return 1 if wrong else 0


sys.exit(main())
