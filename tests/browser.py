"""A headless Chromium, driven over a pipe by the DevTools protocol: no package, no port.

https://chromedevtools.github.io/devtools-protocol/
"""

import base64
import json
import os
import select
import shutil
import subprocess
import time

from waiting import PATIENCE

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def executable():
    """Return the browser's path; None without one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One process of the browser, with a profile of its own.

    Parameters
    ----------
    path : str
    profile : path
        An empty folder.
    """

    def __init__(self, path, profile):
        self.count, self.events, self.rest = 0, [], b""
        to_us, theirs_out = os.pipe()
        theirs_in, from_us = os.pipe()
        options = ["--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run"]
        options += ["--disable-dev-shm-usage", "--disable-extensions", "--mute-audio"]
        # a wheel has turned the page when it has turned
        options += ["--disable-smooth-scrolling"]
        # containers have no sandbox to give, and the pages are our own
        options += ["--no-sandbox", f"--user-data-dir={profile}"]
        # it reads its orders from 3 and answers on 4
        plumbing = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self.process = subprocess.Popen(
            ["bash", "-c", plumbing, "browser", path, *options, "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"HOME": str(profile)},
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.reading, self.writing = to_us, from_us

    def close(self):
        """End the process."""
        self.call("Browser.close")
        self.process.wait(PATIENCE)
        os.close(self.reading)
        os.close(self.writing)

    def call(self, method, session=None, **parameters):
        """Send an order; return its result when it comes."""
        self.count += 1
        order = {"id": self.count, "method": method, "params": parameters}
        order |= {"sessionId": session} if session else {}
        os.write(self.writing, json.dumps(order).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.count:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, method, session):
        """Return the parameters of the next event of a kind, or of one that has come already."""
        while True:
            for event in self.events:
                if event.get("method") == method and event.get("sessionId") == session:
                    return event["params"]
            self.events.append(self._next())

    def _next(self):
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.reading], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            some = os.read(self.reading, 1 << 20)
            assert some, "the browser has ended"
            self.rest += some
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)


class Tab:
    """A page that is open.

    Parameters
    ----------
    browser : Browser
    address : str
    width, height : int
        Of the screen, in CSS pixels.
    dark, touch, scripts : bool
        Of the theme that the reader likes; whether there are fingers; whether scripts may run.
    """

    def __init__(
        self, browser, address, width=1200, height=900, *, dark=False, touch=False, scripts=True
    ):
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        found = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self.target, self.session = target, found["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self(f"{domain}.enable")
        screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": touch}
        self("Emulation.setDeviceMetricsOverride", **screen)
        self("Emulation.setTouchEmulationEnabled", enabled=touch)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self("Emulation.setEmulatedMedia", media="", features=[scheme])
        self("Emulation.setScriptExecutionDisabled", value=not scripts)
        self("Page.navigate", url=address)
        browser.wait_for("Page.loadEventFired", self.session)

    def __call__(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def ask(self, expression):
        """Return the value of an expression in the page's language."""
        method = {"returnByValue": True, "awaitPromise": True}
        answer = self("Runtime.evaluate", expression=expression, **method)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def close(self):
        """Close the page."""
        self.browser.call("Target.closeTarget", targetId=self.target)

    def complaints(self):
        """Return what the page wrote on its console, and its errors."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [event["params"] for event in self._events() if event["method"] in kinds]

    def requests(self):
        """Return the addresses that the page asked for."""
        events = [e for e in self._events() if e["method"] == "Network.requestWillBeSent"]
        return [event["params"]["request"]["url"] for event in events]

    def _events(self):
        # an answer comes after all events before it
        self.ask("1")
        return [event for event in self.browser.events if event.get("sessionId") == self.session]

    def mouse(self, kind, x, y, **more):
        """Move, press, release or turn the wheel of a mouse."""
        self("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def touch(self, kind, *points):
        """Put fingers down, move them, lift them."""
        fingers = [{"x": x, "y": y, "id": k} for k, (x, y) in enumerate(points)]
        self("Input.dispatchTouchEvent", type=kind, touchPoints=fingers)

    def key(self, key, code=None):
        """Press a key and let it go."""
        more = {"key": key, "code": code or key}
        text = {"text": key} if len(key) == 1 else {}
        self("Input.dispatchKeyEvent", type="keyDown", **more, **text)
        self("Input.dispatchKeyEvent", type="keyUp", **more)

    def screenshot(self, path, whole=True):
        """Write a PNG of the screen, or of the whole page."""
        shot = self("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def pdf(self, path):
        """Print to a file."""
        path.write_bytes(base64.b64decode(self("Page.printToPDF", printBackground=True)["data"]))
