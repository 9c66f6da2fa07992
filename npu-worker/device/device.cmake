# The NPU: what the worker needs to look for one is always there; the module over XRT is built where libxrt-dev is.
lockstep_room(device SOURCES device/probe.c device/device.c device/manifest.c device/manifest_stream.c device/products.c
	device/area.c device/layers.c device/layers_work.c device/backoff.c
	USES base engine jansson libxxhash)
target_link_libraries(lockstep_device PUBLIC ${CMAKE_DL_LIBS})
pkg_check_modules(pc_xrt QUIET IMPORTED_TARGET xrt)
if(pc_xrt_FOUND)
	enable_language(CXX)
	add_library(lockstep-xrt MODULE device/xrt_module.cpp)
	target_compile_features(lockstep-xrt PRIVATE cxx_std_17)
	target_compile_options(lockstep-xrt PRIVATE -Wall -Wextra -fvisibility=hidden)
	target_include_directories(lockstep-xrt PRIVATE ${CMAKE_SOURCE_DIR})
	target_include_directories(lockstep-xrt SYSTEM PRIVATE ${pc_xrt_INCLUDE_DIRS})
	target_link_libraries(lockstep-xrt PRIVATE PkgConfig::pc_xrt)
	set_target_properties(lockstep-xrt PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endif()
lockstep_test(manifest_test SOURCES device/manifest_test.c USES device)
lockstep_fuzz(manifest_fuzz SOURCES ${CMAKE_SOURCE_DIR}/tests/fuzz/manifest_fuzz.c USES device
	CORPUS ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/manifest)
lockstep_test(backoff_test SOURCES device/backoff_test.c USES device)
