import { AppError } from "@heddle/base/errors";
import {
  type ClusterMetricsReply,
  type ClusterResourcesReply,
  type ClusterStatusReply,
  clusterMetricsReply,
  clusterResourcesReply,
  clusterStatusReply,
  transferRequest,
} from "@heddle/contracts/cluster";
import { validate } from "@heddle/contracts/validation";
import {
  Controller,
  Delete,
  Get,
  HttpCode,
  Inject,
  Param,
  Post,
  Query,
  Req,
  Res,
} from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { ControlGroup } from "../../control-plane/control-group.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { type CallerRequest, Permit } from "../../http/access.ts";
import { parseJsonBody } from "../../http/json-body.ts";
import type { RouteInfo } from "../../http/route-table.ts";
import { ClusterMetrics } from "../../metrics/cluster-metrics.ts";
import { ClusterReport } from "./cluster-report.ts";

/** The injection token of the table of all routes. */
export const ROUTES = Symbol("routes");

@Controller("api/v1")
export class ClusterController {
  readonly #report: ClusterReport;
  readonly #routes: readonly RouteInfo[];
  readonly #control: ControlPlane;
  readonly #metrics: ClusterMetrics;

  constructor(
    @Inject(ClusterReport) report: ClusterReport,
    @Inject(ROUTES) routes: readonly RouteInfo[],
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(ClusterMetrics) metrics: ClusterMetrics,
  ) {
    this.#report = report;
    this.#routes = routes;
    this.#control = control;
    this.#metrics = metrics;
  }

  @Get("cluster/status")
  @Permit("cluster:read", "Shows the cluster's masters, nodes, models and running calls.")
  async status(): Promise<ClusterStatusReply> {
    return clusterStatusReply.parse(await this.#report.status());
  }

  @Get("cluster/metrics")
  @Permit(
    "cluster:read",
    "Shows the cluster's figures: nodes, GPUs, calls, tokens, queues, jobs, Raft.",
  )
  async metrics(): Promise<ClusterMetricsReply> {
    return clusterMetricsReply.parse(await this.#metrics.metrics());
  }

  @Get("cluster/resources")
  @Permit(
    "cluster:read",
    "Shows what each node offers, what is in use and what is left for jobs, and the sums.",
  )
  resources(): ClusterResourcesReply {
    return clusterResourcesReply.parse(this.#metrics.resources());
  }

  @Get("endpoints")
  @Permit("authenticated", "Lists every route and the permission that it needs.")
  endpoints() {
    return { object: "list", data: this.#routes };
  }

  @Post("cluster/transfer")
  @HttpCode(202)
  @Permit("cluster:admin", "Asks the leader to hand over to the master `to`, or to any other.", {
    body: true,
  })
  async transfer(@Req() request: CallerRequest) {
    const to = optionalName(request.body as Buffer | undefined);
    await this.#group.transferLeadership(to);
    return this.#report.status();
  }

  @Post("cluster/snapshot")
  @HttpCode(200)
  @Permit("cluster:admin", "Takes a snapshot of this master's state and drops its log before it.")
  async snapshot() {
    await this.#group.takeSnapshot();
    return this.#report.status();
  }

  @Get("cluster/backup")
  @Permit("cluster:admin", "Gives the whole replicated state, secrets too, as one backup file.", {
    query: ["consistency"],
  })
  async backup(
    @Query("consistency") consistency: string | undefined,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    if (consistency !== undefined && !["strong", "stale"].includes(consistency)) {
      const message = `\`consistency\` is strong or stale, not ${consistency}.`;
      throw new AppError("invalid_value", message, { param: "consistency" });
    }
    const { cluster } = this.#group.status();
    const { index, bytes, content } = await this.#group.takeBackup(consistency === "stale");
    reply.headers({
      "content-type": "application/octet-stream",
      "content-length": bytes,
      "content-disposition": `attachment; filename="heddle-${cluster.slice(0, 8)}-${index}.backup"`,
      "x-heddle-cluster": cluster,
      "x-raft-index": index,
    });
    // A failure here shows at the client: the file lacks its last frame.
    await reply.send(content);
  }

  @Delete("cluster/masters/:name")
  @Permit("cluster:admin", "Removes a master from the group; its process then ends by itself.")
  async remove(@Param("name") name: string) {
    await this.#group.removeMember(name);
    return this.#report.status();
  }

  get #group(): ControlGroup {
    if (this.#control.group) return this.#control.group;
    throw new AppError("precondition_failed", "This master is not part of a group.");
  }
}

/** The member `to` of an optional JSON body. */
function optionalName(body: Buffer | undefined): string | undefined {
  if (!body || body.length === 0) return undefined;
  return validate(transferRequest, parseJsonBody(body)).to;
}
