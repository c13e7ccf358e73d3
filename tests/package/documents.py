#!/usr/bin/env python3
"""Compiles and runs every program that a document shows.

The info string of a fenced block says what it is:

  c++, c   the blocks of a page, in order, are one program; one of them has `int main`
  sh       the blocks of a page, in order, are one script, run by `sh -eu` with the tool in PATH
  output   what the program or the sh block before it prints on standard output, byte for byte

A block `c++ fragment`, `c fragment` or `sh fragment` is only shown. Other blocks are ignored.

Each program runs in an empty folder of its own and must end with 0. It runs once for each `output`
block behind its last block, so a second `output` block is that of a second run in the same folder.
If there is none, a comment `# prints: TEXT` in another block of the page says what it prints. Then
it runs twice and must print TEXT both times.

A script that says `./example` runs the other program of its page, which then runs nowhere else.

A program that includes tenuto/crash.h is built with the traced library (tenuto_traced.pc). It is
skipped if that is not there.
"""
import argparse
import concurrent.futures
import dataclasses
import difflib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

SUFFIX = {"c++": ".cc", "c": ".c", "sh": ".sh"}
SECONDS_MAX = 300
BLOCK_ENDS = "\x1e"  # a script prints it behind each of its blocks


class Failure(Exception):
    """What is wrong, beginning with page and line."""


@dataclasses.dataclass
class Block:
    language: str  # the info string
    place: str     # page:line
    text: str = ""
    outputs: list = dataclasses.field(default_factory=list)  # the `output` blocks behind it


def pages(source):
    """The documents in `source`: what git does not ignore, or without git all but build/."""
    git = "git ls-files --cached --others --exclude-standard *.md".split()
    names = []
    if shutil.which("git"):
        names = subprocess.run(git, cwd=source, capture_output=True, text=True).stdout.splitlines()
    if not names:
        for folder, below, files in os.walk(source):
            below[:] = [d for d in below if d != "build" and not d.startswith(".")]
            names += [os.path.relpath(os.path.join(folder, f), source) for f in files
                      if f.endswith(".md")]
    return sorted(n for n in names if os.path.isfile(os.path.join(source, n)))


def fenced_blocks(page, text):
    """All fenced blocks of a page, of any language."""
    blocks, inside = [], False
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if line.startswith("```"):
            inside = not inside
            if inside:
                blocks.append(Block(line[3:].strip(), f"{page}:{number + 1}"))
        elif inside:
            blocks[-1].text += line
    if inside:
        raise Failure(f"{blocks[-1].place}: the block has no end")
    return blocks


def programs_of(blocks):
    """The programs of a page, each a list of blocks, and what each of them runs as ./example."""
    programs, last = {}, None
    for block in blocks:
        if block.language in SUFFIX:
            programs.setdefault(block.language, []).append(block)
            last = block
        elif block.language == "output" and last is None:
            raise Failure(f"{block.place}: output of no program")
        elif block.language == "output":
            last.outputs.append(block)
    for language in programs.keys() & {"c++", "c"}:
        parts = programs[language]
        if not any("int main" in part.text for part in parts):
            raise Failure(f"{parts[0].place}: the {language} blocks have no `int main`; "
                          f"what is not run is marked `{language} fragment`")
        if any(part.outputs for part in parts[:-1]):
            raise Failure(f"{parts[0].place}: output before the end of the program")
        prints = re.search(r"# prints: (.*\n)", "".join(block.text for block in blocks))
        if prints and not parts[-1].outputs:
            parts[-1].outputs = [Block("output", parts[0].place, prints[1])] * 2
    script = programs.get("sh", [])
    if not any("./example" in block.text for block in script):
        return [(program, None) for program in programs.values()]
    examples = [program for program in programs.values() if program is not script]
    if len(examples) != 1 or examples[0][-1].outputs:
        raise Failure(f"{script[0].place}: ./example is not one program without output of its own")
    return [(script, examples[0])]


def compare(output, printed):
    if output.text != printed:
        lines = difflib.ndiff(output.text.splitlines(), printed.splitlines())
        raise Failure(f"{output.place}: prints something else (-: the page, +: the program)\n"
                      + "\n".join(lines))


class Runner:
    """Builds and runs programs against what is installed in the prefixes."""

    def __init__(self, options):
        self.compilers = {"c++": shlex.split(options.cxx) + ["-std=c++20"],
                          "c": shlex.split(options.cc) + ["-std=c99"]}
        self.work = pathlib.Path(options.work).resolve()
        prefixes = [pathlib.Path(p).resolve() for p in (options.prefix, options.traced_prefix) if p]
        configs = [file for prefix in prefixes for file in prefix.rglob("tenuto*.pc")]
        self.packages = {file.name for file in configs}
        self.env = dict(os.environ)
        for name, folders in {"PATH": [prefix / "bin" for prefix in prefixes],
                              "PKG_CONFIG_PATH": [file.parent for file in configs],
                              "LD_LIBRARY_PATH": [file.parents[1] for file in configs]}.items():
            words = [str(folder) for folder in folders] + [os.environ.get(name, "")]
            self.env[name] = os.pathsep.join(word for word in dict.fromkeys(words) if word)

    def run(self, place, command, folder):
        try:
            return subprocess.run(command, cwd=folder, env=self.env, stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, errors="replace",
                                  timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise Failure(f"{place}: not done after {SECONDS_MAX} s: {command[0]}") from None

    def must(self, place, command, folder):
        """Runs a command that must end with 0, and returns what it prints."""
        done = self.run(place, command, folder)
        if done.returncode != 0:
            raise Failure(f"{place}: status {done.returncode} of {shlex.join(command)}\n"
                          f"{done.stdout}{done.stderr}")
        return done.stdout

    def try_out(self, program, example=None):
        """Builds and runs one program. `example` is built for it, if it is a script that runs that.
        Returns whether it did; if not, it was skipped."""
        page, suffix = program[0].place.rsplit(":", 1)[0], SUFFIX[program[0].language]
        built = example or program
        traced = any("tenuto/crash.h" in block.text for block in built)
        if traced and "tenuto_traced.pc" not in self.packages:
            print(f"{page}: skipped, there is no traced library")
            return False
        folder = self.work / (page.replace("/", "_") + suffix)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if built[0].language != "sh":
            self.build(built, "example" + SUFFIX[built[0].language],
                       "tenuto_traced" if traced else "tenuto", folder)
        if suffix == ".sh":
            self.run_script(program, folder)
        else:
            for output in program[-1].outputs or [None]:
                printed = self.must(program[0].place, [str(folder / "example")], folder)
                if output is not None:
                    compare(output, printed)
        shutil.rmtree(folder)  # that of a failure stays, to be looked at
        return True

    def build(self, program, source, package, folder):
        place, compiler = program[0].place, self.compilers[program[0].language]
        with open(folder / source, "w", encoding="utf-8") as file:
            for block in program:
                page, line = block.place.rsplit(":", 1)
                file.write(f'#line {line} "{page}"\n{block.text}')
        cflags, libs = (shlex.split(self.must(place, ["pkg-config", kind, package], folder))
                        for kind in ("--cflags", "--libs"))
        # Two commands: the traced library needs -fsanitize=thread to compile, and not to link.
        self.must(place, compiler + ["-Wall", "-Wextra", "-Werror", "-g"] + cflags
                  + ["-c", source, "-o", "example.o"], folder)
        self.must(place, compiler + ["example.o"] + libs + ["-o", "example"], folder)

    def run_script(self, program, folder):
        script = "".join(f"{block.text}printf '\\036'\n" for block in program)
        done = self.run(program[0].place, ["sh", "-euc", script], folder)
        printed = done.stdout.split(BLOCK_ENDS)
        for block, text in zip(program, printed[:-1]):
            for output in block.outputs:
                compare(output, text)
        if done.returncode != 0 or len(printed) <= len(program):
            place = program[min(len(printed), len(program)) - 1].place
            raise Failure(f"{place}: the script ends in this block with status {done.returncode}\n"
                          f"{printed[-1]}{done.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, text in {"source": "the tree with the documents", "prefix": "of what is installed",
                       "work": "a folder for the programs and their files"}.items():
        parser.add_argument("--" + name, required=True, help=text)
    parser.add_argument("--traced-prefix", help="of the traced library, if it is elsewhere")
    parser.add_argument("--cxx", default="g++")
    parser.add_argument("--cc", default="gcc")
    options = parser.parse_args()
    runner = Runner(options)
    programs, failures, fragments, ran = [], [], 0, 0
    for page in pages(options.source):
        try:
            text = pathlib.Path(options.source, page).read_text(encoding="utf-8")
            blocks = fenced_blocks(page, text)
            fragments += sum(block.language.endswith(" fragment") for block in blocks)
            programs += programs_of(blocks)
        except Failure as failure:
            failures.append(failure)

    def try_out(program):
        try:
            return runner.try_out(*program), None
        except Failure as failure:
            return False, failure

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:  # each has its own folder
        for done, failure in threads.map(try_out, programs):
            ran += done
            failures += [failure] if failure else []
    for failure in failures:
        print(failure, file=sys.stderr)
    print(f"documents: {ran} of {len(programs)} programs run well, {fragments} fragments not run, "
          f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
