/* Sizes, rates and times as people write them: "7GiB", "100Mbps", "0.3ms". */
#ifndef HOP_IO_UNITS_H
#define HOP_IO_UNITS_H

#include <stdbool.h>

enum hop_unit_kind { HOP_UNIT_BYTES, HOP_UNIT_RATE, HOP_UNIT_SECONDS };

/* A non-negative number and one of the units of its kind, with or without space between. A rate
 * comes out in bytes a second. */
bool hop_unit_parse(const char *text, enum hop_unit_kind kind, double *out);
/* What to write, for messages: "a size such as 7GiB or 512MB". */
const char *hop_unit_example(enum hop_unit_kind kind);

#endif
