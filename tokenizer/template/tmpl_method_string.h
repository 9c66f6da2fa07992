/* tokenizer/template/tmpl_method_string.h: the methods of strings. Internal to tmpl_*.c. */
#pragma once
#include "tokenizer/template/tmpl_program.h"

extern const struct tmpl_builtin tmpl_string_methods[];
extern const size_t tmpl_string_method_count;
