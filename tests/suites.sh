# tests/suites.sh: what each suite of tests/run does, and what must be there before. Sourced by run.
# run calls suite_NAME with $suite set to NAME; it prints to its log and calls count or count_junit once.
# shellcheck shell=bash disable=SC2034,SC2154 # names that lib.sh and run set or read

suites=(format shell unit release asan fuzz tsan spin lint golden deploy process http docker xrt)
out=$repo/out/tests
cache=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep

count() { # passed failed skipped
	echo "$*" >"$out/$suite.count"
}

count_junit() {
	python3 tests/count_junit.py "$out/$suite.xml" >"$out/$suite.count"
}

# ---- what the suites stand on

# Only what the wanted suites need; network and compiler work at the same time.
prepare() {
	local pids=() pid
	if wanted unit golden deploy process http docker xrt; then
		make_venv >"$out/venv.log" 2>&1 & pids+=($!)
	fi
	if wanted http && [[ -e tests/http/package.json ]]; then
		make_node_modules >"$out/node.log" 2>&1 & pids+=($!)
		python3 tests/lib/clients.py >"$out/clients.log" 2>&1 & pids+=($!)
	fi
	if wanted unit; then
		python3 tests/lib/schema_suite.py >"$out/schema-suite.log" 2>&1 & pids+=($!)
	fi
	if wanted golden deploy process http docker xrt; then
		fetch_models >"$out/models.log" 2>&1 & pids+=($!)
	fi
	if wanted unit release lint golden deploy process http xrt; then
		step "Building (build/release)"
		build_preset release "$jobs"
	fi
	if wanted process; then
		step "Building with fault points (build/faults)"
		build_preset faults "$jobs" bin/lockstep{,-keeper,-gateway,-tokenizer,-npu-worker,-sampler}
	fi
	for pid in "${pids[@]}"; do
		wait "$pid" || { tail -n 20 "$out"/{venv,node,clients,schema-suite,models}.log 2>/dev/null; die_unavailable "a preparation failed"; }
	done
	[[ ! -e $(venv_dir)/complete ]] || PATH=$(venv_dir)/bin:$PATH
	export LOCKSTEP_BUILD=$repo/build/release LOCKSTEP_FAULTS_BUILD=$repo/build/faults LOCKSTEP_MODELS=$model_dir
	if $long; then export LOCKSTEP_LONG=1; fi
}

venv_dir() {
	echo "$cache/venv-$({ python3 --version; cat "$repo/tests/requirements.txt"; } | sha256sum | cut -c 1-12)"
}

# A virtual environment can't be moved, so a mark says that it is complete.
make_venv() {
	local dir
	dir=$(venv_dir)
	[[ ! -e $dir/complete ]] || return 0
	rm -rf "$dir"
	python3 -m venv "$dir"
	"$dir/bin/pip" install -q --disable-pip-version-check -r "$repo/tests/requirements.txt"
	touch "$dir/complete"
}

make_node_modules() {
	local dir
	dir=$cache/node-$(cat tests/http/package.json tests/http/package-lock.json 2>/dev/null | sha256sum | cut -c 1-12)
	if [[ ! -e $dir/complete ]]; then
		rm -rf "$dir"
		mkdir -p "$dir"
		cp tests/http/package*.json "$dir"
		(cd "$dir" && { npm ci --no-fund --no-audit || npm install --no-fund --no-audit; })
		touch "$dir/complete"
	fi
	ln -sfn "$dir/node_modules" tests/http/node_modules
}

fetch_models() {
	local name
	while read -r name _; do
		deploy/fetch-model "$name"
	done < <(grep -v '^#' deploy/models.tsv)
}

# ---- texts

c_files() {
	git ls-files -- '*.c' '*.h'
}

# Formatters and linters of other versions disagree in details; the project's are Debian 12's.
is_version_14() { # program
	[[ $("$1" --version) != *"version 14."* ]] || return 0
	echo "$1 here is not version 14, whose word counts: skipped"
	return 1
}

suite_format() {
	local files bad
	mapfile -t files < <(c_files)
	is_version_14 clang-format || { count 0 0 1; return; }
	# shellcheck disable=SC2016 # the inner shell expands
	mapfile -t bad < <(printf '%s\n' "${files[@]}" |
		xargs -n 1 -P "$jobs" sh -c 'clang-format --dry-run -Werror "$0" >/dev/null 2>&1 || echo "$0"' | sort)
	((${#bad[@]} == 0)) || printf 'not formatted (clang-format -i): %s\n' "${bad[@]}"
	count $((${#files[@]} - ${#bad[@]})) ${#bad[@]} 0
}

suite_shell() {
	local file passed=0 failed=0
	while read -r file; do
		if shellcheck -x -P SCRIPTDIR "$file"; then
			passed=$((passed + 1))
		else
			failed=$((failed + 1))
		fi
	done < <(git ls-files | while read -r file; do
		[[ $file != *.sh ]] && ! head -c 20 "$file" | grep -qaE '^#!.*(ba)?sh' || echo "$file"
	done)
	count "$passed" "$failed" 0
}

# ---- C tests

# gcc's sanitizers at full address randomisation fail on some kernels.
without_aslr() {
	if setarch -R true 2>/dev/null; then
		setarch -R "$@"
	else
		"$@"
	fi
}

run_ctest() { # preset ctest-selection...
	local preset=$1 targets status=0
	shift
	cmake --preset "$preset" >/dev/null
	# A test has its target's name; so only what is selected gets built.
	mapfile -t targets < <(ctest --test-dir "build/$preset" -N "$@" | sed -n 's/^ *Test *#[0-9]*: //p')
	((${#targets[@]})) || { echo "no test is selected by $*"; return 1; }
	ninja -C "build/$preset" -j "$jobs" "${targets[@]}"
	without_aslr ctest --test-dir "build/$preset" -j "$jobs" --output-on-failure \
		--output-junit "$out/$suite.xml" "$@" || status=$?
	count_junit
	return "$status"
}

suite_release() {
	run_ctest release -LE fuzz
}

suite_asan() {
	export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
	run_ctest asan -LE fuzz
}

# The corpora under the address sanitizer; the long form lets libFuzzer search for more.
suite_fuzz() {
	run_ctest asan -L fuzz
	! $long || fuzz_for_a_while
}

fuzz_for_a_while() {
	local target targets work
	cmake --preset fuzz >/dev/null
	mapfile -t targets < <(ctest --test-dir build/fuzz -N -L fuzz | sed -n 's/^ *Test *#[0-9]*: //p')
	ninja -C build/fuzz -j "$jobs" "${targets[@]}"
	for target in "${targets[@]}"; do
		work=$(mktemp -d)
		build/fuzz/fuzz/"$target" -max_total_time=60 -print_final_stats=1 "$work" "tests/fuzz/corpus/${target%_fuzz}"
		rm -rf "$work"
	done
}

# What runs in threads what processes do to each other.
suite_tsan() {
	export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
	# libzmq is not built with this sanitizer, which takes its own synchronisation for races; ours is one thread there.
	run_ctest tsan -L "unit|property" -E "^bus_test$"
}

# ---- models of protocols, linter

# Each run of a model stands in its first lines: "run: SPIN FLAGS ; PAN FLAGS" must find no error, and
# "breaks: SPIN FLAGS ; PAN FLAGS", with a mechanism switched off, must find one.
suite_spin() {
	local model kind flags passed=0 failed=0
	[[ -d tests/spin ]] || { count 0 0 1; return; }
	for model in "$PWD"/tests/spin/*.pml; do
		while IFS=: read -r kind flags; do
			if run_spin "$model" "$kind" "${flags%%;*}" "${flags#*;}"; then
				passed=$((passed + 1))
			else
				failed=$((failed + 1))
			fi
		done < <(sed -n 's/^[ *\/]*\(run\|breaks\):\(.*\);\([^*]*\).*/\1:\2;\3/p' "$model")
	done
	count "$passed" "$failed" 0
}

run_spin() { # model kind spin-flags pan-flags
	local dir verdict=run spin_flags pan_flags
	dir=$(mktemp -d)
	read -ra spin_flags <<<"$3"
	read -ra pan_flags <<<"$4"
	(
		cd "$dir" || exit
		spin "${spin_flags[@]}" -a "$1" && gcc -O2 -DVECTORSZ=4096 -DMEMLIM=4096 -w -o pan pan.c &&
			timeout 600 ./pan "${pan_flags[@]}" | tee out
	) || verdict=broken
	grep -q 'errors: 0' "$dir/out" || [[ $verdict == broken ]] || verdict=breaks
	# A search that was cut short has proved nothing.
	if [[ $verdict == run ]] && grep -qE 'max search depth too small|out of memory|Search not completed' "$dir/out"; then
		verdict=incomplete
	fi
	rm -rf "$dir"
	echo "$(basename "$1") $2 [$3;$4]: $verdict"
	[[ $verdict == "$2" ]]
}

# Files that didn't change since they passed are not looked at again; what the time doesn't reach counts as skipped.
suite_lint() {
	local budget=150
	is_version_14 clang-tidy || { count 0 0 1; return; }
	! $long || budget=7200
	python3 tests/lint.py --build build/release --jobs "$jobs" --seconds "$budget" --cache "$cache/lint" \
		--counts "$out/lint.count"
}

# ---- Python suites

# The limit is for a suite that stands still; each of its tests has one of its own (tests/lib/plugin.py).

pytest_suite() { # [seconds]: tests/$suite, if there is one
	local status=0 limit=${1:-2700}
	if [[ ! -d tests/$suite ]]; then
		echo "tests/$suite does not exist"
		count 0 0 1
		return
	fi
	timeout -k 10 "$limit" python3 -m pytest -c tests/pytest.ini --rootdir "$repo" \
		--junitxml "$out/$suite.xml" "tests/$suite" || status=$?
	count_junit
	return "$status"
}

suite_unit() { pytest_suite; }
suite_golden() { pytest_suite; }
suite_deploy() { pytest_suite; }
suite_process() { pytest_suite; }

# The long form installs large programs the first time.
suite_http() {
	! $long || set -- 7200
	pytest_suite "$@"
}

# In a Debian 13 root, which is made the first time and kept. Where none can be made the tests say so and are skipped. Each of them has
# a limit of its own (tests/lib/plugin.py), so that one which stands still doesn't take the others with it.
suite_xrt() {
	((EUID != 0)) || need_packages tests/xrt/packages.txt
	pytest_suite 4500
}

suite_docker() {
	need_packages tests/docker/packages.txt
	pytest_suite
}
