import {
  type DetailedHealth,
  healthOperations,
  type MasterHealth,
} from "@heddle/contracts/api/health";
import type { QueryOf } from "@heddle/contracts/api/operation";
import { MetricsText } from "@heddle/observability/metrics-text";
import { Controller, Inject, Query, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { sendPieces } from "../../http/pieces.ts";
import { Serves } from "../../http/serves.ts";
import { ClusterReport } from "../../metrics/cluster-report.ts";

/** The operational paths: unversioned, and open to probes and scrapers. */
@Controller()
export class HealthController {
  readonly #report: ClusterReport;
  readonly #metrics: MetricsText;

  constructor(
    @Inject(ClusterReport) report: ClusterReport,
    @Inject(MetricsText) metrics: MetricsText,
  ) {
    this.#report = report;
    this.#metrics = metrics;
  }

  @Serves(healthOperations.health)
  health(): MasterHealth {
    return this.#report.briefHealth();
  }

  @Serves(healthOperations.detailed)
  detailed(): Promise<DetailedHealth> {
    return this.#report.health();
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
  async metrics(@Res() reply: FastifyReply): Promise<void> {
    sendPieces(reply, this.#metrics.contentType, await this.#metrics.pieces());
  }
}
