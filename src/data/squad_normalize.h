/* The normal form in which SQuAD's official script compares answers: lower case, without ASCII
 * punctuation, without the words a, an and the, one space between words.
 *
 * The script is Python, so its notions of letters and spaces are Python's: lower() maps "İ" to two
 * characters and knows the final sigma; \b stands between letters or digits of any script and
 * everything else, marks included; split() also splits at U+00A0, U+3000 and U+001C to U+001F. */
#ifndef HOP_DATA_SQUAD_NORMALIZE_H
#define HOP_DATA_SQUAD_NORMALIZE_H

#include "base/error.h"
#include "base/string.h"

/* out = the normal form; what was in it is gone. Bytes that are not UTF-8 count as U+FFFD. */
hop_status hop_squad_normalize(const char *text, struct hop_string *out, struct hop_error *err);

#endif
