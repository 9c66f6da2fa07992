/* config.json: what is read, what is refused by name, and the way through GGUF's keys and back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model/hf_config.h"

#define BASE                                                                           \
	"\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":128,"       \
	"\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2," \
	"\"vocab_size\":300,\"max_position_embeddings\":512,\"rms_norm_eps\":1e-5"

static enum svc_code read_text(const char *text, struct hf_config *ret, struct svc_err *err)
{
	json_error_t where;
	json_t *root = json_loads(text, 0, &where);
	assert_non_null(root);
	enum svc_code code = hf_config_read(root, ret, err);
	json_decref(root);
	return code;
}

static void test_defaults(void **unused)
{
	static struct hf_config c;
	struct svc_err err = {0};
	(void)unused;
	assert_int_equal(
		read_text("{" BASE ",\"eos_token_id\":[5,6,5],\"bos_token_id\":null}", &c, &err),
		SVC_OK);
	assert_int_equal(c.arch, HF_LLAMA);
	assert_int_equal(c.head_dim, 16);
	assert_int_equal(c.rope_dims, 16);
	assert_true(c.rope.theta == 10000.0);
	assert_int_equal(c.n_ends, 2);
	assert_int_equal(c.ends[1], 6);
	assert_int_equal(c.bos, -1);
	assert_false(c.tied);
}

static void test_what_changes_the_mathematics_is_refused_by_name(void **unused)
{
	static const struct {
		const char *more, *said;
	} cases[] = {
		{",\"embedding_multiplier\":12.0", "embedding_multiplier"},
		{",\"residual_multiplier\":0.22", "residual_multiplier"},
		{",\"logits_scaling\":8", "logits_scaling"},
		{",\"attention_multiplier\":0.01", "attention_multiplier"},
		{",\"logit_scale\":0.0625", "logit_scale"},
		{",\"final_logit_softcapping\":30.0", "final_logit_softcapping"},
		{",\"attn_logit_softcapping\":50.0", "attn_logit_softcapping"},
		{",\"query_pre_attn_scalar\":256", "query_pre_attn_scalar"},
		{",\"hidden_act\":\"relu\"", "hidden_act"},
		{",\"mlp_bias\":true", "mlp_bias"},
		{",\"num_local_experts\":8", "num_local_experts"},
		{",\"sliding_window\":256", "sliding_window"},
		{",\"rope_scaling\":{\"rope_type\":\"mrope\"}", "mrope"},
		{",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4,\"mscale\":0.7}",
		 "mscale"},
		{",\"rope_scaling\":{\"rope_type\":\"linear\"}", "factor"},
		{",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}", "low_freq_factor"},
		{",\"rope_scaling\":{\"rope_type\":\"longrope\"}", "long_factor"},
		{",\"partial_rotary_factor\":1.5", "partial_rotary_factor"},
		{",\"never_heard_of\":1", "never_heard_of"},
		{",\"eos_token_id\":300", "eos_token_id[0]"},
		{",\"eos_token_id\":[\"x\"]", "eos_token_id[0]"},
		{",\"head_dim\":0", "head_dim"},
		{",\"tie_word_embeddings\":1", "tie_word_embeddings"},
	};
	(void)unused;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		static struct hf_config c;
		struct svc_err err = {0};
		char text[1024];
		snprintf(text, sizeof text, "{" BASE "%s}", cases[i].more);
		enum svc_code code = read_text(text, &c, &err);
		assert_true(code == SVC_BAD_MODEL || code == SVC_UNSUPPORTED);
		if (!strstr(err.msg, cases[i].said))
			fail_msg("%s: %s", cases[i].more, err.msg);
	}
}

static void test_the_values_at_which_they_mean_nothing_are_fine(void **unused)
{
	static struct hf_config c;
	struct svc_err err = {0};
	(void)unused;
	assert_int_equal(read_text("{" BASE ",\"embedding_multiplier\":1.0,\"logits_scaling\":1,"
				   "\"mlp_bias\":false,\"rope_scaling\":null,\"sliding_window\":"
				   "512,\"_name_or_path\":\"x\",\"final_logit_softcapping\":null}",
				   &c, &err),
			 SVC_OK);
}

static void test_gemma(void **unused)
{
	static struct hf_config c;
	struct svc_err err = {0};
	char text[1024];
	(void)unused;
	snprintf(text, sizeof text, "{\"model_type\":\"gemma3_text\",%s%s}", strchr(BASE, ',') + 1,
		 ",\"head_dim\":16,\"query_pre_attn_scalar\":64,\"sliding_window\":32,"
		 "\"layer_types\":[\"sliding_attention\",\"full_attention\"],"
		 "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":8,"
		 "\"rope_theta\":5e5},\"sliding_attention\":{\"rope_type\":\"default\","
		 "\"rope_theta\":2e4}}");
	assert_int_equal(read_text(text, &c, &err), SVC_OK);
	assert_true(c.tied);
	assert_true(c.attn_scale == 0.125);
	assert_true(c.rope.theta == 5e5 && c.theta_local == 2e4 && c.rope.factor == 8);
	assert_string_equal(c.rope.type, "linear");
	assert_true(c.windowed[0] && !c.windowed[1]);
}

/* What is written as config.json is read back as the same. */
static void test_json_and_back(void **unused)
{
	static struct hf_config a, b;
	struct svc_err err = {0};
	struct buf text = {0};
	(void)unused;
	assert_int_equal(
		read_text("{" BASE ",\"tie_word_embeddings\":true,\"bos_token_id\":1,"
			  "\"eos_token_id\":[2,3],\"rope_scaling\":{\"rope_type\":\"llama3\","
			  "\"factor\":32.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
			  "\"original_max_position_embeddings\":128}}",
			  &a, &err),
		SVC_OK);
	hf_config_to_json(&a, true, &text);
	assert_int_equal(read_text(text.ptr, &b, &err), SVC_OK);
	assert_memory_equal(&a, &b, sizeof a);
	assert_int_equal(hf_config_compare(&a, &b, &err), SVC_OK);
	b.rope.theta = 5e5;
	assert_int_equal(hf_config_compare(&a, &b, &err), SVC_BAD_MODEL);
	assert_non_null(strstr(err.msg, "rope_theta"));
	buf_free(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),
		cmocka_unit_test(test_what_changes_the_mathematics_is_refused_by_name),
		cmocka_unit_test(test_the_values_at_which_they_mean_nothing_are_fine),
		cmocka_unit_test(test_gemma),
		cmocka_unit_test(test_json_and_back),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
