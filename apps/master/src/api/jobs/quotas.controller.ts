import { AppError } from "@heddle/base/errors";
import type { QueryOf } from "@heddle/contracts/api/operation";
import { type Project, projectOperations } from "@heddle/contracts/api/projects";
import { type Queue, queueOperations } from "@heddle/contracts/api/queues";
import { BOUNDS_STORAGE, versionOf } from "@heddle/control/cluster-version";
import type { SetProjectCommand } from "@heddle/control/jobs/records/commands";
import type { QueueRecord } from "@heddle/control/jobs/records/records";
import type { ControlState } from "@heddle/control/state";
import { DEFAULT_SETTINGS } from "@heddle/scheduler/model";
import { Controller, Inject, Param, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import type { CallerRequest } from "../../http/access.ts";
import { IdempotentChanges } from "../../http/idempotent-changes.ts";
import { requestCaller, seesJobsOf } from "../../http/identity/caller.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { pageOf } from "../page.ts";
import { viewProject } from "./project-view.ts";

const DEFAULT_QUEUE: QueueRecord = { name: "default", strategy: DEFAULT_SETTINGS.defaultStrategy };

/**
 * Projects, with quota and usage of each, and queues, with placement policy and maximum length. A
 * job creates the project that it names.
 */
@Controller()
export class QuotasController {
  readonly #control: ControlPlane;
  readonly #changes: IdempotentChanges;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(IdempotentChanges) changes: IdempotentChanges,
  ) {
    this.#control = control;
    this.#changes = changes;
  }

  @Serves(projectOperations.list)
  listProjects(
    @Req() request: CallerRequest,
    @Query() query: QueryOf<typeof projectOperations.list>,
  ) {
    const nowMs = Date.now();
    const caller = requestCaller(request);
    const projects = [...this.#control.state.projects.values()].filter(({ name }) =>
      seesJobsOf(caller, name),
    );
    return pageOf(
      projects.map((project) => viewProject(project, this.#control.jobs.storage, nowMs)),
      query,
    );
  }

  @Serves(projectOperations.get)
  getProject(@Param("name") name: string, @Req() request: CallerRequest): Project {
    const isSeen = seesJobsOf(requestCaller(request), name);
    return this.#project(isSeen ? name : undefined, name);
  }

  #project(seen: string | undefined, name: string): Project {
    const project = seen === undefined ? undefined : this.#control.state.projects.get(seen);
    if (!project) throw new AppError("not_found", `No project has the name ${name}.`);
    return viewProject(project, this.#control.jobs.storage, Date.now());
  }

  @Serves(projectOperations.set)
  setProject(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
    @Param("name") name: string,
  ) {
    const { state } = this.#control;
    const requested = () => ({ command: requestedProject(name, request, state), answer: name });
    return this.#changes.make(request, reply, requested, () => this.#project(name, name));
  }

  @Serves(queueOperations.list)
  listQueues(@Query() query: QueryOf<typeof queueOperations.list>) {
    const queues = new Map([["default", DEFAULT_QUEUE], ...this.#control.state.queues]);
    return pageOf(
      [...queues.values()].map((queue) => this.#viewQueue(queue)),
      query,
    );
  }

  @Serves(queueOperations.set)
  setQueue(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
    @Param("name") name: string,
  ) {
    const requested = () => {
      const { strategy, max_length: maxLength } = bodyOf(queueOperations.set, request);
      const queue = { name, strategy, maxLength };
      return { command: { type: "queue.set" as const, atMs: Date.now(), queue }, answer: queue };
    };
    return this.#changes.make(request, reply, requested, (queue) => this.#viewQueue(queue));
  }

  #viewQueue({ name, strategy, maxLength }: QueueRecord): Queue {
    const length = this.#control.jobs.queueLengths.get(name) ?? 0;
    return { id: name, object: "queue", name, strategy, length, max_length: maxLength ?? null };
  }
}

function requestedProject(
  name: string,
  request: CallerRequest,
  state: Pick<ControlState, "cluster">,
): SetProjectCommand {
  const { weight, quota } = bodyOf(projectOperations.set, request);
  const { gpu_count: gpus, gpu_hours: gpuHours, queue_length: queueLength } = quota;
  const { storage_bytes: storageBytes } = quota;
  if (storageBytes !== undefined && versionOf(state) < BOUNDS_STORAGE) {
    const message =
      "The masters know no storage quotas yet: that begins when all of them run this build.";
    throw new AppError("unavailable", message);
  }
  const gpuMilli = gpus === undefined ? undefined : Math.round(gpus * 1_000);
  const limits = { gpuMilli, gpuHours, queueLength, storageBytes };
  return { type: "project.set", atMs: Date.now(), name, weight, quota: limits };
}
