import { Controller, Get, Inject } from "@nestjs/common";
import { Permit } from "../http/access.ts";
import type { RouteInfo } from "../http/route-table.ts";
import { ClusterReport } from "./cluster-report.ts";

/** The injection token of the table of all routes. */
export const ROUTES = Symbol("routes");

@Controller("api/v1")
export class ClusterController {
  readonly #report: ClusterReport;
  readonly #routes: readonly RouteInfo[];

  constructor(
    @Inject(ClusterReport) report: ClusterReport,
    @Inject(ROUTES) routes: readonly RouteInfo[],
  ) {
    this.#report = report;
    this.#routes = routes;
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
}
