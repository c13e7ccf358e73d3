#!/usr/bin/env python3
"""What `tenuto help-files` writes for an installation: man pages without warnings, and completion
that works in bash, zsh and fish. All of it has each command and option of the tool's --help.

  tool_help_test.py TOOL WORK
"""
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import sys
import time

TOOL, WORK = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
PAGES, FILES = WORK / "pages", WORK / "files"
os.environ["LC_ALL"] = "C.UTF-8"  # a locale that is not there is a warning of each shell
failures = []


def fail(text):
    failures.append(text)
    print("help:", text, file=sys.stderr)


def output(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def prepare():
    shutil.rmtree(WORK, ignore_errors=True)
    (FILES / "folder").mkdir(parents=True)
    for name in ("books.tnt", "books of mine.tnt"):
        (FILES / name).touch()
    output(TOOL, "help-files", PAGES)


def commands():
    """Name -> its options, as --help has them."""
    overview = output(TOOL, "--help").split("Commands:\n")[1].split("\n\n")[0]
    options = {}
    for line in overview.splitlines():
        name = re.match(r"  (crash \w+|[\w-]+)", line)[1]
        text = output(TOOL, *name.split(), "--help") if name not in (
            "crash run", "crash life", "crash replay", "import-pmemobj") else ""
        options[name] = re.findall(r"^  (?:-\w,)?(--[\w-]+)", text.split("Examples:")[0], re.M)
    return options


def check_man_pages(options):
    groff = shutil.which("groff")
    if groff is None:
        print("skipped: man pages are not rendered, there is no groff")
    texts = {}
    for page in (PAGES / "man1").iterdir():
        texts[page.name] = page.read_text().replace("\\-", "-")
        if groff:
            done = subprocess.run([groff, "-man", "-Tutf8", "-ww", "-P-cbou", page], text=True,
                                  capture_output=True)
            if done.returncode != 0 or done.stderr:
                fail(f"{page.name}: groff says {done.stderr}")
            if "SYNOPSIS" not in done.stdout:
                fail(f"{page.name} is rendered without a synopsis")
    for name, names in options.items():
        page = f"tenuto-{name.replace(' ', '-')}.1"
        if f"tenuto {name}" not in texts["tenuto.1"]:
            fail(f"tenuto.1 lacks {name}")
        for option in names:
            if option not in texts.get(page, ""):
                fail(f"{page} lacks {option}")
    if "Another process has the pool open" not in texts["tenuto.1"]:
        fail("tenuto.1 lacks the exit codes")


def in_bash(line):
    """What bash offers for the last word of a line; it takes = for a word of its own."""
    words = [w for w in re.split(r" |(=)", line) if w is not None and (w or w == "")]
    words = [w for i, w in enumerate(words) if w or i == len(words) - 1]
    script = ('source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tenuto; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, str(PAGES / "bash/tenuto"), *words], cwd=FILES,
                          capture_output=True, text=True)
    if done.stderr:
        fail(f"bash says {done.stderr}")
    return sorted(done.stdout.split("\n")[:-1]) if done.stdout != "\n" else []


def check_bash(options):
    files = ["books of mine.tnt", "books.tnt", "folder"]
    media = ["auto", "cache", "journal", "line", "model"]
    for line, wanted in {
            "tenuto cr": ["crash", "create"],
            "tenuto crash ": ["kill", "life", "replay", "run"],
            "tenuto put --max": ["--max-value"],
            "tenuto put books.tnt key --med": ["--medium"],
            "tenuto crash kill --fin": ["--findings"],
            "tenuto info --medium ": media,
            "tenuto info --medium j": ["journal"],
            "tenuto info --medium=": media,
            "tenuto info --medium=ca": ["cache"],
            "tenuto create --order u": ["u64"],
            "tenuto load books.tnt --format ": ["csv", "json", "jsonl", "tsv"],
            "tenuto put ": files,
            "tenuto put books.t": ["books.tnt"],
            "tenuto put books.tnt ": [],                # a key
            "tenuto put --medium line b": files[:2],    # the value of an option is no argument
            "tenuto put --medium=line b": files[:2],
            "tenuto put --json b": files[:2],           # and a flag has none
            "tenuto put -- b": files[:2],
            "tenuto put -- books.tnt b": [],
            "tenuto load books.tnt ": files,
            "tenuto backup books.tnt ": files,
            "tenuto del books.tnt a b c": [],
            "tenuto put books.tnt key --value-file ": files,
            "tenuto crash kill --pool ": ["folder"],
            "tenuto crash replay b": files[:2],
            "tenuto nonsense --": [],
    }.items():
        there = in_bash(line)
        if there != sorted(wanted):
            fail(f"bash offers {there} for {line!r}")
    first = in_bash("tenuto ")
    for name, names in options.items():
        if name.split()[0] not in first:
            fail(f"bash does not offer {name}")
        offered = in_bash(f"tenuto {name} --")
        for option in names:
            if option not in offered:
                fail(f"bash does not offer {option} for {name}")


def check_fish(options):
    if shutil.which("fish") is None:
        print("skipped: there is no fish")
        return

    def offered(line):
        script = f"source {PAGES}/fish/tenuto.fish; complete -C {line!r}"
        done = subprocess.run(["fish", "--no-config", "-c", script], cwd=FILES, text=True,
                              capture_output=True, env=dict(os.environ, HOME=str(WORK)))
        if done.stderr:
            fail(f"fish says {done.stderr}")
        return [w.split("\t")[0] for w in done.stdout.splitlines()]

    for line, wanted in {"tenuto cre": ["create"], "tenuto crash k": ["kill"],
                         "tenuto put books.tnt --med": ["--medium"],
                         "tenuto put books.tnt --medium jo": ["journal"],
                         "tenuto info books.t": ["books.tnt"],
                         "tenuto crash kill --pool f": ["folder/"]}.items():
        if offered(line) != wanted:
            fail(f"fish offers {offered(line)} for {line!r}")
    for name in ("put", "crash kill"):
        there = offered(f"tenuto {name} --")
        for option in options[name]:
            if option not in there:
                fail(f"fish does not offer {option} for {name}")


def check_zsh():
    """The shell at a terminal: the key TAB completes a line."""
    if shutil.which("zsh") is None:
        print("skipped: there is no zsh")
        return
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(FILES)
        os.execvpe("zsh", ["zsh", "-f", "-i"], dict(os.environ, TERM="dumb", HOME=str(WORK)))

    def answer(text, wanted):
        """Whether the terminal shows it, within some seconds."""
        os.write(terminal, text.encode())
        shown, end = "", time.monotonic() + 30
        while wanted not in shown and time.monotonic() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 65536).decode(errors="replace")
        return wanted in shown, shown

    start = (f"unsetopt zle_bracketed_paste; PS1=; fpath=({PAGES}/zsh $fpath); "
             f"autoload -Uz compinit; compinit -u -d {WORK}/dump; "
             "_comp_options+=(no_list_ambiguous); print -r ready''\n")
    if not answer(start, "\nready")[0]:
        fail("zsh does not start")
    for line, wanted in {"tenuto cre\t": "create ", "tenuto crash k\t": "kill ",
                         "tenuto put books.tnt --med\t": "--medium=",
                         "tenuto put books.tnt --medium=jo\t": "journal ",
                         "tenuto crash kill --fin\t": "--findings=",
                         "tenuto info books.t\t": "books.tnt "}.items():
        there, shown = answer(line, wanted)
        if not there:
            fail(f"zsh shows {shown!r} for {line!r}")
        os.write(terminal, b"\x15")  # no line is run
    os.write(terminal, b"\x15exit\n")
    os.close(terminal)
    os.waitpid(child, 0)


prepare()
every = commands()
if len(every) < 17:
    fail(f"only {len(every)} commands")
check_man_pages(every)
check_bash(every)
check_fish(every)
check_zsh()
print(f"help: {len(failures)} failures")
sys.exit(1 if failures else 0)
