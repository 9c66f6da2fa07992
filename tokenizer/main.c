#include "tokenizer/tokenizer_service.h"

int main(int argc, char **argv)
{
	return svc_main(&tokenizer_spec, argc, argv);
}
