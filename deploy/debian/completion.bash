# bash completion of lockstep and its processes. Commands and options are asked of the programs themselves.
# shellcheck shell=bash

_lockstep() {
	local current=${COMP_WORDS[COMP_CWORD]} program=$1 words
	COMPREPLY=()
	if [[ $(basename -- "$program") == lockstep ]] && ((COMP_CWORD == 1)); then
		words=$("$program" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p')
		mapfile -t COMPREPLY < <(compgen -W "$words --help --version" -- "$current")
	elif [[ $current == -* ]]; then
		local asked=("$program")
		[[ $(basename -- "$program") != lockstep ]] || asked+=("${COMP_WORDS[1]}")
		words=$("${asked[@]}" --help 2>/dev/null | sed -n 's/^ *\(--[a-z][a-z0-9-]*\).*/\1/p')
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
	else
		mapfile -t COMPREPLY < <(compgen -f -- "$current")
	fi
}

complete -o filenames -F _lockstep lockstep lockstep-gateway lockstep-tokenizer lockstep-npu-worker lockstep-sampler lockstep-keeper
