# For the scripts of the examples, which source it: makes $dir, a directory for what
# they build, and ends all that they have started when they end or are interrupted.
# $PROGRAM is a headgate that is built already, if there is one.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
dir=$(mktemp -d)
finish() {
	trap '' INT TERM # a second signal must not cut this short
	trap - EXIT
	local running tries=0
	while running=$(jobs -rp) && [ -n "$running" ]; do
		# A child that has not become its program yet may lose the signal, and gets another.
		[ $((tries++ % 40)) != 0 ] || kill $running 2>/dev/null || true
		sleep 0.05
	done
	rm -rf "$dir"
}
trap finish EXIT
trap 'finish; exit 0' INT TERM

# answers ADDRESS waits until something listens there, or what was started last has ended: then the
# script ends, and shows what that has written to $dir/log.
answers() {
	until (exec 3<>"/dev/tcp/${1%:*}/${1##*:}") 2>/dev/null; do
		kill -0 $! 2>/dev/null || {
			echo "nothing serves on $1" >&2
			[ ! -f "$dir/log" ] || cat "$dir/log" >&2
			exit 1
		}
		sleep 0.05
	done
}

# build has $PROGRAM be a headgate.
build() {
	[ -z "${PROGRAM:-}" ] || return 0
	echo "building headgate"
	PROGRAM=$dir/headgate
	(cd "$root/server" && go build -buildvcs=false -o "$PROGRAM" ./cmd/headgate)
}
