#!/usr/bin/env python3
"""Every public call of the C++ API is one that lives make (tests/life).

Reads the public classes of include/tenuto and tests/life/calls.txt, where each call stands with the
verbs (verbs.inc) that make it, or with the reason why none does, after a '-'. Fails where a call is
missing there, is there and not in a header, names no verb, or is made nowhere in tests/life.
"""

import pathlib
import re
import sys

HEADERS = ["kv", "collection", "iterator", "snapshot", "transaction", "pool", "tx", "rescue"]
CLASSES = ["Store", "Collection", "Snapshot", "StoreTransaction", "WriteBatch", "Iterator", "View",
           "Pool", "Transaction"]


def calls_of(text):
    """Names of the public member functions of CLASSES, as Class::name."""
    text = re.sub(r"//.*", "", text)
    found = set()
    for match in re.finditer(r"^class (?:TENUTO_API )?(\w+)(?: : public \w+)? \{\n(.*?)^\};", text, re.M | re.S):
        name, body = match.groups()
        if name not in CLASSES:
            continue
        public = body.split("private:")[0]
        # What stands inside a function, and arguments, are no declarations.
        for _ in range(5):
            public = re.sub(r"\{[^{}]*\}", ";", public)
        for _ in range(5):
            public = re.sub(r"(\w)\([^()]*\)", r"\1@", public)
        for call in re.finditer(r"(~?\w+)@", public):
            word = call.group(1)
            if word not in (name, "~" + name, "operator", "requires", "decltype", "alignof"):
                found.add(name + "::" + word)
    return found


def main():
    root = pathlib.Path(sys.argv[1])
    calls = set()
    for header in HEADERS:
        calls |= calls_of((root / "include/tenuto" / (header + ".h")).read_text())
    calls.add("rescue")
    verbs = set(re.findall(r"^TENUTO_LIFE\((\w+),", (root / "tests/life/verbs.inc").read_text(), re.M))
    life = "".join(p.read_text() for p in sorted((root / "tests/life").glob("*.[ch]*")))
    wrong, listed = [], {}
    for line in (root / "tests/life/calls.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        name, _, rest = line.partition(" ")
        listed[name] = rest.strip()
    for name in sorted(calls - listed.keys()):
        wrong.append(f"{name}: no verb of tests/life makes it; name one in calls.txt, or say why not")
    for name in sorted(listed.keys() - calls):
        wrong.append(f"{name}: is in calls.txt and no public call")
    for name in sorted(listed.keys() & calls):
        rest = listed[name]
        if rest.startswith("- ") and len(rest) > 4:
            continue
        unknown = [v for v in rest.split() if v not in verbs]
        if unknown or not rest:
            wrong.append(f"{name}: no verb is called {' '.join(unknown) or 'nothing'}")
        call = name.split("::")[-1]
        if not re.search(r"(\.|->|::)" + call + r"\s*(<|\()", life):
            wrong.append(f"{name}: tests/life does not call it")
    for text in wrong:
        print(text)
    made = sum(1 for rest in listed.values() if not rest.startswith("-"))
    print(f"{made} of {len(calls)} public calls are made by lives")
    return 1 if wrong or len(calls) < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
