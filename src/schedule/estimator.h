/* What an estimator asks of a plan: which parts run probes, keep activations and take gradients.
 * Schedules, checker, prices and runtime all ask here.
 *
 * With h(theta) the output of the zeroth-order parts and L the loss behind it, probe q of a
 * micro-batch gives a directional derivative g_q:
 *
 *     difference   (L(theta + eps z_q) - L(theta)) / eps          PROBEs on every part
 *     central      (L(theta + eps z_q) - L(theta - eps z_q)) / (2 eps)         the same, twice
 *     boundary     <delta, J z_q>, delta = dL/dh          PROBEs (tangents) on zeroth-order parts,
 *                                                         one DELTA a micro-batch on the last one
 *     exit probe   as difference or central, with the loss of an output layer on the last
 *                  zeroth-order part                      EXIT_PROBEs on zeroth-order parts
 *
 * and the gradient is the mean of g_q z_q over all Q + Q' probes. With HOP_PER_SAMPLE every sample
 * of the micro-batch has its own z and g, and g_q z_q is their sum.
 *
 *     feedback     delta stands for the gradient of the output of the last feedback_blocks blocks:
 *                  exact for the last one, and elsewhere as if the blocks behind were the identity,
 *                  which their residual streams nearly are. The adapters of o_proj and down_proj,
 *                  which write into the stream, get the gradient that follows from it by products
 *                  of matrices alone; all others stay as they are. One DELTA a micro-batch on
 *                  every part with such a block, no probes. */
#ifndef HOP_SCHEDULE_ESTIMATOR_H
#define HOP_SCHEDULE_ESTIMATOR_H

#include "schedule/schedule.h"

/* The last zeroth-order part of a line, or -1. */
int32_t hop_plan_last_zeroth_order(const struct hop_plan *plan);
/* The first block that feedback trains, the number of blocks where there is none. */
int32_t hop_plan_feedback_lo(const struct hop_plan *plan);
/* Does the part have PROBEs, when the plan has probes? */
bool hop_plan_runs_probes(const struct hop_plan *plan, int32_t part);
/* Does it have EXIT_PROBEs, when the plan has exit probes? */
bool hop_plan_runs_exit_probes(const struct hop_plan *plan, int32_t part);
/* Forward passes of one probe. */
int32_t hop_estimator_passes(enum hop_estimator estimator);
int32_t hop_plan_passes(const struct hop_plan *plan);
/* What takes the gradient of the part's output: HOP_BACKWARD, HOP_DELTA, or HOP_TASK_KINDS:
 * nothing. */
enum hop_task_kind hop_plan_gradient_task(const struct hop_plan *plan, int32_t part);
/* Does a FORWARD of the part keep activations, until the task of hop_plan_frees()? */
bool hop_plan_keeps(const struct hop_plan *plan, int32_t part);
/* Does it keep the tangents of its PROBEs, until the DELTA of their micro-batch? */
bool hop_plan_keeps_tangents(const struct hop_plan *plan, int32_t part);
/* The kind of task whose (last) one of a micro-batch frees what FORWARD kept: HOP_BACKWARD;
 * HOP_PROBE for tangents; HOP_DELTA for feedback; HOP_TASK_KINDS: nothing is kept. */
enum hop_task_kind hop_plan_frees(const struct hop_plan *plan, int32_t part);
/* Which task computes the derivatives of probes, and on which part: HOP_PROBE of the head, or
 * HOP_DELTA of the last zeroth-order part. HOP_TASK_KINDS: the plan has none. Those of exit probes
 * come from the EXIT_PROBEs of the last zeroth-order part. */
enum hop_task_kind hop_plan_derivative_task(const struct hop_plan *plan, int32_t *part);
/* Does the FORWARD of the last zeroth-order part also compute the loss of its output layer, which
 * the EXIT_PROBEs are compared with? */
bool hop_plan_has_exit_base(const struct hop_plan *plan);
/* Does the FORWARD of the head send its loss to the STEPs of zeroth-order parts? */
bool hop_plan_sends_base_loss(const struct hop_plan *plan);
/* Does the plan's estimator know exit probes? Boundary and feedback need none. */
bool hop_estimator_has_exit(enum hop_estimator estimator);

#endif
