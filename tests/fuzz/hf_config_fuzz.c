/* tests/fuzz/hf_config_fuzz.c: any bytes as a config.json. What is accepted is written as GGUF's
 * keys and as JSON, and both must be readable again. */
#include <stdint.h>
#include <stdlib.h>

#include "model/hf_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct hf_config config, again;
	json_error_t where;
	struct svc_err err;
	struct buf text = {0};
	struct gguf_writer writer = {.n_pairs = 0};
	json_t *root = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, &where);
	if (root && hf_config_read(root, &config, &err) == SVC_OK) {
		hf_config_to_gguf(&config, "name", &writer);
		hf_config_to_json(&config, true, &text);
		json_t *back = json_loadb(text.ptr, text.len, 0, &where);
		if (!back || hf_config_read(back, &again, &err) != SVC_OK)
			abort();
		json_decref(back);
	}
	json_decref(root);
	buf_free(&text);
	gguf_writer_free(&writer);
	return 0;
}
