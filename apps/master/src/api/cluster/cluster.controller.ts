import { SharedRun } from "@heddle/base/async/shared-run";
import { StepQueue } from "@heddle/base/async/step-queue";
import type { Steps } from "@heddle/base/async/steps";
import {
  type ClusterMetricsReply,
  type ClusterStatusReply,
  clusterOperations,
  type ResourceUse,
} from "@heddle/contracts/api/cluster";
import { Controller, Inject, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import type { CallerRequest } from "../../http/access.ts";
import { requestCaller, type SeesJob, seenJobs, seesJobsOf } from "../../http/identity/caller.ts";
import { JSON_TYPE, JsonList, sendPieces } from "../../http/pieces.ts";
import { Serves } from "../../http/serves.ts";
import { ClusterMetrics } from "../../metrics/cluster-metrics.ts";
import { ClusterReport } from "../../metrics/cluster-report.ts";
import { clusterResources } from "../../nodes/cluster-resources.ts";
import { NODE_DIRECTORY, type NodeDirectory } from "../../nodes/node-directory.ts";
import { ApiDescription } from "./api-description.ts";

@Controller()
export class ClusterController {
  readonly #report: ClusterReport;
  readonly #description: ApiDescription;
  readonly #metrics: ClusterMetrics;
  readonly #control: ControlPlane;
  readonly #directory: NodeDirectory;
  readonly #views: StepQueue;
  readonly #resources: SharedRun<readonly Buffer[]>;

  constructor(
    @Inject(ClusterReport) report: ClusterReport,
    @Inject(ApiDescription) description: ApiDescription,
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(ClusterMetrics) metrics: ClusterMetrics,
    @Inject(NODE_DIRECTORY) directory: NodeDirectory,
    @Inject(StepQueue) views: StepQueue,
  ) {
    this.#report = report;
    this.#description = description;
    this.#metrics = metrics;
    this.#control = control;
    this.#directory = directory;
    this.#views = views;
    this.#resources = new SharedRun(views, (inSteps) => inSteps(() => this.#resourcesJson()));
  }

  @Serves(clusterOperations.status)
  status(): Promise<ClusterStatusReply> {
    return this.#report.status();
  }

  @Serves(clusterOperations.metrics)
  async metrics(@Req() request: CallerRequest): Promise<ClusterMetricsReply> {
    const all = await this.#metrics.metrics();
    const caller = requestCaller(request);
    const seen = <Value>(byProject: Readonly<Record<string, Value>>) =>
      Object.fromEntries(Object.entries(byProject).filter(([name]) => seesJobsOf(caller, name)));
    const { gpu_hours, storage } = all.jobs;
    const jobs = { ...all.jobs, gpu_hours: seen(gpu_hours), storage: seen(storage) };
    return { ...all, jobs };
  }

  @Serves(clusterOperations.resources)
  async resources(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    const sees = seenJobs(requestCaller(request), this.#control.state);
    const own = sees && this.#views.run(() => this.#resourcesJson(sees));
    sendPieces(reply, JSON_TYPE, await (own ?? this.#resources.get()));
  }

  *#resourcesJson(sees: SeesJob = () => true): Steps<readonly Buffer[]> {
    const list = new JsonList();
    const isSeen = ({ kind, id }: ResourceUse) => kind === "replica" || sees(id);
    const totals = yield* clusterResources(this.#directory.nodes(), this.#control, (view) =>
      list.add({ ...view, uses: view.uses.filter(isSeen) }),
    );
    const timestamp = new Date().toISOString();
    return list.end({ object: "cluster.resources", timestamp, totals }, "nodes");
  }

  @Serves(clusterOperations.endpoints)
  endpoints() {
    return { object: "list" as const, data: this.#description.routes };
  }

  @Serves(clusterOperations.openapi)
  async openapi(@Res() reply: FastifyReply): Promise<void> {
    await reply.type("application/json; charset=utf-8").send(this.#description.document);
  }
}
