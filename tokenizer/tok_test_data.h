/* tokenizer/tok_test_data.h: tokenizers small enough to reason about, for the unit tests and the
 * fuzz targets. */
#pragma once

/* Byte level. The alphabet a b c space(Ġ) newline(Ċ) < | > e n d and both bytes of "é"; merges ab,
 * abc, Ġa. */
#define TOK_TEST_BYTE_LEVEL                                                                        \
	"{\"added_tokens\":["                                                                      \
	"{\"id\":20,\"content\":\"<|end|>\",\"special\":true,\"normalized\":false},"               \
	"{\"id\":21,\"content\":\"<think>\",\"special\":false,\"normalized\":false},"              \
	"{\"id\":22,\"content\":\"<s>\",\"special\":true,\"normalized\":false}],"                  \
	"\"normalizer\":{\"type\":\"NFC\"},"                                                       \
	"\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}" \
	","                                                                                        \
	"\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["                         \
	"{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},{\"Sequence\":{\"id\":\"A\"}}],"        \
	"\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[22]}}},"                             \
	"\"decoder\":{\"type\":\"ByteLevel\"},"                                                    \
	"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"\xC4\xA0\":3,"           \
	"\"\xC4\x8A\":4,\"<\":5,\"|\":6,\">\":7,\"e\":8,\"n\":9,\"d\":10,\"\xC3\x83\":11,"         \
	"\"\xC2\xA9\":12,\"ab\":13,\"abc\":14,\"\xC4\xA0"                                          \
	"a\":15,\"aa\":16,\"s\":17},"                                                              \
	"\"merges\":[\"a b\",\"ab c\",\"\xC4\xA0 a\",\"a a\"]}}"

/* SentencePiece BPE with byte fallback for "é", and "▁" before the text. */
#define TOK_TEST_SENTENCEPIECE                                                                  \
	"{\"added_tokens\":["                                                                   \
	"{\"id\":0,\"content\":\"<unk>\",\"special\":true,\"normalized\":false},"               \
	"{\"id\":1,\"content\":\"</s>\",\"special\":true,\"normalized\":false}],"               \
	"\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["                               \
	"{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"},"                                  \
	"{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"}]}," \
	"\"decoder\":{\"type\":\"Sequence\",\"decoders\":["                                     \
	"{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xE2\x96\x81\"},\"content\":\" \"},"   \
	"{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"                                      \
	"{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]},"                      \
	"\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\",\"fuse_unk\":true,"                \
	"\"byte_fallback\":true,\"vocab\":{\"<unk>\":0,\"</s>\":1,\"\xE2\x96\x81\":2,\"a\":3,"  \
	"\"b\":4,\"ab\":5,\"\xE2\x96\x81"                                                       \
	"ab\":6,\"<0xC3>\":7,\"<0xA9>\":8,\"<\":9,\"/\":10,"                                    \
	"\"s\":11,\">\":12},\"merges\":[[\"a\",\"b\"],[\"\xE2\x96\x81\",\"ab\"]]}}"

#define TOK_TEST_UNIGRAM                                                                   \
	"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\","     \
	"\"prepend_scheme\":\"always\"},\"decoder\":{\"type\":\"Metaspace\","              \
	"\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"always\"},"                 \
	"\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":false,\"vocab\":[" \
	"[\"<unk>\",0],[\"\xE2\x96\x81\",-2],[\"a\",-3],[\"b\",-3],[\"ab\",-4.5],"         \
	"[\"\xE2\x96\x81"                                                                  \
	"a\",-3.5],[\"abb\",-10]]}}"
