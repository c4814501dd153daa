#!/bin/sh
# Runs after the package's files are removed. The user stays: files that it owned might be left,
# and another user would get its number.
set -e

if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
