# Flags of the files that hold one instruction set's form. Everything else is plain x86-64: a form is chosen at run
# time, and nothing of it may leak into code that runs before the choice, hence no link-time optimisation.
# Optimised in every preset: the forms rely on constants being folded into the code, and the scalar one is slow
# enough as it is. All of a form is inlined into some hundred functions; line tables are all the debug information
# that a compiler can make of that in reasonable time.
function(kernels_flags file)
	set_source_files_properties(kernels/${file} PROPERTIES COMPILE_OPTIONS "${ARGN};-fno-lto")
endfunction()

set(KERNELS_FAST -O3 -g1)
if(LOCKSTEP_SANITIZE OR LOCKSTEP_COVERAGE)
	# Checks written out at every load make the compiler take minutes: calls instead, and none of those checks
	# that vector loads by intrinsics don't need.
	set(KERNELS_FAST -O1 -g1)
	if(LOCKSTEP_SANITIZE MATCHES "undefined")
		list(APPEND KERNELS_FAST -fno-sanitize=null,alignment,object-size,pointer-overflow)
	endif()
	if(LOCKSTEP_SANITIZE MATCHES "address" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
		list(APPEND KERNELS_FAST --param=asan-instrumentation-with-call-threshold=0)
	elseif(LOCKSTEP_SANITIZE MATCHES "address")
		list(APPEND KERNELS_FAST -mllvm -asan-instrumentation-with-call-threshold=0)
	endif()
endif()
set(KERNELS_AVX2 -mavx2 -mfma -mf16c)
set(KERNELS_AVX512 ${KERNELS_AVX2} ${LOCKSTEP_WIDE} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512)
kernels_flags(form_avx2.c ${KERNELS_FAST} ${KERNELS_AVX2})
kernels_flags(form_avx2_vnni.c ${KERNELS_FAST} ${KERNELS_AVX2} -mavxvnni)
kernels_flags(form_avx512.c ${KERNELS_FAST} ${KERNELS_AVX512})
kernels_flags(form_avx512_vnni.c ${KERNELS_FAST} ${KERNELS_AVX512} -mavx512vnni)
kernels_flags(form_amx.c ${KERNELS_FAST} ${KERNELS_AVX512} -mavx512vnni -mamx-tile -mamx-int8)
kernels_flags(form_tiles_test.c ${KERNELS_FAST} ${KERNELS_AVX2})
foreach(file scalar.c scalar_attention.c layout.c pack.c)
	kernels_flags(${file} -O2)
endforeach()

foreach(test kernels_test attention_test elementwise_test select_test)
	lockstep_test(${test} SOURCES kernels/${test}.c kernels/form_tiles_test.c USES engine)
endforeach()
lockstep_test(pool_test SOURCES kernels/pool_test.c USES engine)
lockstep_binary(kernels_bench SOURCES kernels/kernels_bench_test_main.c USES engine)
set_target_properties(kernels_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
