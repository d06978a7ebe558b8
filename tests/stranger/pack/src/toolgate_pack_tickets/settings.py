"""The table [packs.tickets], and what it says about secrets, hosts and keys."""

from urllib.parse import urlsplit

from toolgate.model.tool import Hosts

USE = "ticket-stamps"
SETTINGS = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "url": {
            "type": "string",
            "maxLength": 200,
            "pattern": "^https://[a-z0-9.:-]+$",
            "default": "https://tracker.example",
            "description": "Where the tracker is.",
        },
        "token": {
            "type": "string",
            "maxLength": 200,
            "default": "file:tracker-token",
            "description": "Where the tracker's token is kept: env:NAME or file:NAME.",
        },
        "stamp_key": {
            "type": "string",
            "maxLength": 100,
            "default": "tickets.key",
            "description": "Name of the key that stamps notes.",
        },
    },
}


def secrets(settings):
    return [settings["token"]]


def hosts(settings):
    return Hosts(named=[urlsplit(settings["url"]).netloc])


def keys(settings):
    return {settings["stamp_key"]: USE}
