"""Wrap paragraphs of Markdown with a line of more than 120 characters: `prose.py PAGE...`. Code and tables stay."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

WIDTH = 120
ITEM = re.compile(r"(\s*)([-*]|\d+\.) ")
NOT_PROSE = re.compile(r"#|\s*\||\s*$|>|\s*<")


def blocks(text: str) -> list[tuple[bool, list[str]]]:
    """Return groups of lines, each with True for a paragraph or an item of a list."""
    groups: list[tuple[bool, list[str]]] = []
    fenced = False
    for line in text.split("\n"):
        fence = line.lstrip().startswith("```")
        if fenced or fence or NOT_PROSE.match(line):
            groups.append((False, [line]))
            fenced ^= fence
        elif groups and groups[-1][0] and not ITEM.match(line):
            groups[-1][1].append(line)
        else:
            groups.append((True, [line]))
    return groups


def wrapped(lines: list[str]) -> list[str]:
    """Return a paragraph in lines of at most 120 characters. A code span stays in one line."""
    marker = ITEM.match(lines[0])
    indent = marker[0] if marker else lines[0][: -len(lines[0].lstrip())]
    text = " ".join([lines[0][len(indent) :], *(line.strip() for line in lines[1:])])
    text = re.sub(r"`[^`]*`", lambda span: span[0].replace(" ", "\0"), text)
    folded = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\0", " ") for line in folded]


def is_wide(lines: list[str]) -> bool:
    """Return True if a line is too wide and can be broken."""
    return any(len(line) > WIDTH for line in lines) and wrapped(lines) != lines


def main(pages: list[str]) -> None:
    """Rewrite the pages with lines that are too wide."""
    for page in map(Path, pages):
        text = page.read_text()
        lines = [
            line for prose, group in blocks(text) for line in (wrapped(group) if prose and is_wide(group) else group)
        ]
        if "\n".join(lines) != text:
            page.write_text("\n".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
