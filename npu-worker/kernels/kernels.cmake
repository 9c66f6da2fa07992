# Flags of the files that hold one instruction set's form. Everything else is plain x86-64: a form is chosen at run
# time, and nothing of it may leak into code that runs before the choice. Optimised in every preset: the forms rely
# on constants being folded into the code, and a debug build would make the tests crawl.
set(kernels_fast -O3 -fno-lto)
foreach(file scalar.c scalar_attention.c layout.c pack.c)
	set_source_files_properties(kernels/${file} PROPERTIES COMPILE_OPTIONS "-O2;-fno-lto")
endforeach()
