import {
  type DetailedHealth,
  healthOperations,
  type MasterHealth,
} from "@heddle/contracts/api/health";
import type { QueryOf } from "@heddle/contracts/api/operation";
import { MetricsText } from "@heddle/observability/metrics-text";
import { Controller, Inject, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { AccessSeed } from "../../control-plane/access-seed.ts";
import type { CallerRequest } from "../../http/access.ts";
import { sendPieces } from "../../http/pieces.ts";
import { Serves } from "../../http/serves.ts";
import { ClusterReport } from "../../metrics/cluster-report.ts";
import { PUBLIC_METRICS, seesAllSeries } from "../../metrics/tenant-series.ts";

/** Ends the metrics of callers who do not see all. */
const LEFT_OUT = Buffer.from(
  "# Series of projects, jobs and models of one project are left out. They need a key with cluster:read and jobs:read in the whole cluster.\n",
);

/** The operational paths: unversioned, and open to probes and scrapers. */
@Controller()
export class HealthController {
  readonly #report: ClusterReport;
  readonly #metrics: MetricsText;
  readonly #publicMetrics: MetricsText;
  readonly #seed: AccessSeed;

  constructor(
    @Inject(ClusterReport) report: ClusterReport,
    @Inject(MetricsText) metrics: MetricsText,
    @Inject(PUBLIC_METRICS) publicMetrics: MetricsText,
    @Inject(AccessSeed) seed: AccessSeed,
  ) {
    this.#seed = seed;
    this.#report = report;
    this.#metrics = metrics;
    this.#publicMetrics = publicMetrics;
  }

  @Serves(healthOperations.health)
  health(): MasterHealth {
    return this.#report.briefHealth();
  }

  @Serves(healthOperations.detailed)
  detailed(): Promise<DetailedHealth> {
    return this.#report.health(this.#seed.fault);
  }

  @Serves(healthOperations.healthz)
  async healthz(@Res() reply: FastifyReply): Promise<void> {
    await reply.type("text/plain; charset=utf-8").send("ok\n");
  }

  @Serves(healthOperations.livez)
  async livez(@Res() reply: FastifyReply): Promise<void> {
    await reply.type("text/plain; charset=utf-8").send("ok\n");
  }

  @Serves(healthOperations.readyz)
  async readyz(
    @Query() query: QueryOf<typeof healthOperations.readyz>,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const checks = Object.entries(this.#report.readiness());
    const ready = checks.every(([, fault]) => fault === undefined);
    const lines = checks.map(([name, fault]) =>
      fault === undefined ? `[+]${name} ok` : `[-]${name} failed: ${fault}`,
    );
    const verdict = ready ? "ok" : "not ready";
    const shown = query.verbose !== undefined || !ready ? [...lines, verdict] : [verdict];
    await reply
      .code(ready ? 200 : 503)
      .type("text/plain; charset=utf-8")
      .send(`${shown.join("\n")}\n`);
  }

  @Serves(healthOperations.metrics)
  async metrics(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    const { contentType } = this.#metrics;
    if (seesAllSeries(request.caller)) {
      return void sendPieces(reply, contentType, await this.#metrics.pieces());
    }
    sendPieces(reply, contentType, [...(await this.#publicMetrics.pieces()), LEFT_OUT]);
  }
}
