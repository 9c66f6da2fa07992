"""`lockstep chat` at a terminal: lines are edited, earlier ones found again, also in the next run; pasted text is one turn."""

import fcntl
import os
import pty
import re
import select
import stat
import subprocess
import termios
import time

import pytest

from clients import PARIS, QUESTION
from pipeline import BUILD

UP, LEFT, HOME = "\x1b[A", "\x1b[D", "\x1b[H"


class Chat:
    def __init__(self, pipeline, history, *words):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [BUILD / "bin/lockstep", "chat", "--url", pipeline.url, "--temperature", "0", "--max-tokens", "12", "--history", history, *words],
            stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "TERM": "xterm"}, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.text = ""
        self.wait(r"> \x1b\[K")

    def wait(self, pattern, seconds=60):
        """Reads until the pattern is there; returns the match and forgets what came up to its end."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.text)):
            assert time.monotonic() < end, self.text
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.text += os.read(self.master, 65536).decode(errors="replace")
                except OSError:  # the other end is closed
                    assert re.search(pattern, self.text), self.text
        self.text = self.text[found.end():]
        return found

    def type(self, text):
        os.write(self.master, text.encode())

    def ask(self, keys):
        """Types the keys and Enter; what was shown of the line at last, and the answer."""
        self.type(keys + "\r")
        shown = self.wait(r"(?:\r> ([^\x1b]*)\x1b\[K\r\x1b\[\d+C)+\x1b\[\?2004l\r\n")[1]
        answer = self.wait(r"((?s:.*?))\r\n\(\d+ tokens, [\d.]+ per second\)")[1]
        self.wait(r"> \x1b\[K")
        return shown, answer

    def close(self):
        self.type("\x04")
        self.ended()

    def ended(self):
        assert self.process.wait(60) == 0
        os.close(self.master)


def test_lines_are_edited_and_kept(pipeline, tmp_path):
    history = tmp_path / "made" / "chat"
    chat = Chat(pipeline, history)
    # Typed wrong, and put right: an x too many in front, an o at the end.
    wrong = QUESTION[5:] + "o"
    assert chat.ask(wrong + "\x7f" + HOME + "What x" + LEFT + "\x1b[3~") == (QUESTION, PARIS)
    chat.type("half a line\x03")  # Ctrl-C abandons it
    chat.wait(r"> \x1b\[K")
    chat.type("two lines\\\r")
    chat.wait(r"\. \x1b\[K")
    chat.type("\x03")  # both of them
    chat.wait(r"> \x1b\[K")
    chat.type("/clear\r")
    chat.wait("conversation is empty")
    chat.wait(r"> \x1b\[K")
    assert chat.ask(UP + UP) == (QUESTION, PARIS)
    chat.close()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600 and history.read_text().splitlines() == [f'"{QUESTION}"', '"/clear"', f'"{QUESTION}"']
    again = Chat(pipeline, history)
    assert again.ask(UP) == (QUESTION, PARIS)
    again.type("/retry\r")
    assert again.wait(r"((?s:.*?))\r\n\(\d+ tokens")[1].endswith(PARIS)
    again.close()


def test_commands(pipeline):
    chat = Chat(pipeline, "none")
    chat.type("/help\r")
    told = chat.wait(r"(?s)(/system TEXT.*)/quit")[1]
    assert all(command in told for command in ("/system", "/clear", "/retry"))
    chat.wait(r"> \x1b\[K")
    assert chat.ask(QUESTION)[1] == PARIS
    chat.type("/system You are a pirate.\r")
    chat.wait(r"> \x1b\[K")
    # A new conversation, with that before the question.
    asked = [{"role": "system", "content": "You are a pirate."}, {"role": "user", "content": "Who are you?"}]
    answer = pipeline.chat(asked, temperature=0, max_tokens=12)["choices"][0]["message"]["content"]
    assert chat.ask("Who are you?")[1].split() == answer.split()
    chat.type("/quit\r")
    chat.ended()


def test_keys_typed_during_an_answer(pipeline):
    """They wait for the prompt, in order, and show nowhere before."""
    chat = Chat(pipeline, "none")
    chat.type(QUESTION + "\r")
    chat.wait(r"\x1b\[\?2004l\r\n")
    chat.type("Bonjourx\x7f\r\x04")
    assert chat.wait(r"((?s:.*?))\r\n\(\d+ tokens")[1] == PARIS
    chat.wait("> Bonjour\x1b")
    chat.wait(r"\r\n\(\d+ tokens")
    chat.ended()


def test_an_answer_is_stopped(pipeline):
    """Ctrl-C ends the answer and not the chat; what was said stays in the conversation."""
    chat = Chat(pipeline, "none", "--max-tokens", "4000")
    chat.type("Write a long story about a lighthouse.\r")
    chat.wait(r"\x1b\[\?2004l\r\n\w")
    chat.type("\x03")
    chat.wait(r"\r\n\(stopped\)")
    chat.wait(r"> \x1b\[K")
    chat.close()


def test_status_is_watched(pipeline):
    """A table again every second, on a screen that is cleared before; as JSON a line each."""
    command = [BUILD / "bin/lockstep", "status", "--run-dir", pipeline.dir, "--watch"]
    for words, mark in ((command, b"\x1b[H\x1b[2J"), ([*command, "--json"], b'{"ready":true')):
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            seen, end = b"", time.monotonic() + 60
            while seen.count(mark) < 3:
                assert time.monotonic() < end, seen
                seen += os.read(process.stdout.fileno(), 65536)
            process.terminate()
        assert all(role in seen for role in (b"npu-worker", b"gateway", b"sampler", b"tokenizer", b"keeper"))


def test_the_processes_variables_are_not_for_the_client(pipeline):
    """LOCKSTEP_MODEL is a file of the npu-worker; a shell that starts processes by hand has it, too."""
    for words in ([], ["--model", pipeline.get("/v1/models").json["data"][0]["id"]]):
        done = subprocess.run([BUILD / "bin/lockstep", "generate", "--temperature", "0", "--max-tokens", "12", *words, QUESTION], capture_output=True,
                              text=True, timeout=60, env={**os.environ, "LOCKSTEP_MODEL": "/models/tiny.gguf", "LOCKSTEP_PORT": str(pipeline.port)})
        assert done.returncode == 0 and done.stdout.strip() == PARIS, done.stderr


def test_text_that_is_none(pipeline):
    for words, given in ([], b"caf\xe9"), (["--system", b"caf\xe9", "hello"], b""):
        done = subprocess.run([BUILD / "bin/lockstep", "generate", "--url", pipeline.url, *words], input=given, capture_output=True)
        assert done.returncode == 64 and b"UTF-8" in done.stderr


def test_what_is_pasted_is_one_turn(pipeline, tmp_path):
    chat = Chat(pipeline, "none")
    shown, answer = chat.ask("\x1b[200~What is the capital\rof France?\x1b[201~")
    assert shown == "What is the capital↵of France?" and "Paris" in answer
    chat.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text, words", [(QUESTION + "\n", PARIS), ("What is the capital \\\nof France?\n", "Paris")])
def test_without_a_terminal(pipeline, text, words):
    done = subprocess.run([BUILD / "bin/lockstep", "chat", "--url", pipeline.url, "--temperature", "0", "--max-tokens", "12"],
                          input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and words in done.stdout and "\x1b" not in done.stdout
