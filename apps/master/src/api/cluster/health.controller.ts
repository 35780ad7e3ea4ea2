import { Controller, Get, Inject, Query, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { Registry } from "prom-client";
import { Permit } from "../../http/access.ts";
import { ClusterReport } from "./cluster-report.ts";

/** The injection token of the metrics' registry. */
export const METRICS_REGISTRY = Symbol("metrics");

/** The operational paths: unversioned, and open to probes and scrapers. */
@Controller()
export class HealthController {
  readonly #report: ClusterReport;
  readonly #registry: Registry;

  constructor(
    @Inject(ClusterReport) report: ClusterReport,
    @Inject(METRICS_REGISTRY) registry: Registry,
  ) {
    this.#report = report;
    this.#registry = registry;
  }

  @Get("health")
  @Permit(
    "public",
    "Shows this master's version and uptime; degraded where nodes refuse its leader.",
  )
  health() {
    return this.#report.briefHealth();
  }

  @Get("health/detailed")
  @Permit("public", "Shows this master's components and what it uses of its machine.")
  detailed() {
    return this.#report.health();
  }

  @Get("healthz")
  @Permit("public", "Answers ok while this master runs.")
  healthz(@Res() reply: FastifyReply): void {
    reply.type("text/plain; charset=utf-8").send("ok\n");
  }

  @Get("livez")
  @Permit("public", "Answers ok while this master runs.")
  livez(@Res() reply: FastifyReply): void {
    reply.type("text/plain; charset=utf-8").send("ok\n");
  }

  @Get("readyz")
  @Permit("public", "Answers 200 while this master takes calls; `?verbose` lists the checks.")
  readyz(@Query() query: Record<string, unknown>, @Res() reply: FastifyReply): void {
    const checks = Object.entries(this.#report.readiness());
    const ready = checks.every(([, fault]) => fault === undefined);
    const lines = checks.map(([name, fault]) =>
      fault === undefined ? `[+]${name} ok` : `[-]${name} failed: ${fault}`,
    );
    const verdict = ready ? "ok" : "not ready";
    const shown = "verbose" in query || !ready ? [...lines, verdict] : [verdict];
    reply
      .code(ready ? 200 : 503)
      .type("text/plain; charset=utf-8")
      .send(`${shown.join("\n")}\n`);
  }

  @Get("metrics")
  @Permit("public", "Shows the metrics in Prometheus' text format.")
  async metrics(@Res() reply: FastifyReply): Promise<void> {
    const text = await this.#registry.metrics();
    reply.type(this.#registry.contentType).send(text);
  }
}
