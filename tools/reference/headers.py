"""The comments of a public header, and the declarations that they belong to.

The headers have plain comments. A reader sees from the layout what each one is about, and this says
so to Doxygen. The rules:

  - A comment directly above a declaration belongs to it, and so does one behind it in its last
    line, with the lines of comment in the same column below.
  - The one above also belongs to what follows without a blank line and without a comment of its
    own, if that is an overload, if the comment names it, or behind a typedef (a callback, and then
    the call that takes it).
  - The first comment of a file is about the file. A comment above a blank line, above a directive
    or inside a function is about no declaration.
  - A comment `--- title ---` is the title of what is below it, to the next one; without a blank
    line below it, of that paragraph.
  - Private members and the namespaces in INTERNAL are left out.
"""
import bisect
import dataclasses
import re

INTERNAL = {"pm", "store", "tx"}
TITLE = re.compile(r"-{3} (.*?) ?-*$")
COMMENT_OR_STRING = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|(?<!\w)'(?:\\.|[^'\\\n])+'|\n", re.S)


@dataclasses.dataclass
class Comment:
    first: int     # lines, from 0
    last: int
    column: int
    own: bool      # nothing else is in its lines
    text: list = dataclasses.field(default_factory=list)

    def title(self):
        found = TITLE.match(self.text[0].strip())
        return found[1] if found else None


@dataclasses.dataclass
class Declaration:
    names: list    # one, but for `int a, b;`; none: what needs no comment
    code: str
    scope: tuple   # the names of the classes around it
    kind: str      # define, scope (class, enumeration, namespace), typedef, value, other
    hidden: bool
    first: int     # lines, from 0
    last: int      # of the declaration itself
    end: int       # of its body, too
    around: object  # the declaration of the scope that it is in, or None
    above: list = dataclasses.field(default_factory=list)
    behind: list = dataclasses.field(default_factory=list)

    def comments(self):
        """Each is a list of lines."""
        return [c.text for c in self.above + self.behind]


@dataclasses.dataclass
class Scope:
    kind: str      # namespace, class, struct, union, enum
    name: str
    of: object     # its declaration
    private: bool  # the members from here on


def masked(text):
    """The text with blanks in place of comments and strings, and the comments."""
    comments, out, at, line, begin = [], [], 0, 0, 0
    for found in COMMENT_OR_STRING.finditer(text):
        out.append(text[at:found.start()])
        word, at = found[0], found.end()
        if word == "\n":
            line, begin = line + 1, at
        elif word[0] == "/":
            rest = text[at:text.find("\n", at)].strip()
            last = line + word.count("\n")
            if not rest:  # a comment before something else in its line is of a parameter
                own = not text[begin:found.start()].strip()
                comments.append(Comment(line, last, found.start() - begin, own, lines_of(word)))
            if last > line:
                line, begin = last, text.rfind("\n", 0, at) + 1
        out.append(re.sub(r"[^\n]", " ", word) if word[0] == "/" else
                   word if word == "\n" else '"' + " " * (len(word) - 2) + '"')
    out.append(text[at:])
    return "".join(out), comments


def lines_of(comment):
    if comment.startswith("//"):
        return [comment[2:].rstrip()]
    lines = [re.sub(r"^\s*\*(?= |$)", "", l).rstrip() for l in comment[2:-2].split("\n")]
    while len(lines) > 1 and not lines[-1]:
        lines.pop()
    return lines


def grouped(comments):
    """Lines of // in one column, one below the other, are one comment."""
    groups = []
    for c in comments:
        last = groups[-1] if groups else None
        if (last and c.own and last.last + 1 == c.first and last.column == c.column
                and c.title() is None and last.title() is None):
            last.text += c.text
            last.last = c.last
        else:
            groups.append(c)
    return groups


def bare(code):
    """A declaration without template and requires clauses, attributes, arguments of templates."""
    code = re.sub(r"\[\[.*?\]\]|__attribute__\(\(.*?\)\)|\bTENUTO_API\b", "", code).strip()
    while (clause := re.match(r"(template)\s*<|requires\s*\(", code)) is not None:
        pair = "<>" if clause[1] else "()"
        depth, at = 1, clause.end()
        while depth and at < len(code):
            depth += (code[at] == pair[0]) - (code[at] == pair[1])
            at += 1
        code = code[at:].strip()
    while "operator" not in code and (shorter := re.sub(r"<[^<>]*>", "", code)) != code:
        code = shorter
    return code


def scope_opened(code):
    """(kind, name) of the scope that a `{` behind `code` opens, or None: a body, an initialiser."""
    if re.match(r'extern\s*"', code):
        return "namespace", ""
    found = re.match(r"(?:inline )?(namespace)\s*([\w:]*)$", code) or re.match(
        r"(?:typedef )?(enum|class|struct|union)(?: class)?\b\s*(\w*)(?:\s*:[^:(].*)?$", code)
    return (found[1], found[2]) if found else None


def names_of(code):
    """What a declaration declares, that may have a comment of its own."""
    if re.match(r"(friend|static_assert|using namespace)\b", code):
        return []
    if re.match(r"(class|struct|union|enum)( class)? \w+( ?: [\w:]+)?$", code):
        return []  # declared only
    for pattern in (r"using (\w+)", r"typedef [^(]*\(\*(\w+)\)", r"[^=(]*\(\*(\w+)\)\(",
                    r".*\b(operator\W+?|operator [\w:]+)\s*\(", r"[^=(]*?(~?\w+)\s*\("):
        if (found := re.match(pattern, code)) is not None:
            return [found[1]]
    code = re.sub(r"=[^,]*|\{[^}]*\}|\[[^\]]*\]", "", code)
    words = [re.findall(r"\w+", part) for part in code.split(",")]
    return [w[-1] for w in words if w]


def is_special(code):
    """Copies, moves and destructors: a comment above the paragraph is not about them."""
    return (re.search(r"^(explicit )?~|\boperator=\W|= (delete|default)$", code) is not None
            or re.match(r"(?:explicit )?(\w+)\((const )?\1 ?&", code) is not None)


def parse(code):
    """All declarations, in their order."""
    starts = [0] + [m.end() for m in re.finditer("\n", code)]
    line_of = lambda at: bisect.bisect_right(starts, at) - 1
    declarations, scopes = [], []
    begin, parens, at = None, 0, 0

    def declare(end, opened=None):
        nonlocal begin
        if begin is None:
            return None
        text = bare(" ".join(code[begin:end].split()))
        if opened:
            kind, names = "scope", [opened[1] or "@" + opened[0]]
            if opened[0] == "namespace":
                names = []
        elif scopes and scopes[-1].kind == "enum":
            kind, names = "value", re.findall(r"^\w+", text)
        else:
            kind, names = "typedef" if text.startswith("typedef") else "other", names_of(text)
        last = line_of(begin + len(code[begin:end].rstrip()))
        classes = tuple(s.name for s in scopes if s.kind in ("class", "struct", "union"))
        hidden = any(s.private or s.name in INTERNAL for s in scopes)
        around = scopes[-1].of if scopes else None
        declarations.append(Declaration(names, text, classes, kind, hidden, line_of(begin), last,
                                        last, around))
        begin = None
        return declarations[-1]

    while at < len(code):
        c = code[at]
        if begin is None and not c.isspace() and c not in "{};,":
            begin = at
        text = code[begin:at].strip() if begin is not None else ""
        if c in "()":
            parens += 1 if c == "(" else -1
        elif parens:
            pass
        elif c == ":" and text in ("public", "private", "protected"):
            scopes[-1].private = text == "private"
            begin = None
        elif c == "{":
            opened = scope_opened(bare(" ".join(text.split())))
            if opened:
                scopes.append(Scope(*opened, declare(at, opened), opened[0] == "class"))
            else:  # a body ends its declaration; behind an initialiser more may follow
                depth, head = 1, at
                while depth:
                    at += 1
                    depth += (code[at] == "{") - (code[at] == "}")
                if not re.match(r"\s*[;,)]", code[at + 1:]) and not re.search(r"=\s*$", text):
                    of = declare(head + 1)
                    of.last = of.end = line_of(at)
        elif c == "}":
            declare(at)
            of = scopes.pop().of
            of.end = line_of(at)
            if of.names:
                at = code.index(";", at)  # the name of a typedef is that of its struct
        elif c == ";" or (c == "," and scopes and scopes[-1].kind == "enum"):
            declare(at)
        at += 1
    return declarations


def without_directives(code, raw):
    """The code without directives; the macros that it defines."""
    lines, macros, goes_on = code.split("\n"), [], False
    directives = set()
    for n, line in enumerate(lines):
        if goes_on or line.startswith("#"):
            directives.add(n)
            found = re.match(r"#define (\w+)", line)
            if found and not goes_on:
                macros.append(Declaration([found[1]], line, (), "define", False, n, n, n, None))
            goes_on = raw[n].endswith("\\")
            lines[n] = " " * len(line)
    return "\n".join(lines), macros, directives


def shares(declaration, of):
    """Whether a declaration without a comment has that of one above."""
    name = re.escape(declaration.names[0])
    return (declaration.names == of.names or of.kind in ("typedef", "scope")
            or any(re.search(rf"\b{name}\b", " ".join(c)) for c in of.comments()))


class Header:
    """declarations: all of them, with their comments. file_comment: lines. titles: line -> text."""

    def __init__(self, text):
        self.lines = text.split("\n")
        code, comments = masked(text)
        self.comments = grouped(comments)
        code, macros, self.directives = without_directives(code, self.lines)
        self.declarations = sorted(parse(code) + macros, key=lambda d: d.first)
        self.titles, self.file_comment = {}, None
        self._attach()
        self._share()

    def _attach(self):
        starting, ending = {}, {}
        for d in self.declarations:
            starting.setdefault(d.first, d)
            ending[d.last] = d
        for n, comment in enumerate(self.comments):
            title = comment.title() if comment.own else None
            if title:
                self.titles[comment.first] = title
            elif not comment.own:
                d = starting.get(comment.first) or ending.get(comment.first)
                if d and d.last == comment.first and (d.names or d.kind == "scope"):
                    d.behind.append(comment)
            elif n == 0:
                self.file_comment = comment
            elif (d := starting.get(comment.last + 1)) is not None and d.names:
                d.above.append(comment)

    def _share(self):
        own = {n for c in self.comments if c.own for n in range(c.first, c.last + 1)}
        breaks = own | self.directives | {n for n, l in enumerate(self.lines) if not l.strip()}
        paragraphs = {}  # scope -> the last declaration, and the one whose comment may be shared
        for d in self.declarations:
            if d.kind in ("value", "define"):
                continue
            previous, of = paragraphs.get(id(d.around), (None, None))
            if previous and any(n in breaks for n in range(previous.end + 1, d.first)):
                of = None
            if d.above:
                of = d
            elif of and d.names and not d.behind and not is_special(d.code) and shares(d, of):
                d.above = list(of.above)
            paragraphs[id(d.around)] = d, of

    def groups(self):
        """First line, last line and text of each title's calls."""
        groups = []
        for line, title in self.titles.items():
            around = [d for d in self.declarations if d.kind == "scope" and d.first < line <= d.end]
            around = around[-1] if around else None
            ends = ([n for n in self.titles if n > line] if not self.lines[line + 1].strip()
                    else [n for n, l in enumerate(self.lines) if n > line and not l.strip()])
            to = min(ends, default=len(self.lines))
            below = [d.end for d in self.declarations
                     if d.around is around and not d.hidden and line < d.first < to]
            groups.append((line, max(below, default=line), title))
        return groups

    def private_parts(self):
        """First and last line of each run of private members."""
        runs, last = [], None
        for d in self.declarations:
            if d.around and d.around.names and not d.around.hidden:
                if d.hidden and runs and last and last.hidden and last.around is d.around:
                    runs[-1][1] = d.end
                elif d.hidden:
                    runs.append([d.first, d.end])
                last = d
        return runs

    def documented(self):
        """What has a comment that belongs into the reference."""
        return [d for d in self.declarations if d.comments() and d.names and not d.hidden]

    def unattached(self):
        """Comments between declarations that are about none of them."""
        known = {id(c) for d in self.declarations for c in d.above + d.behind}
        inside = {n for d in self.declarations if d.kind != "scope" or d.hidden
                  for n in range(d.first, d.end + 1)}
        hidden = {n for d in self.declarations if d.hidden for n in range(d.first - 1, d.end + 1)}
        return [c for c in self.comments
                if c.own and id(c) not in known and c is not self.file_comment
                and c.first not in self.titles and c.first not in inside and c.last not in hidden
                and c.last + 1 not in self.directives]
