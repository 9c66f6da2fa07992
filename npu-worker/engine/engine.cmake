# The host engine's tests and its developer tool.
lockstep_binary(lockstep-engine-tool SOURCES engine/engine_tool_main.c USES engine jansson)
set_target_properties(lockstep-engine-tool PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
