#include "sampler/smp_service.h"

int main(int argc, char **argv)
{
	return svc_main(&sampler_spec, argc, argv);
}
