# deploy/group.sh: several pipelines behind one address, below one run directory. Sourced by up, down and models.
# shellcheck shell=bash
#
#   RUN/models       which model is served by which pipeline (docs/models-serving.md)
#   RUN/options      what every pipeline is started with, one word a line
#   RUN/NAME-N       the run directory of NAME's N-th pipeline

# shellcheck source=lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

models_file=$run_dir/models

is_group() {
	[[ -f $models_file && -e $run_dir/.lockstep ]]
}

# One change of the file at a time, and always whole.
models_write() { # the new text on standard input
	cat >"$models_file.new"
	mv -- "$models_file.new" "$models_file"
}

valid_model_name() { # name
	[[ $1 =~ ^[A-Za-z0-9_.@:+-]{1,48}$ ]] ||
		die_usage "the model's name is $1; it must have 1 to 48 letters, digits or characters of _.@:+-"
}

# The next free run directory of a name: NAME-1, NAME-2, ...
next_pipeline() { # name
	local n=1
	while [[ -e $run_dir/$1-$n ]] || grep -q "^${1}-${n}[[:space:]]" "$models_file"; do n=$((n + 1)); done
	echo "$1-$n"
}

# Starts a pipeline and waits until it has answered a question that was asked for LOCKSTEP_PIPELINE. The lock of models is not for
# its supervisor.
pipeline_start() { # pipeline name file first-or-next words...
	local pipeline=$1 name=$2 file=$3 order=$4
	shift 4
	LOCKSTEP_RUN_DIR=$run_dir/$pipeline LOCKSTEP_LOG_DIR=$log_dir/$pipeline LOCKSTEP_BUILD=$build_dir \
		LOCKSTEP_PIPELINE_ORDER=$order "$repo/deploy/up" --model "$file" --model-name "$name" --models-file "$models_file" "$@" 9>&-
}

pipeline_stop() { # pipeline
	LOCKSTEP_RUN_DIR=$run_dir/$1 LOCKSTEP_LOG_DIR=$log_dir/$1 "$repo/deploy/down"
}

pipelines() {
	local dir
	for dir in "$run_dir"/*/s6/; do
		[[ ! -d $dir ]] || basename -- "$(dirname -- "$dir")"
	done
}

require_no_group_running() {
	local pipeline
	for pipeline in $(pipelines); do
		! LOCKSTEP_RUN_DIR=$run_dir/$pipeline bash -c '. "$0/deploy/lib.sh" && is_running' "$repo" ||
			die_later "already running in $run_dir: ./deploy/down stops it, or choose another LOCKSTEP_RUN_DIR"
	done
}
