"""A public header as Doxygen has to read it: each comment is marked, above its declaration.

What has no comment of its own leads to the comment that speaks of it: a class to its header, a call
of SAME_CALLS to the class named there, a call in C to the C++ call of its name.
"""
import re

import headers

SAME_CALLS = {"Snapshot": "Collection"}
# The classes of C++ whose calls a prefix of C has; without a prefix: DEFAULT_CLASSES.
CLASSES = {"store": ["Store"], "collection": ["Collection", "Store"], "batch": ["WriteBatch"],
           "iterator": ["Iterator"], "snapshot": ["Snapshot"], "transaction": ["StoreTransaction"],
           "pool": ["Pool"], "tx": ["Transaction"],
           "string": ["String"], "vector": ["Vector"], "queue": ["Queue"],
           "map": ["OrderedMap"], "hash": ["HashMap"]}
DEFAULT_CLASSES = {"tenuto.h": ["Collection", "Store"], "tenuto_pool.h": ["Pool"]}
OTHER_NAMES = {"tenuto_collection_open": "Store::collection",
               "tenuto_view_open": "Collection::view",
               "tenuto_iterator_open": "Collection::iterator",
               "tenuto_put_for": "Collection::put",
               "tenuto_snapshot_take": "Store::snapshot",
               "tenuto_batch_put_for": "WriteBatch::put"}


def escaped(line):
    """Plain text for Doxygen's Markdown; `code` stays."""
    parts = re.split(r"(`[^`]*`)", line)
    for n in range(0, len(parts), 2):
        text = re.sub(r"[\\@<>#%&]", lambda m: "\\" + m[0], parts[n])
        parts[n] = re.sub(r"(?<!\w)\*(?!\w+\*)|(?<!\*\w)\*(?=\w+\b(?!\*))", r"\\*", text)
    return "".join(parts)


def marked(text):
    """The lines of a comment in Doxygen's language. What is indented is a list, or verbatim."""
    width = min((len(l) - len(l.lstrip()) for l in text if l), default=0)
    out, verbatim, item = [], False, False
    for line in (l[width:] for l in text):
        if line.strip():
            if not line.startswith(" "):
                item = bool(re.match("[-*] ", line))
            elif re.match(" *- ", line):
                item = True
        wants = line.startswith("  ") and not item
        if wants and not verbatim:
            out.append("@verbatim")
        elif verbatim and not wants:
            out.append("@endverbatim")
        verbatim = wants
        out.append(line if verbatim else escaped(line))
    return out + ["@endverbatim"] * verbatim


def calls_of(header):
    """Class -> names, of what a header declares."""
    calls = {}
    for d in header.declarations:
        if not d.hidden and len(d.scope) == 1:
            calls.setdefault(d.scope[0], set()).update(d.names)
    return calls


def elsewhere(declaration, name, calls):
    """One line that leads to the comment that speaks of a declaration, or None."""
    called = declaration.names[0] if declaration.names else ""
    if declaration.hidden or not called or "@" in called:
        return None
    if (found := re.match(r"tenuto_(\w+)$", called)) is not None:
        prefix, _, rest = found[1].partition("_")
        if declaration.kind != "other":
            return None
        places = [(c, rest) for c in CLASSES.get(prefix, [])]
        places += [(c, found[1]) for c in DEFAULT_CLASSES.get(name, [])]
        names = [f"{c}::{call}" for c, call in places if call in calls.get(c, ())]
        names = [OTHER_NAMES[called]] if called in OTHER_NAMES else names
        return f"C++: tenuto::{names[0]}" if names else None
    if declaration.comments():
        return None
    if declaration.kind == "scope" and not declaration.scope:
        return f"See @ref {name}."
    same = SAME_CALLS.get(declaration.scope[0]) if len(declaration.scope) == 1 else None
    return f"As {same}::{called}." if called in calls.get(same, ()) else None


def one_by_one(declaration):
    """`int a = 0, b = 0` as a declaration of each."""
    of_all = declaration.code.split(declaration.names[0])[0]
    rest = declaration.code[len(of_all):]
    return [f"{of_all}{part.strip()};" for part in rest.split(",")]


def for_doxygen(text, name, calls):
    """The header with comments that Doxygen reads as a person does. calls: of all headers."""
    header = headers.Header(text)
    gone, cut, above, below = set(), {}, {}, {}
    for c in {id(c): c for d in header.declarations for c in d.above + d.behind}.values():
        if c.own:
            gone.update(range(c.first, c.last + 1))
        else:
            cut[c.first] = c.column
            gone.update(range(c.first + 1, c.last + 1))
    if header.file_comment:
        gone.update(range(header.file_comment.first, header.file_comment.last + 1))
        above[header.file_comment.first] = ["@file " + name] + marked(header.file_comment.text)
    for first, last, title in header.groups():
        gone.add(first)
        above[first] = ["@name " + title, "@{"]
        below[last] = ["@}"]
    for first, last in header.private_parts():
        above[first], below[last] = ["@cond"], ["@endcond"]
    for d in header.declarations:
        if d.hidden:
            continue
        other = elsewhere(d, name, calls)
        for comment in [marked(c) for c in d.comments()] + [[other]] * bool(other):
            lines = above.setdefault(d.first, [])
            lines += [""] * bool(lines) + comment
    several = {d.first: d for d in header.declarations if len(d.names) > 1 and d.first == d.last}
    out = []
    for n, line in enumerate(header.lines):
        comment = ["/** " + "\n".join(above[n]) + " */"] if n in above else []
        code = [line[:cut[n]].rstrip() if n in cut else line] if n not in gone else []
        if n in several and comment:  # `int a, b;`: Doxygen takes a comment for the first one's
            for one in one_by_one(several[n]):
                out += comment + [one]
        else:
            out += comment + code
        out += ["/** " + "\n".join(below[n]) + " */"] if n in below else []
    return "\n".join(out)
