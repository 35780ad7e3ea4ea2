import { AppError } from "@heddle/base/errors";
import { Controller, Delete, Get, HttpCode, Inject, Param, Post, Req } from "@nestjs/common";
import { type CallerRequest, Permit } from "../http/access.ts";
import { parseJsonBody } from "../http/json-body.ts";
import type { RouteInfo } from "../http/route-table.ts";
import { CONTROL_PLANE, type ControlGroup, type ControlPlane } from "../ports.ts";
import { ClusterReport } from "./cluster-report.ts";

/** The injection token of the table of all routes. */
export const ROUTES = Symbol("routes");

@Controller("api/v1")
export class ClusterController {
  readonly #report: ClusterReport;
  readonly #routes: readonly RouteInfo[];
  readonly #control: ControlPlane;

  constructor(
    @Inject(ClusterReport) report: ClusterReport,
    @Inject(ROUTES) routes: readonly RouteInfo[],
    @Inject(CONTROL_PLANE) control: ControlPlane,
  ) {
    this.#report = report;
    this.#routes = routes;
    this.#control = control;
  }

  @Get("cluster/status")
  @Permit("cluster:read", "Shows the cluster's masters, nodes, models and running calls.")
  status() {
    return this.#report.status();
  }

  @Get("endpoints")
  @Permit("authenticated", "Lists every route and the permission that it needs.")
  endpoints() {
    return { object: "list", data: this.#routes };
  }

  @Post("cluster/transfer")
  @HttpCode(202)
  @Permit("cluster:admin", "Asks the leader to hand over to the master `to`, or to any other.")
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
  const { to } = parseJsonBody(body) as { to?: unknown };
  if (to === undefined || typeof to === "string") return to;
  throw new AppError("invalid_value", "`to` must be the name of a master.", { param: "to" });
}
