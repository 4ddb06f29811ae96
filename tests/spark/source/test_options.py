"""The options of the data source."""

from __future__ import annotations

import pytest

from holdfast.cli.credentials import Credentials
from holdfast.config.client_tls import ClientTls
from holdfast.errors import ConfigError
from holdfast.spark.rows.bad_rows import BadRows
from holdfast.spark.source.options import MEANING, Options
from holdfast.spark.source.read_options import ReadOptions

GOOD = {"address": "a:1", "map": "m"}


def test_what_is_left_out_has_its_default() -> None:
    assert Options.parse(GOOD) == Options("a:1", "m")


def test_names_are_read_in_any_case_and_by_their_other_names() -> None:
    options = Options.parse(
        {"ADDRESS": "a", "path": "m", "UserName": "u", "valueformat": "BINARY", "TTL": "1.5"}
    )
    assert options == Options("a", "m", user="u", value_format="binary", ttl_ms=1500)


def test_lists_are_cut_at_commas() -> None:
    options = Options.parse({**GOOD, "key": "a, b ,c", "columns": "x"})
    assert (options.key, options.columns) == (("a", "b", "c"), ("x",))


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"address": ""}, "option address is missing: HOST:PORT"),
        ({"map": ""}, "option map is missing"),
        ({"map": "__schemas.spark"}, "Holdfast's own"),
        ({"kee": "a"}, "unknown option 'kee': did you mean key"),
        ({"zzzzzzzz": "a"}, "the options are address, map"),
        ({"path": "other"}, "map is given twice"),
        ({"valueFormat": "xml"}, "primitive or compact, not 'xml'"),
        ({"ttl": "0"}, "ttl is a number above 0"),
        ({"ttl": "soon"}, "ttl is a number above 0"),
        ({"ttl": "nan"}, "ttl is a number above 0"),
        ({"numPartitions": "1.5"}, "whole number"),
        ({"numPartitions": "-1"}, "above 0"),
        ({"timeout": "inf"}, "timeout is a number"),
        ({"cut": "yes"}, "cut is true or false, not 'yes'"),
        ({"cutLease": "0"}, "between 1 and 86400"),
        ({"readFrom": "backup"}, "primary or any, not 'backup'"),
        ({"readFrom": "any", "cut": "false"}, "leave out cut=false"),
        ({"partitions": "3-1"}, "from a smaller to a larger"),
        ({"partitions": "a"}, "numbers and ranges such as 0-9,12; not 'a'"),
        ({"partitions": "1-2-3"}, "numbers and ranges"),
        ({"limit": "-1"}, "limit is a whole number"),
        ({"sampleRows": "x"}, "sampleRows is a whole number"),
    ],
)
def test_a_wrong_option_is_named(more: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Options.parse({**GOOD, **more})


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(Options.parse({**GOOD, "password": "secret", "token": "secret"}))


@pytest.mark.parametrize("name", ["password", "token"])
def test_a_secret_that_is_given_twice_is_not_shown(name: str) -> None:
    with pytest.raises(ConfigError, match=f"option {name} is given twice$"):
        Options.parse({**GOOD, name: "secret-1", name.upper(): "secret-2"})


def test_every_option_is_taken() -> None:
    values = {"ttl": "1", "numPartitions": "2", "timeout": "3", "valueFormat": "json", "write": "upsert"}
    values |= {"rowsPerSecond": "10", "concurrentTasks": "4", "transactionRows": "5"}
    values |= {
        "cut": "true",
        "cutLease": "60",
        "readFrom": "any",
        "partitions": "1-3,5",
        "partitionColumn": "true",
    }
    values |= {"tls": "true", "tlsVerifyHost": "false"}
    values |= {"bad": "skip", "limit": "7", "sampleRows": "0", "pushdown": "true", "keys": "[1]"}
    options = Options.parse({name: values.get(name, "x") for name in MEANING})
    assert options.read == ReadOptions(
        cut=True,
        lease_s=60.0,
        spread=True,
        partitions=(1, 2, 3, 5),
        partition_column=True,
        limit=7,
        sample_rows=0,
        pushdown=True,
        keys=((1,),),
        bad=BadRows("skip"),
    )
    assert (options.ttl_ms, options.tasks, options.timeout_s) == (1000, 2, 3.0)
    assert (options.write.transaction_rows, options.write.rows_per_second) == (5, 2.5)


def test_tls() -> None:
    assert Options.parse(GOOD).tls is None
    assert Options.parse({**GOOD, "tls": "false"}).tls is None
    assert Options.parse({**GOOD, "tls": "true"}).tls == ClientTls()
    whole = {
        "tlsCa": "ca",
        "tlsCertificate": "c",
        "tlsKey": "k",
        "tlsKeyPassword": "p",
        "tlsVerifyHost": "False",
    }
    assert Options.parse({**GOOD, **whole}).tls == ClientTls("ca", "c", "k", "p", verify_host=False)
    assert Options.parse(
        GOOD | Credentials(tls=ClientTls("ca", verify_host=False)).options()
    ).tls == ClientTls("ca", verify_host=False)
    with pytest.raises(ConfigError, match="tls is true or false, not 'yes'"):
        Options.parse({**GOOD, "tls": "yes"})
    with pytest.raises(ConfigError, match="contradict each other"):
        Options.parse({**GOOD, "tls": "false", "tlsCa": "ca"})
