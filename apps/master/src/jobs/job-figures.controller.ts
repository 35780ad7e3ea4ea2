import { Controller, Get, Inject, UseInterceptors } from "@nestjs/common";
import { Permit } from "../http/access.ts";
import { Consistency } from "../http/consistency.ts";
import { CONTROL_PLANE, type ControlPlane } from "../ports.ts";
import { jobFigures } from "./job-figures.ts";
import { PlanBook } from "./plan-book.ts";

@Controller("api/v1/cluster/jobs")
export class JobFiguresController {
  readonly #control: ControlPlane;
  readonly #plans: PlanBook;

  constructor(@Inject(CONTROL_PLANE) control: ControlPlane, @Inject(PlanBook) plans: PlanBook) {
    this.#control = control;
    this.#plans = plans;
  }

  @Get()
  @UseInterceptors(Consistency)
  @Permit("cluster:read", "Figures of jobs: by state, why they wait, GPUs idle, GPU-hours.")
  figures() {
    const { state, jobs } = this.#control;
    const blockers = this.#plans.allBlockers();
    const rounds = this.#plans.rounds.figures();
    const refusals = this.#plans.refusals.counts();
    return jobFigures(state, jobs, { blockers, rounds, refusals, nowMs: Date.now() });
  }
}
