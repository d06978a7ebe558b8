"""What a script loads: literals at the places where JavaScript loads something, with line and column.

A lexer, not a parser: it knows strings, templates, comments and regular expressions apart, so an address in a comment
or in data is nothing, and a call whose address is computed is undecidable rather than clean.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Kind = Literal["literal", "prefix", "dynamic"]


@dataclass(frozen=True, slots=True)
class JsLoad:
    """`literal`: this address. `prefix`: an address that begins so. `dynamic`: only running it would tell."""

    kind: Kind
    what: str
    """The call: `fetch`, `import`, `.src =`."""
    url: str
    offset: int
    is_module: bool = False
    """The address is code that runs too: import, importScripts, Worker, a registered service worker."""


class _Token(NamedTuple):
    kind: str
    text: str
    offset: int


# Possessive repeats: no backtracking, so time is linear in the text whatever it holds.
_LEXER: Final = re.compile(
    r"""
      (?P<skip>(?:\s++|//[^\n\u2028\u2029]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?|<!--[^\n]*+)++)
    | (?P<string>"(?:[^"\\\n]++|\\[\s\S])*+"?|'(?:[^'\\\n]++|\\[\s\S])*+'?)
    | (?P<word>[\w$\u0080-\U0010ffff]++|\\u[0-9a-fA-F{}]++)
    | (?P<punct>\?\.|=>|[=!]==?|\S)
    """,
    re.VERBOSE,
)
_TEMPLATE: Final = re.compile(r"(?:[^`\\$]++|\\[\s\S]|\$(?!\{))*+(?:`|\$\{)?")
_REGEX: Final = re.compile(r"/(?:[^/\\\[\n]++|\\.|\[(?:[^\]\\\n]++|\\.)*+\])++/[a-z]*+")
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}|(\r\n|[\s\S]))")
_VALUE_ENDS: Final = frozenset({")", "]", "}"})
_BEFORE_REGEX: Final = frozenset(
    {"return", "typeof", "case", "in", "of", "do", "else", "void", "delete", "throw", "new", "await", "yield"}
)

_CALLS: Final = {
    "fetch": False,
    "Request": False,
    "WebSocket": False,
    "EventSource": False,
    "Audio": False,
    "sendBeacon": False,
    "importScripts": True,
    "import": True,
    "Worker": True,
    "SharedWorker": True,
    "register": True,
    "addModule": True,
}
"""Calls whose first argument is loaded; True when what arrives is code."""
_ANY_OBJECT: Final = frozenset({"register"})
"""Names too common to suspect: only a literal address tells."""
_WORDS: Final = re.compile(
    r"\b(?:"
    + "|".join([*_CALLS, "XMLHttpRequest", "open", "src", "setAttribute", "eval", "Function", "export"])
    + r")\b"
)
_PASSED_ON: Final = frozenset({"request"})
"""`fetch(event.request)`: a service worker passes on what the page itself asked for."""


def loads(code: str) -> list[JsLoad]:
    """Every load in the order of the text."""
    if not _WORDS.search(code) and "\\u" not in code:
        return []
    tokens = list(_lex(code))
    constants = _string_constants(tokens)
    found: list[JsLoad] = []
    for index, token in enumerate(tokens):
        if token.kind == "word":
            found.extend(_at_word(tokens, index, constants))
    return found


def _lex(code: str) -> Iterator[_Token]:
    position, end = 0, len(code)
    braces: list[int] = []  # open braces inside each `${` that is not closed yet
    last = _Token("punct", ";", 0)
    while position < end:
        char = code[position]
        if char == "`" or (char == "}" and braces and braces[-1] == 0):
            token, position = _template(code, position, braces)
        elif char == "/" and _regex_may_start(last) and (match := _REGEX.match(code, position)):
            token, position = _Token("regex", match[0], position), match.end()
        else:
            match = _LEXER.match(code, position)
            assert match is not None  # every character is white space or not
            position = match.end()
            if match.lastgroup == "skip":
                continue
            token = _Token(match.lastgroup or "", match[0], match.start())
            if braces and token.text in "{}":
                braces[-1] += 1 if token.text == "{" else -1
        last = token
        yield token


def _template(code: str, position: int, braces: list[int]) -> tuple[_Token, int]:
    """One piece of a template literal: head or whole (`` `…``), or what follows a substitution (`}…`)."""
    opening = code[position]
    match = _TEMPLATE.match(code, position + 1)
    assert match is not None  # the pattern also matches nothing
    if opening == "}":
        braces.pop()
    kind = "tail"
    if match[0].endswith("${"):
        braces.append(0)
        kind = "head"
    elif opening == "`":
        kind = "string"
    return _Token(kind, opening + match[0], position), match.end()


def _regex_may_start(last: _Token) -> bool:
    if last.kind == "word":
        return last.text in _BEFORE_REGEX
    return last.kind == "punct" and last.text not in _VALUE_ENDS


def _string_constants(tokens: Sequence[_Token]) -> dict[str, str]:
    """`const NAME = "literal";`: names that stand for one address in the whole file."""
    found: dict[str, str] = {}
    for index in range(len(tokens) - 4):
        first, name, equals, value, after = tokens[index : index + 5]
        if first.text == "const" and name.kind == "word" and equals.text == "=" and value.kind == "string":
            ends = after.text in (";", ",") or after.kind == "word"
            if ends and name.text not in found:
                found[name.text] = _value(value)
    return found


def _at_word(tokens: Sequence[_Token], index: int, constants: dict[str, str]) -> Iterator[JsLoad]:
    word = tokens[index]
    before = tokens[index - 1].text if index else ""
    after = tokens[index + 1].text if index + 1 < len(tokens) else ""
    if word.text in _CALLS and after == "(" and before != "function":
        yield from _argument(tokens, index + 2, word, constants)
        if word.text == "importScripts":
            yield from _further_scripts(tokens, index + 3, word)
    elif word.text in ("import", "export") and before != ".":
        yield from _module_source(tokens, index)
    elif word.text == "open" and before in (".", "?.") and after == "(":
        yield from _request_address(tokens, index, constants)
    elif word.text == "src" and before in (".", "?.") and after == "=":
        yield from _argument(tokens, index + 2, word, constants)
    elif word.text == "setAttribute" and after == "(" and _text(tokens, index + 2) == "src":
        yield from _argument(tokens, index + 4, word, constants)
    elif word.text == "eval" and after == "(" and before != ".":
        yield JsLoad("dynamic", "eval", "", word.offset)
    elif word.text == "Function" and after == "(":
        yield JsLoad("dynamic", "Function", "", word.offset)
    elif word.text == "fetch" and before not in (".", "?.", "function", "async") and after not in (":", "(", "?."):
        yield JsLoad("dynamic", "fetch", "", word.offset)
    elif word.text.startswith("\\u"):
        yield JsLoad("dynamic", "escaped name", "", word.offset)


def _argument(tokens: Sequence[_Token], start: int, call: _Token, constants: dict[str, str]) -> Iterator[JsLoad]:
    """Classify the expression at `start`, an address."""
    if start >= len(tokens):
        return
    what, is_code = call.text, _CALLS.get(call.text, False)
    first = tokens[start]
    following = tokens[start + 1].text if start + 1 < len(tokens) else ")"
    ends = following in (",", ")", ";", "}") or tokens[min(start + 1, len(tokens) - 1)].kind == "word"
    if first.kind == "string":
        kind: Kind = "literal" if ends else "prefix"
        yield JsLoad(kind, what, _value(first), first.offset, is_code)
    elif first.kind == "head":
        yield JsLoad("prefix", what, _value(first), first.offset, is_code)
    elif first.kind == "word" and ends and first.text in constants:
        yield JsLoad("literal", what, constants[first.text], first.offset, is_code)
    elif first.text == ")" or what in _ANY_OBJECT or first.text == "new" or _is_passed_on(tokens, start):
        return  # `new Request("…")` is judged where it stands
    else:
        yield JsLoad("dynamic", what, "", first.offset, is_code)


def _further_scripts(tokens: Sequence[_Token], start: int, call: _Token) -> Iterator[JsLoad]:
    """`importScripts("a.js", "b.js")`: every argument is loaded."""
    for at in range(start, len(tokens) - 1):
        if tokens[at].text == ")":
            return
        if tokens[at].text == ",":
            yield from _argument(tokens, at + 1, call, {})


def _is_passed_on(tokens: Sequence[_Token], start: int) -> bool:
    """A name or a member chain that ends in `request`."""
    index = start
    while index + 2 < len(tokens) and tokens[index].kind == "word" and tokens[index + 1].text in (".", "?."):
        index += 2
    ends = index + 1 < len(tokens) and tokens[index + 1].text in (",", ")")
    return ends and tokens[index].text in _PASSED_ON


def _module_source(tokens: Sequence[_Token], index: int) -> Iterator[JsLoad]:
    """`import "x"`, `import a, {b} from "x"`, `export * from "x"`."""
    limit = min(index + 200, len(tokens))
    for at in range(index + 1, limit):
        token = tokens[at]
        if token.kind == "string":
            if at == index + 1 or tokens[at - 1].text == "from":
                yield JsLoad("literal", "import", _value(token), token.offset, is_module=True)
            return
        if token.text in (";", "(", "=", ".", "function", "class", "const", "let", "var", "default"):
            return


def _request_address(tokens: Sequence[_Token], index: int, constants: dict[str, str]) -> Iterator[JsLoad]:
    """`xhr.open("GET", address)`; other things that open (a window, a database) are no loads of this page."""
    method = _text(tokens, index + 2).upper()
    if method in ("GET", "POST", "PUT", "HEAD", "DELETE", "PATCH", "OPTIONS") and _raw(tokens, index + 3) == ",":
        yield from _argument(tokens, index + 4, tokens[index], constants)


def _raw(tokens: Sequence[_Token], index: int) -> str:
    return tokens[index].text if index < len(tokens) else ""


def _text(tokens: Sequence[_Token], index: int) -> str:
    if index < len(tokens) and tokens[index].kind == "string":
        return _value(tokens[index])
    return ""


def _value(token: _Token) -> str:
    """The characters a string token stands for."""
    text = token.text[1:]
    text = text[:-2] if token.kind == "head" else text.removesuffix(token.text[0])
    return _ESCAPE.sub(_unescape, text) if "\\" in text else text


def _unescape(match: re.Match[str]) -> str:
    two, four, braced, plain = match.groups()
    code = two or four or braced
    if code:
        number = int(code, 16)
        return chr(number) if number <= 0x10FFFF else "\ufffd"
    return {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": "", "\r\n": ""}.get(
        plain, plain
    )
