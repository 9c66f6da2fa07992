#include "keeper/keeper.h"

int main(int argc, char **argv)
{
	return svc_main(&keeper_spec, argc, argv);
}
