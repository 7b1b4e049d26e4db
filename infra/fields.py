"""Annotated types for values that Google accepts at preview and refuses only minutes later.

Each carries, in its error, the phrase that a user reads after "allowed:".
"""

from __future__ import annotations

import ipaddress
import re
from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, Field

LABEL_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
LABEL_VALUE = re.compile(r"[a-z0-9_-]{0,63}")
NAME = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
PROJECT = re.compile(r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
# Every region's name is made of these words: https://cloud.google.com/compute/docs/regions-zones
REGION = re.compile(
    r"(africa|asia|australia|europe|me|northamerica|southamerica|us)-"
    r"(central|east|north|northeast|northwest|south|southeast|southwest|west)[0-9]{1,2}"
)
ZONE = re.compile(REGION.pattern + "-[a-z]")
NETWORK = re.compile(r"(projects/[a-z0-9.:-]+/global/networks/)?" + NAME.pattern)
SUBNETWORK = re.compile(
    r"(projects/[a-z0-9.:-]+/regions/(?P<region>[a-z0-9-]+)/subnetworks/)?" + NAME.pattern
)
DIGEST = re.compile(r"[a-z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)+@sha256:[0-9a-f]{64}")
# A token begins with hf_: given in place of a secret's name it would be shown, and stored readable.
SECRET = re.compile(r"(projects/[a-z0-9.:-]+/secrets/)?(?!hf_)[A-Za-z0-9_-]{1,255}")
OBJECT = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
PROHIBITED = [
    ipaddress.IPv4Network(text)
    for text in ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4")
]
# How the engine hands over a time that stands in the YAML file without quotes.
GO_INSTANT = re.compile(r"(\S+) (\S+) ([+-]\d\d)(\d\d) \S+")
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)")
EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")


def _matching(pattern: re.Pattern[str], allowed: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(allowed)
        return value

    return AfterValidator(check)


def _bucket(value: str) -> str:
    if (
        not BUCKET.fullmatch(value)
        or ".." in value
        or value.startswith("goog")
        or "google" in value
        or _is_address(value)
    ):
        raise ValueError(
            "3 to 63 lower-case letters, digits, '-', '_', '.', a letter or digit at both ends, "
            "no 'google' in it (https://cloud.google.com/storage/docs/buckets#naming)"
        )
    return value


def _is_address(value: str) -> bool:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return False
    return True


def _cidr(value: str) -> str:
    try:
        ipaddress.IPv4Network(value)
    except ValueError:
        pass
    else:
        if re.search(r"/\d+$", value):  # neither a bare address nor a netmask
            return value
    raise ValueError("an IPv4 range whose host bits are 0, such as 10.20.0.0/20")


def _own_range(value: str) -> str:
    """A range that a subnetwork can have."""
    found = ipaddress.IPv4Network(_cidr(value))
    if not 8 <= found.prefixlen <= 29 or any(map(found.overlaps, PROHIBITED)):
        raise ValueError(
            "a range of /8 to /29, such as 10.20.0.0/20, apart from those that Google prohibits "
            "(https://cloud.google.com/vpc/docs/subnets#prohibited-ipv4-ranges)"
        )
    return value


def _instant(value: str) -> str:
    value = GO_INSTANT.sub(r"\1T\2\3:\4", value).replace("+00:00", "Z")
    try:
        datetime.fromisoformat(value.replace("Z", "+00:00"))
        valid = INSTANT.fullmatch(value)
    except ValueError:
        valid = None
    if not valid:
        raise ValueError("a time with its zone (RFC 3339), such as 2026-12-01T02:00:00Z")
    return value


BucketName = Annotated[str, AfterValidator(_bucket)]
Cidr = Annotated[str, AfterValidator(_cidr)]
OwnRange = Annotated[str, AfterValidator(_own_range)]
Instant = Annotated[str, AfterValidator(_instant)]
LabelKey = Annotated[
    str,
    _matching(
        LABEL_KEY, "a key of at most 63 lower-case letters, digits, '_', '-', first a letter"
    ),
]
LabelValue = Annotated[
    str,
    _matching(LABEL_VALUE, "at most 63 lower-case letters, digits, '_', '-'"),
]
NetworkName = Annotated[
    str,
    _matching(NETWORK, "a name, or the full path projects/PROJECT/global/networks/NAME"),
]
SubnetworkName = Annotated[
    str,
    _matching(
        SUBNETWORK, "a name, or the full path projects/PROJECT/regions/REGION/subnetworks/NAME"
    ),
]
RangeName = Annotated[
    str, _matching(NAME, "the name of a secondary range: lower-case letters, digits, '-'")
]
ImageReference = Annotated[
    str, _matching(DIGEST, "an image by digest, HOST/PATH@sha256:64 hex digits; a tag can move")
]
Recurrence = Annotated[
    str,
    _matching(
        re.compile(r"FREQ=(DAILY|WEEKLY)(;[A-Z]+=[A-Z0-9,+-]+)*"),
        "a rule of RFC 5545 that begins with FREQ=DAILY or FREQ=WEEKLY",
    ),
]
SecretName = Annotated[
    str,
    _matching(
        SECRET,
        "the name of a Secret Manager secret, or projects/PROJECT/secrets/NAME; never the token",
    ),
]
Email = Annotated[str, _matching(EMAIL, "an e-mail address")]
RunName = Annotated[
    str,
    _matching(
        re.compile(r"[a-z]([a-z0-9-]{0,34}[a-z0-9])?"),
        "at most 36 lower-case letters, digits, '-', first a letter, last no '-'",
    ),
]
# Both end up in names and labels of the cluster's objects. KubeRay takes 53 characters for a
# RayCluster, of which 11 are the hash of its content.
QueueName = Annotated[
    str,
    _matching(OBJECT, "at most 63 lower-case letters, digits, '-', no '-' at either end"),
]
ClusterName = Annotated[
    str,
    _matching(
        re.compile(r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?"),
        "at most 42 lower-case letters, digits, '-', first a letter, last no '-'",
    ),
]
Days = Annotated[int, Field(ge=1, le=3650)]
