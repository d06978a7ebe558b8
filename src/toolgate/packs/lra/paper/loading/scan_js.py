"""What a script loads: literals at the places where JavaScript loads something, with line and column.

A lexer, not a parser: it knows strings, templates, comments and regular expressions apart, so an address in a comment
or in data is nothing, and a call whose address is computed is undecidable rather than clean.

Time is linear in the text whatever it holds: patterns do not backtrack, and no character is read for more than a few words.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Kind = Literal["literal", "prefix", "dynamic"]


class JsLoad(Struct, frozen=True):
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


_END: Final = _Token("end", ";", 0)


# Possessive repeats: no backtracking. A byte order mark is white space to JavaScript, and not to Python.
_LEXER: Final = re.compile(
    r"""
      (?P<skip>(?:[\s\ufeff]++|//[^\n\u2028\u2029]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?)++)
    | (?P<string>"(?:[^"\\\n]++|\\[\s\S])*+"?|'(?:[^'\\\n]++|\\[\s\S])*+'?)
    | (?P<word>[\w$]++|\\u[0-9a-fA-F{}]++)
    | (?P<punct>\?\.|=>|[=!]==?|\S)
    """,
    re.VERBOSE,
)
_SPAN: Final = re.compile(
    r"""//[^\n\u2028\u2029]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?|"(?:[^"\\\n]++|\\[\s\S])*+"?|'(?:[^'\\\n]++|\\[\s\S])*+'?|[`/{}]"""
)
"""Where something begins that is not code, or a brace that may end a substitution."""
_CONSTANT: Final = re.compile(r"""(?<![\w$])const\s++([\w$]++)\s*+=\s*+("[^"\n]*+"|'[^'\n]*+')[^\S\n]*+[;,\n}]""")
_MAX_CONSTANT: Final = 2048
"""Characters: longer texts are not addresses, and each use of one is looked at as a whole."""
_TEMPLATE: Final = re.compile(r"(?:[^`\\$]++|\\[\s\S]|\$(?!\{))*+(?:`|\$\{)?")
_REGEX_MARKS: Final = re.compile(r"\\[^\n]|[/\[\]\n]")
_REGEX_FLAGS: Final = re.compile(r"[a-z]*+")
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
    r"(?<![\w$])(?:"
    + "|".join([*_CALLS, "open", "src", "setAttribute", "eval", "Function", "export"])
    + r")(?![\w$])|\\u[0-9a-fA-F{}]++"
)
"""Whole names only: each is a token of its own, so no two of them read the same long name."""
_METHODS: Final = frozenset({"GET", "POST", "PUT", "HEAD", "DELETE", "PATCH", "OPTIONS"})
_IN_IMPORT: Final = frozenset({",", "*", "{", "}"})
_NO_IMPORT: Final = frozenset({"function", "class", "const", "let", "var", "default", "import", "export"})
"""Words that begin another statement, unless they stand in braces, where they are names."""
_MAX_IMPORT_TOKENS: Final = 200
"""A list of imported names is shorter than this, or the statement is none."""
_PASSED_ON: Final = frozenset({"request"})
"""`fetch(event.request)`: a service worker passes on what the page itself asked for."""


def loads(code: str) -> list[JsLoad]:
    """Every load in the order of the text."""
    words = list(_WORDS.finditer(code))
    if not words:
        return []
    regexes = _Regexes(code)
    hidden = _not_code(code, regexes)
    starts = [start for start, _ in hidden]
    found: list[JsLoad] = []
    constants: dict[str, str] | None = None
    for word in words:
        if _is_hidden(word.start(), hidden, starts):
            continue
        if constants is None:
            constants = _string_constants(code, hidden, starts)
        found.extend(_at_word(_before(code, word.start()), _Ahead(code, word.start(), regexes), constants))
    return found


def _is_hidden(offset: int, hidden: Sequence[tuple[int, int]], starts: Sequence[int]) -> bool:
    at = bisect_right(starts, offset) - 1
    return at >= 0 and offset < hidden[at][1]


class _Regexes:
    """Where a regular expression that begins at a slash ends. All of them in one pass, from the end of the text."""

    def __init__(self, code: str) -> None:
        self._code = code
        self._places: array[int] | None = None
        self._ends: array[int] = array("q")
        """For each mark: the slash that ends an expression which reads from here on, outside of brackets; or -1."""

    def end(self, slash: int) -> int | None:
        if self._places is None:
            self._places, self._ends = self._read()
        at = bisect_right(self._places, slash)
        closing = self._ends[at]
        if closing < 0:
            return None
        flags = _REGEX_FLAGS.match(self._code, closing + 1)
        return flags.end() if flags else closing + 1

    def _read(self) -> tuple[array[int], array[int]]:
        """What a backslash escapes is not a mark. It is the same character for every expression around it."""
        places = array(
            "q", (match.start() for match in _REGEX_MARKS.finditer(self._code) if match.end() - match.start() == 1)
        )
        ends = array("q", [-1]) * (len(places) + 1)
        bracket = -1  # the next `]` of this line
        for at in range(len(places) - 1, -1, -1):
            mark = self._code[places[at]]
            if mark == "/":
                ends[at] = places[at]
            elif mark == "]":
                bracket, ends[at] = at, ends[at + 1]
            elif mark == "[":
                ends[at] = ends[bracket + 1] if bracket >= 0 else -1
            else:
                bracket = -1
        return places, ends


def _not_code(code: str, regexes: _Regexes) -> list[tuple[int, int]]:
    """Strings, comments, regular expressions and the text of templates, as spans in order."""
    spans: list[tuple[int, int]] = []
    position = 0
    braces: list[int] = []  # open braces inside each `${` that is not closed yet
    while match := _SPAN.search(code, position):
        start, position = match.span()
        first = match[0][0]
        if first == "`" or (first == "}" and braces and braces[-1] == 0):
            _, position = _template(code, start, braces)
        elif first in "{}":
            if braces:
                braces[-1] += 1 if first == "{" else -1
            continue
        elif match[0] == "/":
            end = regexes.end(start) if _regex_may_start(_before(code, start)) else None
            if end is None:
                continue
            position = end
        spans.append((start, position))
    return spans


def _before(code: str, offset: int) -> str:
    """The token that ends before `offset`, white space skipped: a word, `?.` or one character."""
    end = offset
    while end and (code[end - 1].isspace() or code[end - 1] == "\ufeff"):
        end -= 1
    if not end:
        return ";"
    start = end - 1
    if code[start].isalnum() or code[start] in "_$":
        while start and (code[start - 1].isalnum() or code[start - 1] in "_$"):
            start -= 1
        return code[start:end]
    return "?." if code[max(0, end - 2) : end] == "?." else code[start]


class _Ahead:
    """The tokens from a word on, read only as far as somebody looks."""

    def __init__(self, code: str, offset: int, regexes: _Regexes) -> None:
        self._source = _lex(code, offset, regexes)
        self._tokens: list[_Token] = []

    def __getitem__(self, index: int) -> _Token:
        while len(self._tokens) <= index:
            token = next(self._source, None)
            if token is None:
                return _END
            self._tokens.append(token)
        return self._tokens[index]


def _lex(code: str, position: int, regexes: _Regexes) -> Iterator[_Token]:
    """Tokens from a place that is code."""
    braces: list[int] = []
    last = _END
    while position < len(code):
        char = code[position]
        if char == "`" or (char == "}" and braces and braces[-1] == 0):
            token, position = _template(code, position, braces)
        elif (
            char == "/"
            and code[position : position + 2] not in ("//", "/*")
            and _regex_may_start(last.text)
            and (end := regexes.end(position))
        ):
            token, position = _Token("regex", code[position:end], position), end
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


def _regex_may_start(last: str) -> bool:
    """After an operator or a keyword a slash begins a regular expression, after a value it divides."""
    if last[0].isalnum() or last[0] in "_$":
        return last in _BEFORE_REGEX
    return last not in _VALUE_ENDS


def _string_constants(code: str, hidden: Sequence[tuple[int, int]], starts: Sequence[int]) -> dict[str, str]:
    """`const NAME = "literal";`: names that stand for one address in the whole file."""
    found: dict[str, str] = {}
    for match in _CONSTANT.finditer(code):
        if not _is_hidden(match.start(), hidden, starts) and len(match[2]) <= _MAX_CONSTANT:
            found.setdefault(match[1], _value(_Token("string", match[2], match.start(2))))
    return found


def _at_word(before: str, ahead: _Ahead, constants: dict[str, str]) -> Iterator[JsLoad]:
    word, after = ahead[0], ahead[1].text
    if word.text in _CALLS and after == "(" and before != "function":
        yield from _argument(ahead, 2, constants)
        if word.text == "importScripts":
            yield from _further_scripts(ahead)
    elif word.text in ("import", "export") and before != ".":
        yield from _module_source(ahead)
    elif word.text == "open" and before in (".", "?.") and after == "(":
        yield from _request_address(ahead, constants)
    elif word.text == "src" and before in (".", "?.") and after == "=":
        yield from _argument(ahead, 2, constants)
    elif word.text == "setAttribute" and after == "(" and _text(ahead[2]) == "src":
        yield from _argument(ahead, 4, constants)
    elif word.text == "eval" and after == "(" and before != ".":
        yield JsLoad("dynamic", "eval", "", word.offset)
    elif word.text == "Function" and after == "(":
        yield JsLoad("dynamic", "Function", "", word.offset)
    elif word.text == "fetch" and before not in (".", "?.", "function", "async") and after not in (":", "(", "?."):
        yield JsLoad("dynamic", "fetch", "", word.offset)
    elif word.text.startswith("\\u"):
        yield JsLoad("dynamic", "escaped name", "", word.offset)


def _argument(ahead: _Ahead, start: int, constants: dict[str, str]) -> Iterator[JsLoad]:
    """Classify the expression at `start`, an address."""
    what = ahead[0].text
    is_code = _CALLS.get(what, False)
    first, following = ahead[start], ahead[start + 1]
    ends = following.text in (",", ")", ";", "}") or following.kind in ("word", "end")
    if first.kind == "string":
        kind: Kind = "literal" if ends else "prefix"
        yield JsLoad(kind, what, _value(first), first.offset, is_code)
    elif first.kind == "head":
        yield JsLoad("prefix", what, _value(first), first.offset, is_code)
    elif first.kind == "word" and ends and first.text in constants:
        yield JsLoad("literal", what, constants[first.text], first.offset, is_code)
    elif first.kind == "end" or first.text in (")", "new") or what in _ANY_OBJECT or _is_passed_on(ahead, start):
        return  # `new Request("…")` is judged where it stands
    else:
        yield JsLoad("dynamic", what, "", first.offset, is_code)


def _further_scripts(ahead: _Ahead) -> Iterator[JsLoad]:
    """`importScripts("a.js", "b.js")`: every argument is loaded. Behind one that is computed, nobody knows what follows."""
    at = 3
    while ahead[at].text not in (")", ";") and ahead[at].kind != "end":
        if ahead[at].text == "(":
            yield JsLoad("dynamic", ahead[0].text, "", ahead[at].offset, is_module=True)
            return
        if ahead[at].text == ",":
            yield from _argument(ahead, at + 1, {})
        at += 1


def _is_passed_on(ahead: _Ahead, start: int) -> bool:
    """A name or a member chain that ends in `request`."""
    index = start
    while ahead[index].kind == "word" and ahead[index + 1].text in (".", "?."):
        index += 2
    return ahead[index].text in _PASSED_ON and ahead[index + 1].text in (",", ")")


def _module_source(ahead: _Ahead) -> Iterator[JsLoad]:
    """`import "x"`, `import a, {b} from "x"`, `export * from "x"`."""
    inside = False
    for at in range(1, _MAX_IMPORT_TOKENS):
        token = ahead[at]
        if token.kind == "string" and not inside:
            if at == 1 or ahead[at - 1].text == "from":
                yield JsLoad("literal", "import", _value(token), token.offset, is_module=True)
            return
        if token.text in ("{", "}"):
            if inside is (token.text == "{"):
                return
            inside = not inside
        elif not _may_be_imported(token, inside=inside):
            return


def _may_be_imported(token: _Token, *, inside: bool) -> bool:
    """In braces every word is a name, `default` too, and a name may be a string."""
    if token.kind == "word":
        return inside or token.text not in _NO_IMPORT
    return token.text in _IN_IMPORT or (inside and token.kind == "string")


def _request_address(ahead: _Ahead, constants: dict[str, str]) -> Iterator[JsLoad]:
    """`xhr.open("GET", address)`; other things that open (a window, a database) are not loads of this page."""
    if _text(ahead[2]).upper() in _METHODS and ahead[3].text == ",":
        yield from _argument(ahead, 4, constants)


def _text(token: _Token) -> str:
    return _value(token) if token.kind == "string" else ""


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
        return chr(number) if number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF else "\ufffd"
    return {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "0": "\0", "\n": "", "\r\n": ""}.get(
        plain, plain
    )
