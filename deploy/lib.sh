# deploy/lib.sh: what up, down, fetch-model and tests/run share. Sourced, never run.
# shellcheck shell=bash disable=SC2034 # the variables are for the scripts that source this

repo=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
build_dir=${LOCKSTEP_BUILD:-$repo/build/release}
run_dir=${LOCKSTEP_RUN_DIR:-/dev/shm/lockstep-$UID}
model_dir=${LOCKSTEP_MODEL_DIR:-$HOME/.cache/lockstep/models}
scan_dir=$run_dir/s6
# Logs outlive the run directory; one folder per run directory, for s6-log locks it.
log_dir=${LOCKSTEP_LOG_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/lockstep/${run_dir//\//-}}

# Every role, in the order in which they stop: who faces the client first, who holds the segments last.
roles_outside_in=(gateway tokenizer sampler npu-worker keeper)

say() {
	printf '%s\n' "$*"
}

step() {
	printf '== %s\n' "$*" >&2
}

warn() {
	printf 'warning: %s\n' "$*" >&2
}

die() { # status message...
	local status=$1
	shift
	printf 'error: %s\n' "$*" >&2
	exit "$status"
}

# The exit statuses that the processes use too.
die_usage() { die 64 "$@"; }
die_unavailable() { die 69 "$@"; }
die_later() { die 75 "$@"; }
die_config() { die 78 "$@"; }

# Fails unless the option has a value behind it: option_value --port "$#"
option_value() {
	(($2 >= 2)) || die_usage "$1 needs a value"
}

package_installed() {
	dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed
}

# The first of "a | b" that is installed, else the first that apt knows, else the first.
choose_package() {
	local name names
	IFS="| " read -ra names <<<"$1"
	for name in "${names[@]}"; do
		package_installed "$name" && printf '%s\n' "$name" && return
	done
	for name in "${names[@]}"; do
		apt-cache show --no-all-versions "$name" >/dev/null 2>&1 && printf '%s\n' "$name" && return
	done
	printf '%s\n' "${names[0]}"
}

missing_packages() { # file...
	local line name
	while IFS= read -r line; do
		[[ $line != *\;* ]] || ! command -v "${line#*; }" >/dev/null || continue
		name=$(choose_package "${line%;*}")
		package_installed "$name" || printf '%s\n' "$name"
	done < <(sed 's/#.*//; s/[[:space:]]*$//; /^$/d' "$@")
}

# Installs what the lists name and the system lacks; without root it says what and stops.
need_packages() { # file...
	local missing
	command -v dpkg-query >/dev/null ||
		die_unavailable "this is not a Debian or Ubuntu system: install by hand what $* name"
	mapfile -t missing < <(missing_packages "$@")
	((${#missing[@]})) || return 0
	((EUID == 0)) ||
		die_unavailable "missing Debian packages: ${missing[*]} (as root: apt-get install --no-install-recommends ${missing[*]})"
	step "Installing ${#missing[@]} Debian packages: ${missing[*]}"
	apt-get update -q >&2
	# Asked again: before the first update apt may not have known any alternative.
	mapfile -t missing < <(missing_packages "$@")
	DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" >&2 ||
		die_unavailable "apt-get could not install: ${missing[*]}"
}

# Configures and builds a preset; with no targets, all of it. Configured each time: a room that came with a pull is new.
build_preset() { # preset jobs targets...
	local preset=$1 jobs=$2
	shift 2
	(
		cd "$repo" &&
			cmake --preset "$preset" >/dev/null &&
			ninja -C "build/$preset" -j "$jobs" "$@" >&2
	) || die 1 "the build of build/$preset failed: the lines above say where"
}

# The mark tells a run directory from a folder that LOCKSTEP_RUN_DIR names by mistake: without it nothing is removed.
make_run_dir() {
	if [[ -d $run_dir && ! -e $run_dir/.lockstep && -n $(ls -A -- "$run_dir") ]]; then
		die_config "$run_dir holds files of something else: empty it, or choose another LOCKSTEP_RUN_DIR"
	fi
	mkdir -p -- "$(dirname -- "$run_dir")"
	[[ -d $run_dir ]] || mkdir -m 700 -- "$run_dir"
	: >"$run_dir/.lockstep"
}

remove_run_dir() {
	[[ ! -e $run_dir/.lockstep ]] || rm -rf -- "$run_dir"
}

# Asked by a command that does nothing to it: told to scan while it stops, a supervisor would start everything again.
supervisor_alive() {
	[[ -d $scan_dir ]] && s6-svscanctl -z "$scan_dir" 2>/dev/null
}

# Service directories, loggers' included, whose s6-supervise lives (it may outlive a killed s6-svscan).
supervised_services() {
	local dir
	for dir in "$scan_dir"/*/ "$scan_dir"/*/log/; do
		if [[ -d $dir ]] && s6-svok "${dir%/}" 2>/dev/null; then
			printf '%s\n' "${dir%/}"
		fi
	done
}

is_running() {
	supervisor_alive || [[ -n $(supervised_services) ]]
}
