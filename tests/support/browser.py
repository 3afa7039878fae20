"""A page of ours, opened in a headless browser: what a script beside it sees, and that the console stays empty."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

QUIET = "--disable-gpu --no-first-run --disable-background-networking --disable-component-update --disable-sync"


def look(page: Path, folder: Path, width: int, script: str) -> dict[str, str]:
    """Open a page in a frame of some width, with every part of it unfolded, and run a script beside it.

    It runs once the page has been laid out anew, and has `page`, the frame's document, and `out`, whose attributes are
    returned; `width` is how wide the page came out. `folder`: an empty one, to work in.
    """
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no chromium to open the page in")
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
    command = [chromium, *options, "--dump-dom", (folder / "frame.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr
    return dict(re.findall(r'data-(\w+)="([^"]*)"', re.search(r"<body[^>]*>", done.stdout)[0]))
