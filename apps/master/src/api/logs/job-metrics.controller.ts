import { jobOperations, type MetricsQuery } from "@heddle/contracts/api/job-operations";
import type { JobMetrics } from "@heddle/contracts/api/job-replies";
import { readMetricRecord } from "@heddle/contracts/metrics/metric-record";
import { Controller, Inject, Param, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import type { CallerRequest } from "../../http/access.ts";
import { closedSignal } from "../../http/drained.ts";
import { requestCaller } from "../../http/identity/caller.ts";
import { Serves } from "../../http/serves.ts";
import { LogReader } from "../../task-output/log-reader.ts";
import { requireLogsOf } from "../jobs/job-access.ts";
import { MetricCurves } from "./metric-curves.ts";

/** The attempts of one answer: the latest. */
const MAX_ATTEMPTS = 32;

/** `GET /jobs/{id}/metrics`: the numbers that a task of the job has reported. */
@Controller()
export class JobMetricsController {
  readonly #reader: LogReader;
  readonly #control: Pick<ControlPlane, "state">;

  constructor(
    @Inject(LogReader) reader: LogReader,
    @Inject(CONTROL_PLANE) control: Pick<ControlPlane, "state">,
  ) {
    this.#reader = reader;
    this.#control = control;
  }

  @Serves(jobOperations.metrics)
  async metrics(
    @Param("id") id: string,
    @Query() { name, attempt, rank, from, to, points }: MetricsQuery,
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
  ): Promise<JobMetrics> {
    const { state } = this.#control;
    requireLogsOf(state, id, requestCaller(request));
    const latest = state.jobs.get(id)?.attempt ?? 1;
    const asked = {
      jobId: id,
      attempt,
      fromAttempt: Math.max(1, latest + 1 - MAX_ATTEMPTS),
      ranks: [rank],
      streams: ["metrics" as const],
      follow: false,
    };
    const curves = new MetricCurves({ names: name, from, to, points });
    for await (const { items } of await this.#reader.read(asked, closedSignal(reply))) {
      for (const { name: log, text, unixMs } of items) {
        const record = readMetricRecord(text.toString());
        const { attempt: of, incarnation = 0 } = log;
        if (record) curves.add({ attempt: of, incarnation }, record, unixMs);
      }
    }
    return { object: "job_metrics", job_id: id, rank, ...curves.answer };
  }
}
