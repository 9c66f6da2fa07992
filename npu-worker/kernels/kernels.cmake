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
foreach(file scalar.c scalar_attention.c layout.c pack.c)
	kernels_flags(${file} -O2)
endforeach()

lockstep_test(kernels_test SOURCES kernels/kernels_test.c USES engine)
