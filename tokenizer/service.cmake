lockstep_room(tokenizer_service SOURCES tokenizer_service.c USES tokenizer shm services)
lockstep_binary(lockstep-tokenizer SOURCES main.c USES tokenizer_service)
