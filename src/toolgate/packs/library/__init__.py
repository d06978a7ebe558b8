"""Full-text search over the workspace's papers, decision records and Markdown: document 002's search example, made useful."""

from __future__ import annotations

from typing import Final

from toolgate.model.tool import Pack
from toolgate.packs.library.tools import FETCH, SEARCH

PACK: Final = Pack(name="library", tools=(FETCH, SEARCH))
