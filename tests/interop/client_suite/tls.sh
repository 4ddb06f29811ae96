#!/usr/bin/env bash
# The TLS tests of the official Python client's integration suite, against Holdfast members. See the README.
#
#     HOLDFAST=.venv/bin/holdfast CLIENT_SUITE=../client_suite tests/interop/client_suite/tls.sh [TEST...]
#
# CLIENT_SUITE: the folder with `run.sh`, `rc_shim.py`, `client_suite_plugin.py` and `checkout`. Results: as `run.sh` says.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
suite=$(cd "${CLIENT_SUITE:?the folder with run.sh and checkout}" && pwd)
HOLDFAST=$(cd "$(dirname "${HOLDFAST:?the program}")" && pwd)/$(basename "$HOLDFAST")
out=${SUITE_DIR:-./client_suite_out}
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$out/suite
rm -rf "$work"
mkdir -p "$work"
cp "$suite"/run.sh "$suite"/client_suite_plugin.py "$work"
cp "$here/rc_shim_tls.py" "$work/rc_shim.py"  # run.sh starts what has this name
mkdir -p "$work/shim"
cp "$suite/rc_shim.py" "$work/shim/"

public=$work/public
mkdir -p "$public"
(
    cd "$public"
    openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=public-ca -keyout ca.key -out ca.pem
    openssl req -newkey rsa:2048 -nodes -subj /CN=member.example -keyout member.key -out member.csr
    openssl x509 -req -in member.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out member.pem
    cat member.key member.pem ca.pem >letsencrypt.pem
) >"$public/log" 2>&1

if [ ! -x "$out/venv/bin/pytest" ]; then
    python3 -m venv "$out/venv"
    "$out/venv/bin/pip" install -q thrift pytest mock parameterized psutil hazelcast-python-client==5.7.0
fi
[ $# -gt 0 ] || set -- tests/integration/backward_compatible/ssl_tests tests/integration/asyncio/ssl_tests
export HOLDFAST SUITE_DIR=$out RC_SHIM=$work/shim RC_PUBLIC=$public/letsencrypt.pem SSL_CERT_FILE=$public/ca.pem
export HZ_CLIENT_CHECKOUT=$suite/checkout SUITE_JOBS=${SUITE_JOBS:-1}
exec "$work/run.sh" "$@"
