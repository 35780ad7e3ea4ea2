import { type Clock, systemClock } from "@heddle/base/clock";
import { nextDueMs } from "@heddle/control/jobs/commands/clock";
import type { Log } from "@heddle/observability/logger";
import type { JobTimes } from "../config/config.ts";
import { isActiveLeader } from "../control-plane/active-leader.ts";
import type { ControlPlane } from "../control-plane/control-plane.ts";
import { propose } from "../control-plane/propose.ts";
import type { NodeDirectory } from "../nodes/node-directory.ts";
import { NodeWatch } from "../nodes/node-watch.ts";
import { ServerWatch } from "../nodes/server-watch.ts";
import { LeaderLoop } from "./leader-loop.ts";
import { LeaseHold } from "./scheduling/lease-hold.ts";
import { createScheduling, type Scheduling } from "./scheduling/scheduling.ts";
import { schedulingStep } from "./scheduling/scheduling-step.ts";

export interface OrchestrationOptions {
  readonly control: ControlPlane;
  readonly directory: NodeDirectory;
  readonly logger: Log;
  readonly times: JobTimes;
  readonly clock?: Clock | undefined;
}

/** The leader's loops for jobs that need no connection to a worker. */
export interface Orchestration {
  readonly scheduling: Scheduling;
  close(): void;
}

/** Pause between two plans, so that simultaneous changes are planned together. */
const PLAN_PAUSE_MS = 5;
const CLOCK_PAUSE_MS = 10;
const WATCH_MS = 250;
/**
 * A parameter server is lost after this share of a worker's time: it cannot cause a double run, and
 * it must be lost before its workers' timeout.
 */
const SERVER_LOST_SHARE = 1 / 3;

/** Starts the loops; each is idle while another master leads. */
export function startOrchestration(options: OrchestrationOptions): Orchestration {
  const { control, directory, logger: log, clock = systemClock } = options;
  const { nodeLostMs, leaseMs, acknowledgeMs } = options.times;
  const parts = createScheduling(control, new LeaseHold(control, clock, leaseMs));
  const scheduling = new LeaderLoop({
    ...{ control, clock, log, name: "scheduling", pauseMs: PLAN_PAUSE_MS },
    concerns: (command) => command === undefined || !IRRELEVANT.has(command.type),
    step: () => schedulingStep({ ...parts, control, acknowledgeMs }),
  });
  const ticking = new LeaderLoop({
    ...{ control, clock, log, name: "the clock of jobs", pauseMs: CLOCK_PAUSE_MS },
    concerns: (command) => command === undefined || !TIMELESS.has(command.type),
    step: () => tickStep(control, clock),
  });
  const watch = new NodeWatch({ control, directory, clock, log, nodeLostMs, leaseMs });
  const serverLostMs = nodeLostMs * SERVER_LOST_SHARE;
  const servers = new ServerWatch({ control, directory, clock, log, serverLostMs });
  let looking = false;
  const timer = setInterval(() => {
    if (looking) return;
    if (!isActiveLeader(control)) {
      watch.reset();
      servers.reset();
      return;
    }
    looking = true;
    Promise.all([watch.check(), servers.check()])
      .catch((error: unknown) => log.warn({ err: String(error) }, "watching nodes: tried again"))
      .finally(() => {
        looking = false;
      });
  }, WATCH_MS);
  timer.unref();
  const close = () => {
    clearInterval(timer);
    scheduling.close();
    ticking.close();
  };
  return { scheduling: parts, close };
}

/** Commands that cannot change a plan. */
const IRRELEVANT: ReadonlySet<string> = new Set(["key.create", "key.revoke", "jobs.progress"]);

/** Commands that cannot change a timer. */
const TIMELESS: ReadonlySet<string> = new Set([
  ...IRRELEVANT,
  "job.submit",
  "queue.set",
  "model.register",
  "model.remove",
]);

/** Fires due timers. Returns when the next is due. */
async function tickStep(control: ControlPlane, clock: Clock): Promise<number | undefined> {
  const due = nextDueMs(control.state, control.jobs);
  const nowMs = clock.wallMs();
  if (due === undefined || due > nowMs) return due;
  await propose(control, { type: "clock.tick", atMs: nowMs });
  return nextDueMs(control.state, control.jobs);
}
