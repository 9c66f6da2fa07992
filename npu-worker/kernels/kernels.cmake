# Flags of the files that hold one instruction set's form. Everything else is plain x86-64: a form is chosen at run
# time, and nothing of it may leak into code that runs before the choice, hence no link-time optimisation.
# Optimised in every preset: the forms rely on constants being folded into the code, and the scalar one is slow
# enough as it is.
function(kernels_flags file)
	set_source_files_properties(kernels/${file} PROPERTIES COMPILE_OPTIONS "${ARGN};-fno-lto")
endfunction()
kernels_flags(form_avx512_vnni.c -O3 -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni
	-mprefer-vector-width=512)
kernels_flags(form_avx512.c -O3 -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512vl -mavx512dq
	-mprefer-vector-width=512)
kernels_flags(form_avx2.c -O3 -mavx2 -mfma -mf16c)
kernels_flags(form_avx2_vnni.c -O3 -mavx2 -mfma -mf16c -mavxvnni)
foreach(file scalar.c scalar_attention.c layout.c pack.c)
	kernels_flags(${file} -O2)
endforeach()

foreach(test kernels_test attention_test elementwise_test pool_test)
	lockstep_test(${test} SOURCES kernels/${test}.c USES engine)
endforeach()
lockstep_binary(kernels_bench SOURCES kernels/kernels_bench_test_main.c USES engine)
set_target_properties(kernels_bench PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
