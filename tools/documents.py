"""What the checks and the reference read of a document: its text, its headings and its links."""
import re

LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")


def outside_code(text):
    """Line number and text of each line of a document that is not in a fenced block."""
    code = False
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code:
            yield number, line


def anchors(text):
    """Line number and anchor of each heading, as hosts of repositories make them."""
    seen = {}
    for number, line in outside_code(text):
        heading = re.match(r"#{1,6} +(.*?)(?: +#+)?$", line)
        if not heading:
            continue
        words = LINK.sub(r"\1", heading[1]).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        times = seen[anchor] = seen.get(anchor, -1) + 1
        yield number, anchor + (f"-{times}" if times else "")


def links(text):
    """Line number and target of each link; a link may go over several lines."""
    lines = {n: line for n, line in outside_code(text)}
    prose = "\n".join(lines.get(n, "") for n in range(1, text.count("\n") + 2))
    without_code = re.sub(r"`[^`\n]*`", lambda m: " " * len(m[0]), prose)
    for found in LINK.finditer(prose):
        # A link inside a span of code is only shown.
        if without_code[found.end() - 1] == ")":
            yield prose.count("\n", 0, found.start(2)) + 1, found[2]
