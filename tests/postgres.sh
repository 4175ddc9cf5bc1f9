#!/usr/bin/env bash
# Runs a command beside a PostgreSQL of its own: on a free port of the loopback, in a temporary folder, as a user that is not
# root, named in FOREBAY_TEST_POSTGRES and gone afterwards. Installs Debian's package if there is none and we may.
# Usage: tests/postgres.sh COMMAND ...
set -euo pipefail

programs() { ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1; }

if [ -z "$(programs)" ]; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "postgres.sh: install PostgreSQL (Debian: apt-get install postgresql)" >&2
    exit 1
  fi
  # The package would set up and start a server of its own, which nobody asked for.
  mkdir -p /etc/postgresql-common
  [ -e /etc/postgresql-common/createcluster.conf ] || echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.conf
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql >/dev/null
fi
bin=$(programs)

# PostgreSQL refuses to run as root; the package brings a user.
unprivileged() { if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }

folder=$(mktemp -d)
chmod 755 "$folder"
if [ "$(id -u)" = 0 ]; then chown postgres "$folder"; fi
stop() {
  unprivileged "$bin/pg_ctl" -D "$folder/data" -m immediate -w stop >/dev/null 2>&1 || true
  rm -rf "$folder"
}
trap stop EXIT

cd "$folder"
password=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
# Beside the data, which is for one user to read; readable by that user alone.
(umask 077; echo "$password" >"$folder/password")
if [ "$(id -u)" = 0 ]; then chown postgres "$folder/password"; fi
unprivileged "$bin/initdb" -D "$folder/data" -U forebay --encoding=UTF8 --auth=scram-sha-256 --pwfile="$folder/password" >/dev/null
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
unprivileged "$bin/pg_ctl" -D "$folder/data" -w -l "$folder/log" \
  -o "-p $port -k $folder -c listen_addresses=127.0.0.1 -c max_connections=200" start >/dev/null ||
  { cat "$folder/log" >&2; exit 1; }
cd "$OLDPWD"

export FOREBAY_TEST_POSTGRES="postgres://forebay:$password@127.0.0.1:$port/postgres"
"$@"
