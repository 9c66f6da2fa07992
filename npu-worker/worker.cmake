lockstep_room(worker SOURCES worker.c schedule.c pace.c batch.c ahead.c trial.c guess.c drafts.c drafter.c worth.c cache.c sequence.c store.c weights.c npu.c pool.c USES base shm draw services engine device libxxhash liblz4)
lockstep_binary(lockstep-npu-worker SOURCES main.c USES worker)
lockstep_test(pace_test SOURCES pace_test.c USES worker)
lockstep_test(trial_test SOURCES trial_test.c USES worker)
lockstep_test(worth_test SOURCES worth_test.c USES worker)
lockstep_test(store_test SOURCES store_test.c USES worker)
lockstep_fuzz(store_fuzz SOURCES ${CMAKE_SOURCE_DIR}/tests/fuzz/store_fuzz.c USES worker
	CORPUS ${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/store)
