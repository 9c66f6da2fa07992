/* tokenizer/tok_write.h: a vocabulary as the files that Hugging Face's libraries read. */
#pragma once
#include "base/err.h"
#include "tokenizer/tokenizer.h"

/* Writes tokenizer.json and tokenizer_config.json of the GGUF file (or folder of one) at source
 * into folder: the same ids and texts. SVC_UNSUPPORTED: two tokens of one spelling, which that form
 * cannot hold; a vocabulary that doesn't come from a GGUF file. Otherwise tok_open's errors, or
 * SVC_IO. */
SVC_CHECKED enum svc_code tok_write_folder(const char *source, const char *folder,
					   struct svc_err *err);
