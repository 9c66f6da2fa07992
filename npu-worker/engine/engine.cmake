# The host engine's tests and its developer tool.
lockstep_binary(lockstep-engine-tool SOURCES engine/engine_tool_main.c USES engine jansson)
set_target_properties(lockstep-engine-tool PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
lockstep_test(lookup_test SOURCES engine/lookup_test.c USES engine)
lockstep_test(page_bytes_test SOURCES engine/page_bytes_test.c USES engine)
lockstep_test(rope_test SOURCES engine/rope_test.c USES engine)
lockstep_test(engine_test SOURCES engine/engine_test.c engine/model_file_test.c USES engine)
lockstep_fuzz(plan_fuzz SOURCES ${CMAKE_SOURCE_DIR}/tests/fuzz/plan_fuzz.c USES engine
	CORPUS ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/plan)
lockstep_test(variant_test SOURCES engine/variant_test.c engine/model_file_test.c USES engine)
