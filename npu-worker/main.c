#include "npu-worker/worker.h"

int main(int argc, char **argv)
{
	return svc_main(&worker_spec, argc, argv);
}
