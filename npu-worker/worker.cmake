lockstep_room(worker SOURCES worker.c schedule.c batch.c ahead.c sequence.c weights.c USES base shm services engine libxxhash)
lockstep_binary(lockstep-npu-worker SOURCES main.c USES worker)
