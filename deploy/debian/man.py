#!/usr/bin/env python3
"""Writes a man page for each program from its own --help: man.py BIN-FOLDER OUT-FOLDER VERSION"""

import pathlib
import re
import subprocess
import sys

PROGRAMS = ["lockstep", "lockstep-gateway", "lockstep-tokenizer", "lockstep-npu-worker", "lockstep-sampler", "lockstep-keeper"]
EXITS = {0: "done", 64: "wrong command line", 69: "device or program missing", 75: "try again", 78: "bad configuration or model"}


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in ".'" else text


def help_of(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def options(text):
    """(flag, what it does) of a --help's lines; a line that is indented further goes on."""
    found = []
    for line in text.splitlines():
        if match := re.match(r"  (-\S.*?)(?:  +(.*))?$", line):
            found.append([match[1], match[2] or ""])
        elif found and re.match(r" {8,}\S", line):
            found[-1][1] += " " + line.strip()
    return found


def option_list(text):
    return "".join(f".TP\n.B {escape(flag)}\n{escape(what.strip() or 'see the documentation')}\n" for flag, what in options(text))


def head(name, summary, version):
    return (f'.TH {escape(name.upper())} 1 "" "Lockstep {version}" "Lockstep"\n.SH NAME\n{escape(name)} \\- {escape(summary)}\n')


def tail(name):
    lines = "".join(f".TP\n.B {status}\n{escape(what)}\n" for status, what in EXITS.items())
    others = ", ".join(f".BR {escape(other)} (1)" for other in PROGRAMS if other != name).replace(", .BR", ",\n.BR")
    return f".SH EXIT STATUS\n{lines}.SH SEE ALSO\n{others}\n"


def process_page(folder, name, version):
    text = help_of(str(folder / name), "--help")
    summary = text.splitlines()[0].split(": ", 1)[1]
    return (head(name, summary, version) + f".SH SYNOPSIS\n.B {escape(name)}\n[\\fIoptions\\fR]\n.SH DESCRIPTION\n"
            "One process of a Lockstep pipeline. Each option can also stand in the environment as LOCKSTEP_NAME, or in a file\n"
            f"of lines \"name = value\".\n.SH OPTIONS\n{option_list(text)}" + tail(name))


def command_page(folder, version):
    program = str(folder / "lockstep")
    commands = re.findall(r"^  ([a-z][a-z-]*) +(.*)$", help_of(program, "--help"), re.M)
    page = head("lockstep", "a language-model server as a pipeline of processes", version)
    page += ".SH SYNOPSIS\n.B lockstep\n\\fIcommand\\fR [\\fIoptions\\fR]\n.SH COMMANDS\n"
    for name, summary in commands:
        page += f".SS {escape(name)}\n{escape(summary[:1].upper() + summary[1:])}.\n"
        done = subprocess.run([program, name, "--help"], capture_output=True, text=True, timeout=30)
        page += option_list(done.stdout)
    return page + tail("lockstep")


def main():
    folder, out, version = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    for name in PROGRAMS:
        page = command_page(folder, version) if name == "lockstep" else process_page(folder, name, version)
        (out / f"{name}.1").write_text(page)


main()
