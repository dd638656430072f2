"""A headless Chromium for tests. It is controlled through its DevTools protocol over two pipes, so no driver is needed."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
TIMEOUT_S = 150


class Browser:
    """A browser with one page. `errors` collects what goes wrong in it: exceptions, console errors, failed requests."""

    def __init__(self) -> None:
        assert PROGRAM is not None
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._next = 0
        self._buffer = b""
        commands_in, self._commands = os.pipe()
        self._answers, answers_out = os.pipe()

        def give_pipes() -> None:  # The browser reads from file descriptor 3 and writes to 4.
            a, b = os.dup(commands_in), os.dup(answers_out)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self._process = subprocess.Popen(
            [PROGRAM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--hide-scrollbars", "--no-first-run", "--remote-debugging-pipe",
             f"--user-data-dir={self._profile.name}", "about:blank"],
            preexec_fn=give_pipes,  # noqa: PLW1509  There are no threads yet.
            close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(commands_in)
        os.close(answers_out)
        self._session: str | None = None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(TIMEOUT_S)
        os.close(self._commands)
        os.close(self._answers)
        self._profile.cleanup()

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = self._read(deadline)
            if answer.get("id") == self._next:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _read(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if time.monotonic() > deadline:
                raise TimeoutError("the browser does not answer")
            self._buffer += os.read(self._answers, 1 << 20)
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"].get("exception", params).get("description")))
        elif event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.errors.append(str(params["args"]))
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.errors.append(params["entry"]["text"])
        elif event.get("method") == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, path: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> float:
        """Opens a page, and returns the seconds until its script has drawn everything."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                  mobile=width < 640)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        begin = time.monotonic()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while self.value("document.documentElement?.dataset.ready") != "yes":
            if time.monotonic() - begin > TIMEOUT_S:
                raise TimeoutError(f"{path} was not drawn; errors: {self.errors}")
        self.value("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        return time.monotonic() - begin

    def value(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"]["description"])
        return answer["result"].get("value")

    def press(self, *keys: str, shift: bool = False) -> None:
        for key in keys:
            text = {"text": key} if len(key) == 1 else {}
            if key == "Enter":
                text = {"text": "\r"}
            for kind in ("keyDown", "keyUp"):
                self.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=8 if shift else 0,
                          windowsVirtualKeyCode={"Tab": 9, "Enter": 13, "Escape": 27}.get(key, 0),
                          **(text if kind == "keyDown" else {}))

    def point(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        image = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(image["data"]))
