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


class Help:
    """A --help taken apart: how it is called, what it does, its verbs, its options (with the lines that go on), and other text."""

    def __init__(self, text):
        first, *lines = text.splitlines()
        self.calls, self.summary, self.verbs, self.options, self.text = [], "", [], [], []
        if first.startswith("usage: "):
            self.calls = [first[7:]] + [line.strip() for line in lines if re.match(r" +lockstep ", line)]
            lines = [line for line in lines if not re.match(r" +lockstep ", line)]
        else:
            call, self.summary = first.split(": ", 1)
            self.calls = [call]
        for line in lines:
            self.take(line)

    def take(self, line):
        if match := re.match(r"  (-\S.*?)(?:  +(.*))?$", line):
            self.options.append([match[1], match[2] or ""])
        elif match := re.match(r"  ([a-z][a-z-]*(?: \S+)*?)  +(.*)$", line):
            self.verbs.append((match[1], match[2]))
        elif self.options and re.match(r" {8,}\S", line):
            self.options[-1][1] += " " + line.strip()
        else:
            self.text.append(line)

    def paragraphs(self):
        parts = re.split(r"\n{2,}", "\n".join(self.text).strip())
        # What holds for all commands is said once.
        return [part.replace("\n", " ") for part in parts if part and not part.startswith("Each option is also")]

    def print(self):
        """Everything but the summary, in roff."""
        calls = "".join(f".PP\n.B {escape(re.sub(' +', ' ', call))}\n" for call in self.calls)
        verbs = "".join(f".TP\n.B {escape(name)}\n{escape(what)}\n" for name, what in self.verbs)
        return calls + "".join(f".PP\n{escape(part)}\n" for part in self.paragraphs()) + verbs + option_list(self.options)


def option_list(options):
    return "".join(f".TP\n.B {escape(flag)}\n{escape(what.strip() or 'see the documentation')}\n" for flag, what in options)


def head(name, summary, version):
    return (f'.TH {escape(name.upper())} 1 "" "Lockstep {version}" "Lockstep"\n.SH NAME\n{escape(name)} \\- {escape(summary)}\n')


def tail(name):
    lines = "".join(f".TP\n.B {status}\n{escape(what)}\n" for status, what in EXITS.items())
    others = ", ".join(f".BR {escape(other)} (1)" for other in PROGRAMS if other != name).replace(", .BR", ",\n.BR")
    return f".SH EXIT STATUS\n{lines}.SH SEE ALSO\n{others}\n"


def process_page(folder, name, version):
    own = Help(help_of(str(folder / name), "--help"))
    return (head(name, own.summary, version) + f".SH SYNOPSIS\n.B {escape(name)}\n[\\fIoptions\\fR]\n.SH DESCRIPTION\n"
            "One process of a Lockstep pipeline. Each option can also stand in the environment as LOCKSTEP_NAME, or in a file\n"
            f"of lines \"name = value\".\n.SH OPTIONS\n{option_list(own.options)}" + tail(name))


def command_page(folder, version):
    program = str(folder / "lockstep")
    page = head("lockstep", "a language-model server as a pipeline of processes", version)
    page += ".SH SYNOPSIS\n.B lockstep\n\\fIcommand\\fR [\\fIoptions\\fR]\n.SH COMMANDS\n"
    page += "Each option can also stand in the environment as LOCKSTEP_NAME (upper case, \\- becomes _).\n"
    for name, summary in Help(help_of(program, "--help")).verbs:
        own = Help(help_of(program, name, "--help"))
        page += f".SS {escape(name)}\n{escape(summary[:1].upper() + summary[1:])}.\n{own.print()}"
        for verb, _ in own.verbs if not own.options else ():
            page += f".SS {escape(name)} {escape(verb)}\n{Help(help_of(program, name, verb, '--help')).print()}"
    return page + tail("lockstep")


def main():
    folder, out, version = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    for name in PROGRAMS:
        page = command_page(folder, version) if name == "lockstep" else process_page(folder, name, version)
        (out / f"{name}.1").write_text(page)


main()
