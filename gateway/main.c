#include "gateway/gw_service.h"

int main(int argc, char **argv)
{
	return svc_main(&gateway_spec, argc, argv);
}
