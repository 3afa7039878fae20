"""Pages of the site that lie outside docs/, the table of options, and links as the site needs them (mkdocs.yml)."""

import os.path
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "config/README.md": "configuration.md", "profiles/README.md": "profiles.md"}
PAGES |= {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "config/options.yaml": "options.md"}
PAGES["studies/README.md"] = "studies_here.md"
SOURCES = {page: source for source, page in PAGES.items()}
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files, config):
    """Add the pages that lie elsewhere in the repository."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        if source.endswith(".yaml"):
            text = f"# Options\n\n`config/options.yaml`: every option and its default.\n\n```yaml\n{text}```\n"
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Let links to files lead to their pages, or to the repository; text remains where that has no address."""
    own = page.file.src_uri
    source = SOURCES.get(own, f"docs/{own}")

    def link(found):
        image, text, target, anchor = found.groups("")
        path = os.path.normpath(os.path.join(os.path.dirname(source), target))
        inside = PAGES.get(path) or path.removeprefix("docs/")
        if files.get_file_from_path(inside):
            return f"{image}[{text}]({os.path.relpath(inside, os.path.dirname(own) or '.')}{anchor})"
        repository = config.extra["repository"]
        return f"{image}[{text}]({repository.rstrip('/')}/{path})" if repository else text

    return LINK.sub(link, markdown)
