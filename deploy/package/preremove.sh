#!/bin/sh
# Runs before the package's files are removed. At an upgrade the service keeps running until the
# new package restarts it.
set -e

case "$1" in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now headgate.service
	fi
	;;
esac
