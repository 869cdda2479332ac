#!/bin/sh
# Programs of other projects that the tests start, from Debian's packages, where they are missing.
#
#     requirements/debian.sh FOLDER
#
# Servers and tools are unpacked into FOLDER: nothing is installed, nothing is started, and no rights
# are needed. Chromium and PostgreSQL need what their packages set up, so they are installed, where
# this user may; so is wrk, for the benchmarks. A program that cannot be had is named, and the tests
# that need it say so.
set -u
folder=$1
mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
cd "$folder" || exit 1
# Lists of our own: those of the machine may be old or gone, and another apt-get may hold their lock.
own() { apt-get -o "Dir::State::Lists=$PWD/lists" -o "Dir::Cache=$PWD/cache" -o APT::Sandbox::User=root -o Debug::NoLocking=1 "$@"; }

has() { command -v "$1" > /dev/null 2>&1 || ls usr/bin/"$1" usr/sbin/"$1" /usr/sbin/"$1" /usr/lib/postgresql/*/bin/"$1" 2> /dev/null | grep -q .; }
told() { echo "$1 cannot be fetched here; the tests that need it say so" >&2; }
listed() { [ -e listed ] || { own update -qq 2> /dev/null; touch listed; }; }
unpack() { listed; own download -qq "$@" 2> /dev/null && for one in *.deb; do dpkg-deb -x "$one" . && rm "$one"; done; }
install() {
  [ "$(id -u)" = 0 ] && listed && DEBIAN_FRONTEND=noninteractive \
    apt-get -o Dir::State::Lists="$PWD/lists" -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" > /dev/null
}

command -v apt-get > /dev/null 2>&1 || { told "What is missing of redis-server, promtool, nginx, initdb, chromium and wrk"; exit 0; }
has redis-server || has valkey-server || unpack redis-server redis-tools liblzf1 libjemalloc2 || told redis-server
has promtool || unpack prometheus || told promtool
has nginx || unpack nginx || told nginx
has initdb || install postgresql || told "PostgreSQL"
has chromium || install chromium || told chromium
has wrk || install wrk || told wrk
rm -rf lists cache listed
