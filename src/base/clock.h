/* Time: a monotonic clock in seconds and a short sleep. */
#ifndef HOP_BASE_CLOCK_H
#define HOP_BASE_CLOCK_H

double hop_clock_now(void);
void hop_clock_sleep(double seconds);

#endif
