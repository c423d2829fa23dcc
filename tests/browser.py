"""Chromium without a window, told what to do over its debugging pipe; nothing but the standard library."""

import json
import os
import subprocess
from itertools import count
from pathlib import Path
from typing import Any

PROFILE = "--user-data-dir={folder}"
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "about:blank")


class Browser:
    """One page; a context manager. Reads its answers from descriptor 4, gives its orders on 3."""

    def __init__(self, program: str, folder: Path) -> None:
        orders, self._orders = os.pipe()
        self._answers, answers = os.pipe()
        # The shell moves the pipe's ends to where the browser looks for them.
        command = f'exec "$@" 3</dev/fd/{orders} 4>/dev/fd/{answers}'
        words = ["sh", "-c", command, "sh", program, PROFILE.format(folder=folder), *OPTIONS]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(words, pass_fds=(orders, answers), stdout=quiet, stderr=quiet)
        os.close(orders)
        os.close(answers)
        self._numbers, self._unread = count(1), b""
        self.events: list[dict[str, Any]] = []
        """What it told unasked, since `open`."""
        targets = self._ask("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self._ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._ask(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._orders)
        os.close(self._answers)
        self._process.kill()
        self._process.wait()

    def open(self, page: Path) -> None:
        """Until the page has loaded."""
        self.events.clear()
        self._ask("Page.navigate", url=page.as_uri())
        while not self.told("Page.loadEventFired"):
            self.events.append(self._message())

    def told(self, method: str) -> list[dict[str, Any]]:
        """The events of that name."""
        return [event["params"] for event in self.events if event.get("method") == method]

    def do(self, script: str) -> Any:
        """What a script in the page comes to. Raises AssertionError with what it raises."""
        answer = self._ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        order: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if hasattr(self, "_session"):
            order["sessionId"] = self._session
        os.write(self._orders, json.dumps(order).encode() + b"\0")
        while (answer := self._message()).get("id") != number:
            self.events.append(answer)
        assert "result" in answer, answer
        return answer["result"]

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            part = os.read(self._answers, 1 << 16)
            assert part, "the browser has ended"
            self._unread += part
        text, _, self._unread = self._unread.partition(b"\0")
        return json.loads(text)
