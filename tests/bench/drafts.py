"""What drafts bring and cost: the same requests with `"speculate": false` and without it, in turn, at one server. The answers
are the same to the byte, so the rates compare the same work."""

import http.client
import json
import time

CODE = '''class Shape:
    """A figure in the plane, whose measures are in metres."""

    def __init__(self, name, sides):
        self.name = name
        self.sides = sides

    def outline(self):
        return sum(self.sides)

    def area(self):
        raise NotImplementedError(self.name)

    def describe(self):
        return f"{self.name}: outline {self.outline()}, area {self.area()}"


class Rectangle(Shape):
    def __init__(self, width, height):
        super().__init__("rectangle", [width, height, width, height])
        self.width = width
        self.height = height

    def area(self):
        return self.width * self.height


class Square(Rectangle):
    def __init__(self, side):
        super().__init__(side, side)
        self.name = "square"
'''
REPORT = """The pump house at Lower Weir was built in 1931. Its two pumps lift water from the mill stream into the town's reservoir. In the dry \
summer of 1976 the stream fell so low that the pumps ran for two hours a day only. The council then had a well sunk behind the house. The well is \
forty metres deep and has never run dry. Since 2008 a meter counts each cubic metre that leaves the reservoir. In an ordinary year the town uses \
three hundred thousand of them. The oldest of the pumps still runs every Sunday, so that its bearings do not rust."""
# What is asked, and at which temperature.
TEXTS = {
    "an edit of code": (f"Rename the method `area` to `surface` in this file and print the whole file again.\n\n```python\n{CODE}```", 0),
    "a summary with quotes": (f"Quote, word for word, every sentence of this report that speaks of water, the stream, the well or the pumps.\n\n{REPORT}", 0),
    "prose that doesn't repeat itself": ("Write a story about a clockmaker who finds a letter in an old clock.", 1),
}


class NoTemplate(Exception):
    """The model doesn't know chats."""


def rate(port, text, temperature, seed, speculate):
    """Tokens per second behind the first one, and the answer."""
    body = {"messages": [{"role": "user", "content": text}], "max_tokens": 256, "temperature": temperature, "seed": seed, "stream": True,
            "stream_options": {"include_usage": True}, **({} if speculate else {"speculate": False})}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        problem = response.read().decode()
        raise NoTemplate if "no chat template" in problem else SystemExit(problem)
    times, answer, tokens = [], "", 0
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
        delta = event["choices"][0]["delta"].get("content") if event["choices"] else None
        if delta:
            times.append(time.monotonic())
            answer += delta
    connection.close()
    return (tokens - 1) / (times[-1] - times[0]), answer


def measure(port, name, turns):
    """{"lockstep": rates with drafts, "without drafts": rates of the same answers}."""
    rates = {"lockstep": [], "without drafts": []}
    for turn in range(turns):
        answers = set()
        for server in sorted(rates, reverse=turn % 2 == 1):
            value, answer = rate(port, *TEXTS[name], turn, server == "lockstep")
            rates[server].append(value)
            answers.add(answer)
        if len(answers) != 1:
            raise SystemExit(f"{name}, seed {turn}: drafts changed the answer")
    return rates
