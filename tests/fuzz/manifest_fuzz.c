/* tests/fuzz/manifest_fuzz.c: any bytes as the manifest of an NPU kernel folder; the streams of
 * what is accepted are made for several numbers of tokens. */
#include <stdint.h>

#include "npu-worker/device/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint32_t words[MANIFEST_MAX_WORDS];
	char text[64];
	json_error_t where;
	struct manifest *m = NULL;
	json_t *root = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, &where);
	if (root && manifest_read(root, "/folder", &m, NULL) == SVC_OK) {
		manifest_list(m, text, sizeof text);
		for (uint32_t i = 0; i < m->n_products; i++)
			for (uint32_t tokens = 1; tokens <= m->max_tokens; tokens *= 3)
				manifest_product_words(&m->products[i], tokens, UINT64_MAX, 1,
						       words);
		for (uint32_t i = 0; i < m->n_layers; i++)
			manifest_derive(&m->layers[i].stream, m->max_tokens, 65, words);
		manifest_close(m);
	}
	json_decref(root);
	return 0;
}
