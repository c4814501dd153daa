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

# Only where systemd runs: neither in a container nor in an image that is being built.
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl enable headgate.service
	systemctl restart headgate.service
fi
