"""A browser for pages: chromium by chromedriver's HTTP interface; skipped if absent."""

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest


class Browser:
    """A headless chromium that keeps its console and its network log."""

    def __init__(self, port: int) -> None:
        self._root = f"http://127.0.0.1:{port}"
        options = {
            "args": [
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
            ]
        }
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        self._session = self._post("/session", {"capabilities": {"alwaysMatch": wanted}})[
            "sessionId"
        ]

    def _post(self, path: str, body: dict | None) -> object:
        data = None if body is None else json.dumps(body).encode()
        kind = "DELETE" if body is None else "POST"
        request = urllib.request.Request(
            self._root + path, data, {"Content-Type": "application/json"}, method=kind
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())["value"]

    def call(self, path: str, body: dict) -> object:
        return self._post(f"/session/{self._session}{path}", body)

    def command(self, name: str, **params: object) -> dict:
        return self.call("/goog/cdp/execute", {"cmd": name, "params": params})

    def open(self, file, width: int = 1100, scheme: str = "light") -> None:
        """Show a file at a width in CSS pixels; logs start anew."""
        phone = width < 500
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=800,
            deviceScaleFactor=1,
            mobile=phone,
        )
        self.command(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": scheme}],
        )
        self.console(), self.requests()
        self.call("/url", {"url": f"file://{file}"})

    def evaluate(self, script: str) -> object:
        return self.call("/execute/sync", {"script": f"return {script}", "args": []})

    def console(self) -> list[str]:
        return [entry["message"] for entry in self.call("/se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        events = [
            json.loads(row["message"])["message"]
            for row in self.call("/se/log", {"type": "performance"})
        ]
        return [
            e["params"]["request"]["url"]
            for e in events
            if e["method"] == "Network.requestWillBeSent"
        ]

    def screenshot(self) -> bytes:
        return base64.b64decode(
            self.command("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        )

    def pdf(self) -> bytes:
        return base64.b64decode(
            self.command("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"]
        )

    def close(self) -> None:
        self._post(f"/session/{self._session}", None)


@pytest.fixture(scope="session")
def browser():
    driver = shutil.which("chromedriver")
    if driver is None or shutil.which("chromium") is None:
        pytest.skip("needs chromium and chromedriver")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen(
        [driver, f"--port={port}", "--log-level=OFF"], stdout=subprocess.DEVNULL
    ) as process:
        try:
            opened = _connected(port)
            yield opened
            opened.close()
        finally:
            process.terminate()


def _connected(port: int) -> Browser:
    for _ in range(100):
        try:
            return Browser(port)
        except (ConnectionError, urllib.error.URLError):
            time.sleep(0.1)
    raise TimeoutError("chromedriver does not answer")
