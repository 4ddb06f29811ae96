"""Values against what the official Python client writes and reads, byte for byte."""

from __future__ import annotations

import datetime as dt
import random
import struct
import uuid
from decimal import Decimal
from typing import Any

import pytest
from hazelcast.config import Config, IntType
from hazelcast.core import HazelcastJsonValue
from hazelcast.serialization.api import IdentifiedDataSerializable
from hazelcast.serialization.data import Data
from hazelcast.serialization.service import SerializationServiceV1

from holdfast.aio import Codec, Identified, Serializers
from holdfast.errors import ConfigError, ProtocolError
from holdfast.wire.values import Serialized

ZONE = dt.timezone(dt.timedelta(hours=5, minutes=30))
VALUES: list[Any] = [
    True,
    0,
    -1,
    2**31 - 1,
    1.5,
    "",
    "ünï☃",
    dt.date(2026, 2, 28),
    dt.time(23, 59, 58, 123456),
    dt.datetime(2026, 2, 28, 1, 2, 3, 4, ZONE),
    dt.datetime(1969, 12, 31, tzinfo=dt.UTC),
    uuid.UUID("01020304-0506-0708-090a-0b0c0d0e0f10"),
    Decimal("-12345678901234567890.125"),
    Decimal("1E+5"),
    Decimal(0),
    Decimal(-128),
    Decimal(128),
]


def service(**options: Any) -> SerializationServiceV1:
    config = Config()
    for name, value in options.items():
        setattr(config, name, value)
    return SerializationServiceV1(config)


def theirs(value: object, **options: Any) -> bytes:
    return bytes(service(**options).to_data(value).buffer[4:])


def read_by_them(stored: bytes) -> Any:
    return service().to_object(Data(bytearray(bytes(4) + stored)))


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_plain_values_are_the_same_bytes(value: Any) -> None:
    ours = Serializers()
    assert ours.dump(value) == theirs(value)
    assert ours.load(theirs(value)) == value
    assert read_by_them(ours.dump(value)) == value


def test_decimals_of_all_sizes_are_the_same_bytes() -> None:
    for _ in range(2000):
        value = Decimal(random.randrange(-(2 ** random.randrange(1, 90)), 2 ** random.randrange(1, 90)))
        value = value.scaleb(random.randrange(-9, 9))
        assert Serializers().dump(value) == theirs(value)
        assert Serializers().load(theirs(value)) == value


def test_what_is_written_otherwise_is_read_alike() -> None:
    ours = Serializers()
    assert ours.load(theirs(2**40, default_int_type=IntType.LONG)) == 2**40
    assert ours.dump(2**40) == theirs(2**40, default_int_type=IntType.LONG)
    assert ours.load(theirs(2**80, default_int_type=IntType.BIG_INT)) == 2**80
    assert ours.load(theirs(7, default_int_type=IntType.BYTE)) == 7
    assert ours.load(theirs(-7, default_int_type=IntType.SHORT)) == -7
    assert ours.load(theirs(bytearray(b"\0\1"))) == b"\0\1"
    assert ours.dump(b"\0\1") == theirs(bytearray(b"\0\1"))
    assert ours.load(theirs(HazelcastJsonValue('{"a": [1]}'))) == {"a": [1]}
    assert read_by_them(ours.dump({"a": [1]})).loads() == {"a": [1]}
    assert ours.load(theirs([1, "two", [3.0, None], dt.date(2026, 1, 1)])) == [
        1,
        "two",
        [3.0, None],
        dt.date(2026, 1, 1),
    ]
    nested = [1, "two", [3.0, [Decimal("1.5")]], uuid.UUID(int=1), b"x"]
    written = Serializers(lists="objects").dump(nested)
    assert written == theirs([*nested[:-1], bytearray(b"x")])
    assert ours.load(written) == nested


@pytest.mark.parametrize(
    ("kind", "form", "found"),
    [
        (-13, "??", [True, False]),
        (-15, "hh", [-1, 2]),
        (-16, "ii", [-1, 2]),
        (-17, "qq", [-1, 2]),
        (-18, "ff", [-1.0, 2.0]),
        (-19, "dd", [-1.0, 2.0]),
    ],
)
def test_arrays_of_other_clients_are_read(kind: int, form: str, found: list[Any]) -> None:
    stored = struct.pack(">ii" + form, kind, len(form), *found)
    assert Serializers().load(stored) == found
    assert read_by_them(stored) == found
    with pytest.raises(ProtocolError):
        Serializers().load(stored[:-1])
    with pytest.raises(ProtocolError):
        Serializers().load(struct.pack(">ii", kind, 2**31 - 1))


def test_texts_and_local_moments_of_other_clients_are_read() -> None:
    stored = struct.pack(">iii1si2s", -20, 2, 1, b"a", 2, "ü".encode())
    assert Serializers().load(stored) == read_by_them(stored) == ["a", "ü"]
    moment = struct.pack(">iibbbbbi", -53, 2026, 2, 28, 1, 2, 3, 4000)
    assert (
        Serializers().load(moment)
        == read_by_them(moment)
        == dt.datetime.fromisoformat("2026-02-28T01:02:03.000004")
    )


def test_nothing_executable_is_read_or_written() -> None:
    class Point:
        pass

    class Known(IdentifiedDataSerializable):
        def get_factory_id(self) -> int:
            return 1

        def get_class_id(self) -> int:
            return 2

        def write_data(self, object_data_output: Any) -> None:
            object_data_output.write_int(3)

    pickled = theirs({1, 2})  # A set: the official client pickles it.
    found = Serializers().load(pickled)
    assert isinstance(found, Serialized)
    assert found.type_id == -120
    assert Serializers().dump(found) == pickled
    assert isinstance(Serializers().load(theirs(Known())), Serialized)
    for nothing in (Point(), [Point()], {"a": Point()}, object):
        with pytest.raises(TypeError):
            Serializers().dump(nothing)
    for nan in (Decimal("NaN"), Decimal("Infinity")):
        with pytest.raises(TypeError):
            Serializers().dump(nan)
    mixed = Serializers().load(theirs([1, {2}]))
    assert isinstance(mixed, Serialized), "a list with something in it that only its writer knows"


def test_own_classes() -> None:
    class Point:
        def __init__(self, x: int) -> None:
            self.x = x

    codec = Codec(
        Point, 77, lambda point: struct.pack(">i", point.x), lambda raw: Point(*struct.unpack(">i", raw))
    )
    ours = Serializers([codec])
    assert ours.load(ours.dump(Point(5))).x == 5
    assert ours.dump(Point(5))[:4] == struct.pack(">i", 77)
    for wrong in (Codec(Point, 0, repr, repr), Codec(Point, -11, repr, repr)):  # type: ignore[arg-type]
        with pytest.raises(ConfigError):
            Serializers([wrong])
    with pytest.raises(ConfigError):
        Serializers([codec, codec])


def test_identified_classes_of_other_clients() -> None:
    class Theirs(IdentifiedDataSerializable):
        def __init__(self, x: int = 0) -> None:
            self.x = x

        def get_factory_id(self) -> int:
            return 66

        def get_class_id(self) -> int:
            return 3

        def write_data(self, object_data_output: Any) -> None:
            object_data_output.write_int(self.x)

        def read_data(self, object_data_input: Any) -> None:
            self.x = object_data_input.read_int()

    class Mine:
        def __init__(self, x: int) -> None:
            self.x = x

    form = Identified(
        Mine, 66, 3, lambda mine: struct.pack(">i", mine.x), lambda raw: Mine(*struct.unpack(">i", raw))
    )
    ours = Serializers([form])
    assert ours.load(theirs(Theirs(5))).x == 5
    assert ours.dump(Mine(5)) == theirs(Theirs(5))
    read = service(data_serializable_factories={66: {3: Theirs}}).to_object(
        Data(bytearray(bytes(4) + ours.dump(Mine(6))))
    )
    assert read.x == 6
    with pytest.raises(ProtocolError):
        ours.load(theirs(Theirs(5))[:-1])
    other = Identified(Mine, 66, 4, form.encode, form.decode)
    for wrong in ([form, form], [form, other], [form, Identified(Theirs, 66, 3, form.encode, form.decode)]):
        with pytest.raises(ConfigError):
            Serializers(wrong)
    assert isinstance(Serializers([other]).load(theirs(Theirs(5))), Serialized)


def test_any_bytes_are_a_value_or_broken() -> None:
    ours = Serializers()
    drawn = random.Random(7)
    kinds = [*range(-60, 1), -120, -130]
    for _ in range(20_000):
        stored = struct.pack(">i", drawn.choice(kinds)) + drawn.randbytes(drawn.randrange(24))
        try:
            ours.load(stored)
        except ProtocolError:
            pass
    deep = struct.pack(">ii", -29, 1) * 5000
    assert isinstance(ours.load(deep), Serialized)


KEPT: list[Any] = [
    None,
    b"\0\xff",
    2**40,
    -(2**70),
    float("inf"),
    dt.datetime.fromisoformat("2026-02-28T01:02:03.000004"),
    dt.datetime(2026, 2, 28, tzinfo=ZONE),
    (),
    (1, "two", (3.5, None)),
    {1, 2, 3},
    {(1, 2): "a tuple as a key", "b": {"c": uuid.UUID(int=7)}},
    [1, dt.date(2026, 1, 1), [Decimal("1.50")], (1,), {"x": b"y"}],
    [float("-inf"), {"deep": [float("inf")]}],
    {"plain": [1, None, True, 2.5, {"json": "yes"}]},
    {1: "an integer as a key"},
    {"when": dt.datetime(2026, 2, 28, 1, 2, 3, 4, ZONE), "who": ("ann", 7)},
]


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, dict):
        return all(same(*pair) for pair in zip(one.items(), other.items(), strict=True))
    if isinstance(one, list | tuple):
        return all(same(*pair) for pair in zip(one, other, strict=True))
    return True


@pytest.mark.parametrize("lists", ["json", "objects"])
@pytest.mark.parametrize("value", VALUES + KEPT, ids=repr)
def test_values_come_back_as_what_they_were(value: Any, lists: Any) -> None:
    ours = Serializers(lists=lists)
    assert same(ours.load(ours.dump(value)), value)


def test_what_has_a_type_of_hazelcast_is_read_by_the_official_client() -> None:
    ours = Serializers()
    naive = dt.datetime.fromisoformat("2026-02-28T01:02:03.000004")
    assert read_by_them(ours.dump(naive)) == naive
    assert read_by_them(ours.dump((1, "two", (Decimal("1.5"), None)))) == [1, "two", [Decimal("1.5"), None]]
    assert read_by_them(ours.dump([uuid.UUID(int=1), naive])) == [uuid.UUID(int=1), naive]
    assert ours.dump({3, 1, 2}) == ours.dump({2, 3, 1}) == ours.dump(frozenset({1, 2, 3})), "the same key"
    for nothing in (dt.time(1, 2, tzinfo=ZONE), dt.timedelta(1), 1j, Decimal("1E+9999999999")):
        with pytest.raises(TypeError):
            ours.dump(nothing)
    endless: list[Any] = []
    endless.append((endless,))
    with pytest.raises(TypeError, match="depth"):
        ours.dump(endless)


THEY_FAIL = (-128,)
"""The official client cannot write a byte below 0."""


@pytest.mark.parametrize(
    ("integers", "theirs_is", "values"),
    [
        ("byte", IntType.BYTE, [0, -128, 127]),
        ("short", IntType.SHORT, [0, -(2**15), 2**15 - 1]),
        ("int", IntType.INT, [0, -(2**31), 2**31 - 1]),
        ("long", IntType.LONG, [0, -(2**63), 2**63 - 1]),
        ("big_int", IntType.BIG_INT, [0, -1, 127, 128, -128, -129, 2**70]),
        ("var", IntType.VAR, [0, -128, 128, -(2**15), 2**15, 2**31, -(2**63), 2**63]),
    ],
)
def test_integers_are_as_wide_as_is_chosen(integers: Any, theirs_is: int, values: list[int]) -> None:
    ours = Serializers(integers=integers)
    for value in values:
        if value not in THEY_FAIL or integers not in ("byte", "var"):
            assert ours.dump(value) == theirs(value, default_int_type=theirs_is)
        assert ours.load(ours.dump(value)) == value
        assert ours.load(ours.dump((value,))) == (value,)
        assert ours.dump((value,))[8:] == ours.dump(value), "also in a tuple"
    if integers in ("byte", "short", "int", "long"):
        for beyond in (values[1] - 1, values[2] + 1):
            with pytest.raises(OverflowError, match=integers):
                ours.dump(beyond)
    assert ours.load(ours.dump(True)) is True


def test_what_is_chosen_has_to_be_something() -> None:
    for wrong in ({"lists": "tuples"}, {"integers": "wide"}):
        with pytest.raises(ConfigError):
            Serializers(**wrong)
