import { AppError } from "@heddle/base/errors";
import type { QueryOf } from "@heddle/contracts/api/operation";
import { type Project, projectOperations } from "@heddle/contracts/api/projects";
import { usageAt } from "@heddle/control/jobs/records/account-changes";
import type { SetProjectCommand } from "@heddle/control/jobs/records/commands";
import type { ProjectRecord } from "@heddle/control/jobs/records/records";
import { Controller, Inject, Param, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import type { CallerRequest } from "../../http/access.ts";
import { IdempotentChanges } from "../../http/idempotent-changes.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { pageOf } from "../keys/page.ts";

/** Projects: quota and usage of each. A job creates the project that it names. */
@Controller()
export class ProjectsController {
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
  list(@Query() query: QueryOf<typeof projectOperations.list>) {
    const nowMs = Date.now();
    const projects = [...this.#control.state.projects.values()];
    return pageOf(
      projects.map((project) => viewProject(project, nowMs)),
      query,
    );
  }

  @Serves(projectOperations.get)
  get(@Param("name") name: string): Project {
    const project = this.#control.state.projects.get(name);
    if (!project) throw new AppError("not_found", `No project has the name ${name}.`);
    return viewProject(project, Date.now());
  }

  @Serves(projectOperations.set)
  set(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
    @Param("name") name: string,
  ) {
    const requested = () => ({ command: requestedProject(name, request), answer: name });
    return this.#changes.make(request, reply, requested, () => this.get(name));
  }
}

function requestedProject(name: string, request: CallerRequest): SetProjectCommand {
  const { weight, quota } = bodyOf(projectOperations.set, request);
  const { gpu_count: gpus, gpu_hours: gpuHours, queue_length: queueLength } = quota;
  const gpuMilli = gpus === undefined ? undefined : Math.round(gpus * 1_000);
  const limits = { gpuMilli, gpuHours, queueLength };
  return { type: "project.set", atMs: Date.now(), name, weight, quota: limits };
}

function viewProject({ name, weight, quota, usage }: ProjectRecord, nowMs: number): Project {
  const now = usageAt(usage, nowMs);
  return {
    id: name,
    object: "project",
    name,
    weight,
    quota: {
      gpu_count: quota.gpuMilli === undefined ? null : quota.gpuMilli / 1_000,
      gpu_hours: quota.gpuHours ?? null,
      queue_length: quota.queueLength ?? null,
    },
    usage: {
      gpus: now.heldGpuMilli / 1_000,
      cpu_cores: now.heldCpuMilli / 1_000,
      memory_mib: now.heldMemoryMib,
      gpu_hours: now.windowGpuMilliMs / 3.6e9,
      window_start: new Date(now.windowStartMs).toISOString(),
    },
  };
}
