"""The few words that the page itself says, in the paper's language: English, German, French, Spanish; else English.

What the page's scripts say is a released part of them (`words-de.js`): a badge's words must not be the author's to choose.
"""

from __future__ import annotations

from typing import Final

from toolgate.packs.lra.paper.metadata import MONTHS

THEOREMS: Final = {
    "theorem": "thm", "lemma": "lem", "corollary": "cor", "proposition": "prp", "definition": "def", "example": "exm",
    "remark": "rem", "conjecture": "cnj", "assumption": "asm", "exercise": "exr", "algorithm": "alg",
}  # fmt: skip
"""Classes of a fenced block that is numbered like a theorem, with the prefix of its label."""
CALLOUTS: Final = ("note", "tip", "important", "warning", "caution")
_ENGLISH: Final = {
    "fig": "Figure", "tbl": "Table", "eq": "Equation", "sec": "Section", "lst": "Listing", "app": "Appendix",
    "clm": "Claim", "abstract": "Abstract", "claims": "Claims", "references": "References", "proof": "Proof",
    "none-cited": "This paper cites no other work.", "evidence": "evidence", "of-claim": "evidence of claim",
    "equation": "Equation", "back": "back to the text", "note-ref": "note",
    "skip": "Skip to the abstract", "contents": "Contents", "cite": "How to cite", "copy": "Copy BibTeX", "dark": "Dark",
    "standard": "Standard", "licence": "Licence", "machine": "Machine-readable citation", "demo": "Demo",
    "no-script": "This part runs in a browser with JavaScript; the text does not need it.",
    "code-picture": "Picture made by the code above",
    "date": "{day} {month} {year}",
    **{prefix: name.capitalize() for name, prefix in THEOREMS.items()},
    **{name: name.capitalize() for name in CALLOUTS},
}  # fmt: skip
_WORDS: Final = {
    "de": {
        "skip": "Zur Zusammenfassung springen", "contents": "Inhalt", "cite": "Zitieren", "copy": "BibTeX kopieren",
        "dark": "Dunkel", "standard": "Standard", "licence": "Lizenz", "machine": "Maschinenlesbares Zitat", "demo": "Vorführung",
        "no-script": "Dieser Teil läuft in einem Browser mit JavaScript; der Text braucht es nicht.",
        "code-picture": "Bild, das der Code darüber erzeugt hat",
        "date": "{day}. {month} {year}",
        "fig": "Abbildung", "tbl": "Tabelle", "eq": "Gleichung", "sec": "Abschnitt", "lst": "Listing", "app": "Anhang",
        "clm": "Aussage", "abstract": "Zusammenfassung", "claims": "Aussagen", "references": "Literatur", "proof": "Beweis",
        "none-cited": "Diese Arbeit zitiert keine andere.", "evidence": "Beleg", "of-claim": "Beleg zu Aussage",
        "equation": "Gleichung", "back": "zurück zum Text", "note-ref": "Anmerkung",
        "thm": "Satz", "lem": "Lemma", "cor": "Korollar", "prp": "Proposition", "def": "Definition", "exm": "Beispiel",
        "rem": "Bemerkung", "cnj": "Vermutung", "asm": "Annahme", "exr": "Aufgabe", "alg": "Algorithmus",
        "note": "Hinweis", "tip": "Tipp", "important": "Wichtig", "warning": "Warnung", "caution": "Vorsicht",
    },
    "fr": {
        "skip": "Aller au résumé", "contents": "Sommaire", "cite": "Comment citer", "copy": "Copier BibTeX", "dark": "Sombre",
        "standard": "Norme", "licence": "Licence", "machine": "Citation lisible par machine", "demo": "Démonstration",
        "no-script": "Cette partie s’exécute dans un navigateur avec JavaScript ; le texte s’en passe.",
        "code-picture": "Image produite par le code ci-dessus",
        "date": "{day} {month} {year}",
        "fig": "Figure", "tbl": "Tableau", "eq": "Équation", "sec": "Section", "lst": "Listing", "app": "Annexe",
        "clm": "Affirmation", "abstract": "Résumé", "claims": "Affirmations", "references": "Références",
        "proof": "Démonstration",
        "none-cited": "Cet article ne cite aucun autre travail.", "evidence": "preuve", "of-claim": "preuve de l’affirmation",
        "equation": "Équation", "back": "retour au texte", "note-ref": "note",
        "thm": "Théorème", "lem": "Lemme", "cor": "Corollaire", "prp": "Proposition", "def": "Définition", "exm": "Exemple",
        "rem": "Remarque", "cnj": "Conjecture", "asm": "Hypothèse", "exr": "Exercice", "alg": "Algorithme",
        "note": "Note", "tip": "Conseil", "important": "Important", "warning": "Avertissement", "caution": "Attention",
    },
    "es": {
        "skip": "Ir al resumen", "contents": "Contenido", "cite": "Cómo citar", "copy": "Copiar BibTeX", "dark": "Oscuro",
        "standard": "Norma", "licence": "Licencia", "machine": "Cita legible por máquina", "demo": "Demostración",
        "no-script": "Esta parte se ejecuta en un navegador con JavaScript; el texto no lo necesita.",
        "code-picture": "Imagen producida por el código de arriba",
        "date": "{day} de {month} de {year}",
        "fig": "Figura", "tbl": "Tabla", "eq": "Ecuación", "sec": "Sección", "lst": "Listado", "app": "Apéndice",
        "clm": "Afirmación", "abstract": "Resumen", "claims": "Afirmaciones", "references": "Referencias",
        "proof": "Demostración",
        "none-cited": "Este artículo no cita otros trabajos.", "evidence": "prueba", "of-claim": "prueba de la afirmación",
        "equation": "Ecuación", "back": "volver al texto", "note-ref": "nota",
        "thm": "Teorema", "lem": "Lema", "cor": "Corolario", "prp": "Proposición", "def": "Definición", "exm": "Ejemplo",
        "rem": "Observación", "cnj": "Conjetura", "asm": "Hipótesis", "exr": "Ejercicio", "alg": "Algoritmo",
        "note": "Nota", "tip": "Consejo", "important": "Importante", "warning": "Advertencia", "caution": "Precaución",
    },
}  # fmt: skip
_MONTHS: Final = {
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
}

OTHERS: Final = frozenset(_WORDS)
"""Languages beside English."""


def word(lang: str, key: str) -> str:
    return _WORDS.get(base(lang), _ENGLISH).get(key, _ENGLISH.get(key, key))


def long_date(lang: str, date: str) -> str:
    """`2026-11-15` as people write it."""
    year, month, day = date.split("-")
    names = _MONTHS[base(lang)].split() if base(lang) in _MONTHS else MONTHS
    first = "1er" if base(lang) == "fr" and int(day) == 1 else str(int(day))
    return word(lang, "date").format(day=first, month=names[int(month) - 1], year=year)


def base(lang: str) -> str:
    return lang.partition("-")[0].lower()
