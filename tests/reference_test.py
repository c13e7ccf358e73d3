#!/usr/bin/env python3
"""The reference is made without a warning, has every comment of the public headers at the
declaration that it is about, every document, and no link that leads nowhere.

  reference_test.py SOURCE WORK          ends with 77 if there is no doxygen
"""
import html.parser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree

sys.dont_write_bytecode = True
SOURCE, WORK = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
sys.path[:0] = [str(SOURCE / "tools/reference"), str(SOURCE / "tools")]
import headers  # noqa: E402

# Declarations of all kinds, with words that a reader must find there.
CHOSEN = {
    "Store::write": "Applies all entries of the batch or none",
    "Collection::get": "Reads the value of a key.",
    "Collection": "Every call may return closed",
    "Collection::put": "Inserts or replaces. ok | full | too_large",
    "Pool::open": "Opens a pool, and recovers it after a crash. not_found | busy",
    "Pool": "See pool.h.",
    "PoolOptions::size": "bytes of a new pool, at least kPoolBytesMin",
    "PoolOptions::catch_bus_errors": "This needs a handler for SIGBUS",
    "Status::busy": "or a transaction is open at close. Nothing was done",
    "Status::forked": "this process is a child of the process that opened the pool",
    "Medium": "a power cut, on persistent memory mapped with MAP_SYNC",
    "HeapOptions::book_heap_ppm": "millionths of the pool, two for each are enough",
    "Transaction::add": "Saves the old bytes of [p, p + bytes).",
    "Transaction::ready": "then one ready() before the first store",
    "tenuto_get": "Release it by tenuto_free. NULL and 0 if the status is not TENUTO_OK.",
    "tenuto_collections": "for every named collection, in order of their names",
    "tenuto_put": "C++: tenuto::Collection::put",
    "TENUTO_FORKED": "A close releases the handle all the same.",
    "TENUTO_TRY": "Returns a failed Status to the caller.",
    "tx.h": "An undo log makes a group of in-place stores, allocations and frees atomic.",
}

failures = []


def fail(text):
    failures.append(text)
    print("reference:", text, file=sys.stderr)


def letters(text):
    return re.sub(r"[^a-z0-9]", "", text.lower())


def make():
    doxygen = shutil.which("doxygen")
    if doxygen is None:
        print("skipped: there is no doxygen")
        sys.exit(77)
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    done = subprocess.run([doxygen, "tools/reference/Doxyfile"], cwd=SOURCE, text=True,
                          capture_output=True,
                          env=dict(os.environ, TENUTO_REFERENCE=str(WORK), TENUTO_VERSION="test"))
    if done.returncode != 0 or done.stderr:
        fail(f"doxygen ends with {done.returncode}:\n{done.stderr}")


def texts_of_declarations():
    """Name, with its class, -> the text of each description that the reference has of it."""
    texts = {}

    def add(name, element):
        parts = (element.find(k) for k in ("briefdescription", "detaileddescription"))
        text = " ".join(t for part in parts if part is not None for t in part.itertext())
        texts.setdefault(name, []).append(text)

    for file in (WORK / "xml").glob("*.xml"):
        for compound in ElementTree.parse(file).getroot().iter("compounddef"):
            kind, name = compound.get("kind"), compound.findtext("compoundname")
            if kind in ("page", "dir"):
                continue
            name = name.removeprefix("tenuto::")
            add(name, compound)
            scope = name + "::" if kind in ("class", "struct", "union") else ""
            for member in compound.iter("memberdef"):
                called = member.findtext("name") or ""
                unnamed = called.startswith("@") or not called
                add(scope + ("@enum" if unnamed else called), member)
                for value in member.iter("enumvalue"):
                    add(scope + value.findtext("name"), value)
                    add(scope + called + "::" + value.findtext("name"), value)
    return texts


def check_comments(texts):
    count = 0
    for path in sorted((SOURCE / "include/tenuto").glob("*.h")):
        header = headers.Header(path.read_text())
        wanted = [("::".join([*d.scope, name]), d.comments())
                  for d in header.documented() for name in d.names]
        if header.file_comment:
            wanted.append((path.name, [header.file_comment.text]))
        for name, comments in wanted:
            there = [letters(t) for t in texts.get(name, [])]
            for comment in comments:
                count += 1
                if not any(letters(" ".join(comment)) in t for t in there):
                    fail(f"{path.name}: {name} lacks its comment: {' '.join(comment)[:90]}")
        for c in header.unattached():
            fail(f"{path.name}:{c.first + 1}: a comment about no declaration; is a blank line "
                 f"below it? {c.text[0]}")
    if count < 500:
        fail(f"only {count} comments were looked for")
    for name, words in CHOSEN.items():
        if not any(letters(words) in letters(t) for t in texts.get(name, [])):
            fail(f"{name} lacks: {words}")


def check_documents():
    shown = (SOURCE / "tools/reference/Doxyfile").read_text()
    names = [str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.md")]
    for name in names:
        if name.startswith(("build", ".")):
            continue
        if not re.search(rf"\s{re.escape(name)}\b", shown):
            fail(f"tools/reference/Doxyfile does not name {name}")


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.anchors, self.links = set(), set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        for key, value in attributes:
            if key in ("id", "name"):
                self.anchors.add(value)
            elif key == "href" and tag == "a" and value:
                self.links.add(value)


def check_links():
    pages = {path.name: Page(path) for path in (WORK / "html").glob("*.html")}
    for name, page in pages.items():
        for link in page.links:
            url = urllib.parse.urlsplit(link)
            if url.scheme:
                continue
            target = pages.get(url.path or name)
            if target is None or (url.fragment and url.fragment not in target.anchors):
                fail(f"html/{name}: {link} leads nowhere")
    if len(pages) < 80:
        fail(f"only {len(pages)} pages")


make()
check_comments(texts_of_declarations())
check_documents()
check_links()
print(f"reference: {len(failures)} failures")
sys.exit(1 if failures else 0)
