import { nextDueMs } from "@heddle/control/jobs/commands/clock";
import { Inject, type OnApplicationBootstrap } from "@nestjs/common";
import { MASTER_CONFIG } from "../config/config.module.ts";
import type { MasterConfig } from "../config/config.ts";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";
import { propose } from "../control-plane/propose.ts";
import { LeaderLoops } from "./leader-loops.ts";
import { Scheduling } from "./scheduling/scheduling.ts";
import { schedulingStep } from "./scheduling/scheduling-step.ts";

/** Pause between two plans, so that simultaneous changes are planned together. */
const PLAN_PAUSE_MS = 5;
const CLOCK_PAUSE_MS = 10;

/** Commands that cannot change a plan. */
const IRRELEVANT: ReadonlySet<string> = new Set(["key.create", "key.revoke", "jobs.progress"]);

/** Commands that cannot change a timer. */
const TIMELESS: ReadonlySet<string> = new Set([
  ...IRRELEVANT,
  "job.submit",
  "queue.set",
  "model.register",
  "model.remove",
  "deployment.scale",
  "deployment.configure",
]);

/** The leader's loops for the plans and the timers of jobs. */
export class JobLoops implements OnApplicationBootstrap {
  readonly #loops: LeaderLoops;
  readonly #control: ControlPlane;
  readonly #scheduling: Scheduling;
  readonly #acknowledgeMs: number;

  constructor(
    @Inject(LeaderLoops) loops: LeaderLoops,
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(Scheduling) scheduling: Scheduling,
    @Inject(MASTER_CONFIG) { jobTimes }: Pick<MasterConfig, "jobTimes">,
  ) {
    this.#loops = loops;
    this.#control = control;
    this.#scheduling = scheduling;
    this.#acknowledgeMs = jobTimes.acknowledgeMs;
  }

  onApplicationBootstrap(): void {
    const { cache, plans, cycles, placement } = this.#scheduling;
    const plan = { cache, plans, cycles, placement, control: this.#control };
    const scheduling = this.#loops.run({
      name: "scheduling",
      pauseMs: PLAN_PAUSE_MS,
      concerns: (command) => command === undefined || !IRRELEVANT.has(command.type),
      step: () => schedulingStep({ ...plan, acknowledgeMs: this.#acknowledgeMs }),
    });
    placement.onAnswer = () => scheduling.poke();
    this.#loops.run({
      name: "the clock of jobs",
      pauseMs: CLOCK_PAUSE_MS,
      concerns: (command) => command === undefined || !TIMELESS.has(command.type),
      step: () => this.#tick(),
    });
  }

  /** Fires due timers. Returns when the next is due. */
  async #tick(): Promise<number | undefined> {
    const control = this.#control;
    const due = nextDueMs(control.state, control.jobs);
    const nowMs = this.#loops.clock.wallMs();
    if (due === undefined || due > nowMs) return due;
    await propose(control, { type: "clock.tick", atMs: nowMs });
    return nextDueMs(control.state, control.jobs);
  }
}
