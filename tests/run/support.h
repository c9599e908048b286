/* What the run tests share: they start the built program as a user does and read what it leaves.
 *
 * A helper that cannot do its work fails the running test and says why. Strings and JSON values
 * that helpers return stay valid to the end of the test program. */
#ifndef HOP_TESTS_RUN_SUPPORT_H
#define HOP_TESTS_RUN_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/dtype.h"
#include "base/error.h"

/* support.c: the scratch folder and comparisons */

/* A printed string. */
const char *text(const char *format, ...) HOP_PRINTF(1, 2);
/* Path of a file in a folder that is removed at the end (HYBRIDOP_KEEP=1 in the environment keeps
 * it). */
const char *scratch(const char *format, ...) HOP_PRINTF(1, 2);
/* Writes a file in the scratch folder, which may lie in folders of its own. Returns its path. */
const char *write_bytes(const char *name, const void *bytes, size_t n);
const char *write_text(const char *name, const char *format, ...) HOP_PRINTF(2, 3);
const char *read_text(const char *path);
bool file_exists(const char *path);
/* A path below $HYBRIDOP_TESTDATA or ../shared/testdata; skips the test with a reason when absent.
 */
const char *test_data(const char *name);
json_t *read_json(const char *path);
/* Takes the reference. */
json_t *keep_json(json_t *value);
const char *dump_json(const json_t *value);
/* A copy. */
const void *keep_bytes(const void *bytes, size_t n);

/* |actual - expected| <= tolerance * |expected|; prints both. */
void assert_near(const char *what, double actual, double expected, double tolerance);
void assert_holds(const char *what, const char *whole, const char *part);

/* support_process.c: programs */

struct process {
    pid_t pid;
    bool running;
    int status; /* exit status, or 128 + signal */
    double started, seconds;
    const char *command, *out, *err; /* what it printed so far */
    const char *out_path, *err_path;
};

/* Starts $HYBRIDOP with the arguments, up to NULL. */
struct process start_program(const char *const *arguments);
/* False when it still runs after `seconds`. */
bool wait_program(struct process *process, double seconds);
/* start and wait; a run longer than `seconds` is ended and fails the test. */
struct process run_program(double seconds, const char *const *arguments);
#define RUN(...) run_program(60, (const char *const[]){__VA_ARGS__, NULL})

/* The rank's process below `process`, waited for; 0 when it does not come. */
pid_t find_rank(const struct process *process, int rank);
/* SIGKILL to the program and everything below it. */
void kill_tree(struct process *process);
/* Seconds of CPU time the process has used. */
double cpu_seconds(pid_t pid);
/* Every process started by this test program must be gone within `seconds`. */
void assert_all_gone(double seconds);

void assert_success(const struct process *process);
/* The exit status, exactly one "hybridop: error: " line, holding every part (up to NULL). */
void check_refused(const struct process *process, int status, const char *const *parts);
#define ASSERT_REFUSED(process, status, ...)                                                       \
    check_refused((process), (status), (const char *const[]){__VA_ARGS__, NULL})

/* support_input.c: models, rows, clusters, jobs */

struct model {
    int blocks, hidden, vocabulary, shards;
    enum hop_dtype dtype; /* of the tensors; F16 as well */
    bool untied;
    uint64_t seed;
};
/* A LLaMA with random weights; zeros become 4 blocks, hidden 32, vocabulary 64, one file. */
const char *write_model(const char *name, struct model model);
/* tokenizer.json in a folder of the scratch folder: the printable ASCII characters, space and line
 * break, one token each, 102 with the special ones. */
void write_ascii_tokenizer(const char *folder);
/* Rows of tokens, each with labels on its last third. */
const char *write_rows(const char *name, int count, int shortest, int longest, int vocabulary);
/* A device for each letter: N is BP-free (npu0, npu1, ...), B BP-capable (gpu0, ...). `extra` are
 * further lines of the file. One thread each. */
const char *write_cluster(const char *devices, int threads, const char *extra);
/* The numeric backend under test: cpu where it is built, else reference. */
const char *backend(void);
/* A job of small steps on these files, over all devices of its cluster; further lines come from
 * `extra`. */
const char *write_job(const char *name, const char *model, const char *rows, const char *extra);

/* support_result.c: running jobs and reading run folders */

/* `hybridop train JOB --set output=RUN ...`: texts without dashes become --set options. */
struct process start_train(const char *job, const char *run, const char *const *settings);
struct process train(const char *job, const char *run, const char *const *settings);
#define TRAIN(job, run, ...) train((job), (run), (const char *const[]){__VA_ARGS__, NULL})
#define START(job, run, ...) start_train((job), (run), (const char *const[]){__VA_ARGS__, NULL})

/* Objects of metrics.jsonl. */
json_t *read_metrics(const char *run);
int count_steps(const json_t *metrics);
/* The training line of a step; there must be exactly one. */
const json_t *step_line(const json_t *metrics, int step);
/* A number of an object; it must be there. */
double number(const json_t *object, const char *key);

void assert_same_file(const char *a, const char *b);
void assert_same_adapter(const char *run_a, const char *run_b);
/* ||a - b|| / ||b|| of two adapter folders; their tensors must have the same names and shapes. */
double adapter_distance(const char *a, const char *b);
/* These keys of every training line are the same number, to the last bit or within `tolerance`. */
void assert_same_lines(const char *run_a, const char *run_b, double tolerance,
                       const char *const *keys);
#define ASSERT_SAME_LINES(a, b, tolerance, ...)                                                    \
    assert_same_lines((a), (b), (tolerance), (const char *const[]){__VA_ARGS__, NULL})

/* support_prediction.c: what the simulator says of a run */

/* Simulated seconds of a full mini-batch by the run's plan and cost table, times the time_scale of
 * its emulated devices. */
double predicted_seconds(const char *run);
/* Of the steps after the first, which warms up. */
double median_seconds(const char *run);
/* The tasks of a step ran on every device in the simulated order, and each started when simulated,
 * up to `tolerance` of the whole. */
void assert_predicted_tasks(const char *run, int step, double tolerance);

#endif
