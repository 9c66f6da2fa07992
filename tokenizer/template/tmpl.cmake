# Chat templates: what renders for the tests, their unit tests, and the fuzz target.
lockstep_binary(lockstep-tmpl-render SOURCES template/tmpl_render_test_main.c USES tokenizer)
set_target_properties(lockstep-tmpl-render PROPERTIES
	RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
lockstep_test(tmpl_test SOURCES template/tmpl_test.c USES tokenizer)
lockstep_fuzz(tmpl_fuzz SOURCES ${CMAKE_SOURCE_DIR}/tests/fuzz/tmpl_fuzz.c USES tokenizer
	CORPUS ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/tmpl)
