"""A page of ours, opened in a headless browser: what a script beside it sees, and that the console stays empty."""

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

HERE = r"(file|data|blob):|http://127\.0\.0\.1:"
QUIET = "--disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update"
QUIET += " --disable-sync"


def look(page: Path, folder: Path, width: int, script: str) -> dict[str, str]:
    """Open a page in a frame of some width, with every part of it unfolded, and run a script beside it.

    It runs once the page has been laid out anew, and has `page`, the frame's document, and `out`, whose attributes are
    returned; `width` is how wide the page came out. `folder`: an empty one, to work in.
    """
    (folder / "page.html").write_bytes(page.read_bytes())
    (folder / "frame.html").write_text(
        f"""<!doctype html><body style="margin:0">
        <iframe src="page.html" style="width:{width}px;height:800px;border:0"></iframe>
        <script>onload = () => {{
          const page = document.querySelector("iframe").contentDocument, out = document.body.dataset;
          page.querySelectorAll("details").forEach(part => part.open = true);
          setTimeout(() => {{
            out.width = page.documentElement.scrollWidth;
            {script}
          }}, 300);
        }}</script></body>"""
    )
    options = ["--headless", "--no-sandbox", *QUIET.split(), "--enable-logging=stderr", "--window-size=1400,900"]
    options += ["--allow-file-access-from-files", f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=5000"]
    command = [_installed(), *options, "--dump-dom", (folder / "frame.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr
    return dict(re.findall(r'data-(\w+)="([^"]*)"', re.search(r"<body[^>]*>", done.stdout)[0]))


@contextlib.contextmanager
def running() -> Iterator[Browser]:
    """A headless browser that tests drive."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_installed(), args=["--no-sandbox", *QUIET.split()])
        yield browser
        browser.close()


@contextlib.contextmanager
def driven(chromium: Browser, width: int = 1280) -> Iterator[Page]:
    """A page of a browser; at the end nothing has been complained of, and nothing outside asked for."""
    with contextlib.closing(chromium.new_context(viewport={"width": width, "height": 900})) as context:
        page, wrong = context.new_page(), []
        page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda asked: None if re.match(HERE, asked.url) else wrong.append(asked.url))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        yield page
        assert wrong == []


def _installed() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("there is no chromium to open the page in")
    return found
