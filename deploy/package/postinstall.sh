#!/bin/sh
# Runs after the package's files are there, at the first installation and at upgrades.
set -e

if ! getent group headgate >/dev/null; then
	groupadd --system headgate
fi
if ! getent passwd headgate >/dev/null; then
	useradd --system --gid headgate --no-create-home --home-dir /nonexistent \
		--shell /usr/sbin/nologin --comment "Headgate rate limiter" headgate
fi
chgrp headgate /etc/headgate/environment

# dpkg gives the version from before, if there was one, and rpm the number of versions that are
# installed now.
first=
case "$1" in
configure) [ -n "$2" ] || first=yes ;;
1) first=yes ;;
esac

# Only where systemd runs: neither in a container nor in an image that is being built. Who has
# disabled, masked or stopped the service since the first installation keeps it so.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	if [ -n "$first" ]; then
		systemctl enable --now headgate.service
	else
		systemctl try-restart headgate.service
	fi
fi
