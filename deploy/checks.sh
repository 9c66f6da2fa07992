# deploy/checks.sh: what would make a start fail, said in one line each before anything is started. Sourced by up.
# shellcheck shell=bash

# shellcheck source=lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

require_not_running() {
	is_running || return 0
	die_later "already running in $run_dir: ./deploy/down stops it, or choose another LOCKSTEP_RUN_DIR"
}

# A connection that is accepted is proof; who listens is said where ss is installed and may see it.
require_free_port() { # address port
	local address=$1 port=$2 who=""
	(exec 3<>"/dev/tcp/$address/$port") 2>/dev/null || return 0
	who=$(ss -Hltnp "sport = :$port" 2>/dev/null | sed -n 's/.*users:((\("[^"]*",pid=[0-9]*\).*/ (\1)/p' | head -1) || true
	die_later "port $port on $address is in use$who: choose another with --port"
}

# The least of what the system says is available and what the memory cgroups on the way up leave.
available_memory_bytes() {
	local available limit used group
	available=$(($(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo) * 1024))
	group=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
	while [[ $group == /sys/fs/cgroup?* || $group == /sys/fs/cgroup ]]; do
		limit=$(cat "$group/memory.max" 2>/dev/null || echo max)
		if [[ $limit != max ]]; then
			used=$(cat "$group/memory.current")
			((limit - used >= available)) || available=$((limit - used))
		fi
		group=${group%/*}
	done
	echo "$available"
}

mb() {
	echo "$(($1 / 1000000)) MB"
}

require_memory() { # bytes
	local available
	available=$(available_memory_bytes)
	((available >= $1)) ||
		die_later "too little memory: $(mb "$1") needed, $(mb "$available") available; choose a smaller --model, --ctx or --slots"
}

# tmpfs pages that are promised but not there kill with SIGBUS; so the room is looked at first.
require_room() { # bytes
	local place=$run_dir available
	while [[ ! -d $place ]]; do place=$(dirname -- "$place"); done
	available=$(df --output=avail -B1 -- "$place" | tail -1)
	((available >= $1)) ||
		die_later "$place is too small: $(mb "$1") needed, $(mb "$available") free; enlarge it (mount -o remount,size=...) or set LOCKSTEP_RUN_DIR"
}

# systemd-logind deletes a user's files in /dev/shm at the last logout, unless the user lingers or is a system user.
warn_remove_ipc() {
	[[ $run_dir == /dev/shm/* && -d /run/systemd/seats ]] || return 0
	((UID >= 1000)) || return 0
	[[ ! -e /var/lib/systemd/linger/$(id -un) ]] || return 0
	! grep -qsiE '^[[:space:]]*RemoveIPC[[:space:]]*=[[:space:]]*(no|false|off|0)' \
		/etc/systemd/logind.conf /etc/systemd/logind.conf.d/*.conf || return 0
	warn "a logout will delete $run_dir (RemoveIPC): run 'loginctl enable-linger', or set LOCKSTEP_RUN_DIR"
}
