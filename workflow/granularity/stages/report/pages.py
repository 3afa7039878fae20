"""How pages of reports and studies are rendered: filters, words, style."""

from pathlib import Path

import jinja2
from markupsafe import Markup

from granularity.base.revision import revision
from granularity.claims.primary import POWER
from granularity.claims.statistics import LEVEL
from granularity.stages.report import series, words
from granularity.stages.report.comparisons import ANSWERS, HOLDS, STANDINGS

HERE = Path(__file__).parent


def environment(folder: Path) -> jinja2.Environment:
    """Return an environment for templates: all text is escaped, and an undefined name is an error."""
    loader = jinja2.FileSystemLoader([folder, HERE])
    strict = {"autoescape": True, "undefined": jinja2.StrictUndefined}
    pages = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, **strict)
    pages.filters |= {name: getattr(words, name) for name in ("listing", "count", "signed", "share", "less")}
    pages.filters |= {"num": words.number, "name": lambda value: value if isinstance(value, str) else "–"}
    pages.globals |= {"series": lambda key: series.describe(key).words, "interval": words.interval}
    pages.globals |= {"level": round(100 * LEVEL), "power": round(100 * POWER), "holds": HOLDS}
    files = ("page.css", "tables.js")
    pages.globals |= {name.replace(".", "_"): Markup((HERE / name).read_text(encoding="utf-8")) for name in files}
    pages.globals |= {"revision": revision()}
    pages.globals |= {"standings": STANDINGS, "answers": ANSWERS}
    return pages
