/* Seconds, bytes and counts as people read them: three digits and a unit. */
#ifndef HOP_REPORT_QUANTITY_H
#define HOP_REPORT_QUANTITY_H

/* Text of one quantity, passed by value so that several fit into one printf. */
struct hop_quantity {
    char text[32];
};

/* "41.2 ms", "23 s". What is not finite is "-". */
struct hop_quantity hop_quantity_seconds(double seconds);
/* "5.2 GiB". */
struct hop_quantity hop_quantity_bytes(double bytes);
/* "3.21 G", "294912": in thousands from a million on. */
struct hop_quantity hop_quantity_count(double count);
/* Three digits without a unit: "0.34", "1234". */
struct hop_quantity hop_quantity_number(double value);

#endif
