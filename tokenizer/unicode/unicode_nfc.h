/* tokenizer/unicode/unicode_nfc.h: for unicode.c alone. */
#pragma once

void unicode_nfc_init(void);
