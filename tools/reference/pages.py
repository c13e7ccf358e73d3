"""Documents as pages of the reference: each heading gets a name, and links lead to these names.

A link to a public header leads to its page. A link to any other file of the tree is only text: the
reference is read without the tree.
"""
import os
import re

import documents

LANGUAGES = {"c++": "cpp", "c": "c", "sh": "sh", "cmake": "cmake"}


def name_of(path, anchor=""):
    """The name of a page, or of a part of it."""
    if path == "README.md" and not anchor:
        return "mainpage"
    return re.sub(r"\W", "_", path.removesuffix(".md") + ("_" + anchor if anchor else "")).lower()


def target_of(link, page, pages):
    """Where a link of a page leads to in the reference; None: to nothing in it."""
    if re.match(r"[a-z]+:", link):
        return link
    path, _, anchor = link.partition("#")
    path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
    if path in pages:
        name = name_of(path, anchor)
        return "@ref " + ("index" if name == "mainpage" else name)
    if path.startswith("include/tenuto/"):
        return "@ref " + os.path.basename(path)
    return None


def code_for_doxygen(found):
    """A span of code. What has backslashes, Doxygen would take for commands."""
    if "\\" not in found[1]:
        return found[0]
    code = found[1].replace("\\|", "|")
    return "<code>" + re.sub(r"[\\@<>#%&|\"*_]", lambda m: "\\" + m[0], code) + "</code>"


def for_doxygen(text, page, pages):
    names = {number: name_of(page, anchor) for number, anchor in documents.anchors(text)}
    prose = {number for number, _ in documents.outside_code(text)}
    names[min(names)] = name_of(page)

    def replaced(found):
        target = target_of(found[2], page, pages)
        if target is None:
            return found[1]
        words = found[1].replace("`", "") if target.startswith("@ref") else found[1]
        return f"[{words}]({target})"

    out, block = [], []
    for number, line in enumerate(text.split("\n"), 1):
        if number not in prose:
            out.append(documents.LINK.sub(replaced, "\n".join(block)))
            block = []
            words = line.strip()[3:].split() if line.lstrip().startswith("```") else []
            language = LANGUAGES.get(words[0]) if words else None
            out.append(line if not words else "```" + (f"{{.{language}}}" if language else ""))
        elif number in names:
            block.append(f"{line} {{#{names[number]}}}")
        else:
            # Doxygen takes ** before a span of code for two stars.
            line = re.sub(r"\*\*(`.*?)\*\*", r"<b>\1</b>", line)
            block.append(re.sub(r"`([^`]+)`", code_for_doxygen, line))
    out.append(documents.LINK.sub(replaced, "\n".join(block)))
    return "\n".join(out)
