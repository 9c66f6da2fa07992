# deploy/services.sh: one s6 service directory per instance, and the supervisor. Sourced by up and down.
# shellcheck shell=bash disable=SC2034

# shellcheck source=lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

start_seconds=${LOCKSTEP_START_SECONDS:-120}

# The words as a shell would need them.
quoted() {
	local word
	for word in "$@"; do
		printf " '%s'" "${word//\'/\'\\\'\'}"
	done
}

# The run file notes when it started: finish tells by it a death at start from a death at work.
write_service() { # role instance kill_seconds words of the command...
	local role=$1 instance=$2 kill_seconds=$3 dir=$scan_dir/$1-$2 logs=$log_dir/$1-$2
	shift 3
	mkdir -p "$dir/log" "$logs"
	echo 3 >"$dir/notification-fd"
	echo $((kill_seconds * 1000)) >"$dir/timeout-kill"
	cat >"$dir/run" <<-RUN
		#!/bin/sh
		: >started
		exec 2>&1
		echo '{"level":"info","svc":"supervisor","msg":"starting $role-$instance"}'
		cd$(quoted "$PWD")
		export LOCKSTEP_READY_FD=3
		exec$(quoted "$@" --run-dir "$run_dir" --instance "$instance")
	RUN
	cat >"$dir/log/run" <<-RUN
		#!/bin/sh
		exec s6-log -b n4 s1000000$(quoted "$logs")
	RUN
	chmod +x "$dir/run" "$dir/log/run"
	ln -sf "$repo/deploy/s6/finish" "$dir/finish"
}

# Detached from this terminal and its pipes: whoever waits for our output must not wait for the supervisor.
start_supervisor() {
	mkdir -p "$log_dir"
	setsid s6-svscan "$scan_dir" </dev/null >>"$log_dir/supervisor.log" 2>&1 &
	disown
}

# Prints "role-instance state" for each service: ready, starting, restarting or failed.
service_states() {
	local dir up wanted ready
	for dir in "$scan_dir"/*/; do
		dir=${dir%/}
		if ! read -r up wanted ready < <(s6-svstat -o up,wantedup,ready "$dir" 2>/dev/null); then
			echo "${dir##*/} starting"
		elif [[ $wanted == false ]]; then
			echo "${dir##*/} failed"
		elif [[ $up != true ]]; then
			echo "${dir##*/} restarting"
		elif [[ $ready != true ]]; then
			echo "${dir##*/} starting"
		else
			echo "${dir##*/} ready"
		fi
	done
}

# Gives up on a service that s6 gave up on, and on one that died three times before all were ready.
hopeless_services() {
	local dir
	service_states | awk '$2 == "failed" { print $1 }'
	for dir in "$scan_dir"/*/; do
		if (($(s6-svdt "${dir%/}" 2>/dev/null | wc -l) >= 3)); then
			basename "$dir"
		fi
	done
}

# The texts of the JSON log lines on standard input.
log_texts() {
	sed -n 's/.*"msg":"\(.*\)"}$/\1/p' | sed 's/\\\(["\\/]\)/\1/g'
}

# What a service said since its last start.
last_words() { # service
	# shellcheck disable=SC2016 # $ is sed's last line
	sed -n '/"svc":"supervisor","msg":"starting /{h;d}; H; ${x;p}' "$log_dir/$1/current" 2>/dev/null
}

# The last error that it named itself, in one line; fails if it named none.
last_error() { # service
	last_words "$1" | grep '"level":"error"' | grep -v '"svc":"supervisor"' | log_texts | tail -1 | grep .
}

# Stops the services from the outside in, so that the gateways' drain finds the others still working; then the supervisor.
stop_all() {
	local role dir dirs
	for role in "${roles_outside_in[@]}"; do
		mapfile -t dirs < <(supervised_services | grep -E "/$role-[0-9]+\$")
		((${#dirs[@]})) || continue
		for dir in "${dirs[@]}"; do s6-svc -d "$dir"; done
		# s6 kills what outlives timeout-kill; the rest covers the end of a killed process.
		s6-svwait -D -t $(($(cat "${dirs[0]}/timeout-kill") + 10000)) "${dirs[@]}" >/dev/null ||
			warn "some $role did not end in time"
		say "stopped $role: $(printf '%s\n' "${dirs[@]##*/}" | paste -sd ' ')"
	done
	if supervisor_alive; then
		s6-svscanctl -t "$scan_dir"
	else
		# Nobody is left to tell the orphans of a killed s6-svscan, loggers included.
		while read -r dir; do s6-svc -xd "$dir" || true; done < <(supervised_services)
	fi
	for _ in {1..100}; do
		is_running || return 0
		sleep 0.05
	done
	warn "the supervisor of $scan_dir does not end; look for s6-svscan in ps"
	return 1
}
