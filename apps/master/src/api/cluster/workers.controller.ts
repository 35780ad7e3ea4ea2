import { AppError } from "@heddle/base/errors";
import { drainWorkerRequest } from "@heddle/contracts/jobs";
import { validate } from "@heddle/contracts/validation";
import type { JobsCommand, ResumeNodeCommand } from "@heddle/control/jobs/records/commands";
import {
  Controller,
  Get,
  HttpCode,
  Inject,
  Param,
  Post,
  Req,
  Res,
  UseInterceptors,
} from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import { type CallerRequest, Permit } from "../../http/access.ts";
import { Consistency } from "../../http/consistency.ts";
import { IdempotentChanges } from "../../http/idempotent-changes.ts";
import { parseJsonBody } from "../../http/json-body.ts";
import { NODE_DIRECTORY, type NodeDirectory, type NodeView } from "../../nodes/node-directory.ts";
import { viewWorker, type WorkerView } from "./worker-view.ts";

/** Nodes attached to this master, and those with jobs in the cluster's state. */
@Controller("api/v1/workers")
export class WorkersController {
  readonly #directory: NodeDirectory;
  readonly #control: ControlPlane;
  readonly #changes: IdempotentChanges;

  constructor(
    @Inject(NODE_DIRECTORY) directory: NodeDirectory,
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(IdempotentChanges) changes: IdempotentChanges,
  ) {
    this.#directory = directory;
    this.#control = control;
    this.#changes = changes;
  }

  @Get()
  @UseInterceptors(Consistency)
  @Permit("cluster:read", "Lists the nodes: those attached to this master, and those of jobs.", {
    query: ["consistency"],
  })
  list() {
    const attached = new Map(this.#directory.nodes().map((node) => [node.id, node]));
    const { nodes, servers } = this.#control.state;
    const ids = new Set([...attached.keys(), ...nodes.keys(), ...servers.keys()]);
    const data = [...ids].map((id) => this.#view(id, attached.get(id)));
    return { object: "list", data };
  }

  @Get(":id")
  @UseInterceptors(Consistency)
  @Permit("cluster:read", "Shows one node.", { query: ["consistency"] })
  get(@Param("id") id: string): WorkerView {
    const node = this.#directory.nodes().find((candidate) => candidate.id === id);
    const { nodes, servers } = this.#control.state;
    if (!node && !nodes.has(id) && !servers.has(id)) {
      throw new AppError("not_found", `No node with the id ${id} is known.`);
    }
    return this.#view(id, node);
  }

  #view(id: string, node: NodeView | undefined): WorkerView {
    return viewWorker(id, { node, silentMs: this.#directory.silentMs(id) }, this.#control);
  }

  @Post(":id/drain")
  @HttpCode(202)
  @Permit("cluster:admin", "Has the node's tasks checkpoint and move; it takes nothing new.", {
    body: true,
  })
  drain(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
    @Param("id") nodeId: string,
  ): Promise<WorkerView> {
    this.#refuseServer(nodeId, "drained");
    return this.#change(request, reply, nodeId, () => {
      const body = request.body as Buffer | undefined;
      const asked = body && body.length > 0 ? parseJsonBody(body) : {};
      const { deadline_seconds: seconds } = validate(drainWorkerRequest, asked);
      const atMs = Date.now();
      return { type: "node.drain", atMs, nodeId, byMs: atMs + Math.round(seconds * 1_000) };
    });
  }

  @Post(":id/resume")
  @HttpCode(202)
  @Permit(
    "cluster:admin",
    "Ends a drain, and takes devices back that are well: it takes work again.",
  )
  resume(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
    @Param("id") nodeId: string,
  ): Promise<WorkerView> {
    this.#refuseServer(nodeId, "resumed");
    return this.#change(request, reply, nodeId, () => {
      return { type: "node.resume", atMs: Date.now(), nodeId, ...this.#well(nodeId) };
    });
  }

  #refuseServer(id: string, what: string): void {
    const { nodes, servers } = this.#control.state;
    if (nodes.has(id) || !servers.has(id)) return;
    const message = `${id} is a parameter server, which runs no tasks and so cannot be ${what}. To take it out, end its process: the jobs with shards on it go on elsewhere from their latest checkpoints.`;
    throw new AppError("unprocessable", message);
  }

  /** Devices that the node's worker does not report as sick; none if it is detached. */
  #well(nodeId: string): Pick<ResumeNodeCommand, "wellDevices" | "wellAsOf"> {
    const node = this.#directory.nodes().find(({ id }) => id === nodeId);
    if (!node) return {};
    const { gpus, incarnation, deviceReadings: reading } = node;
    const wellDevices = gpus.filter(({ fault }) => fault === "").map(({ index }) => index);
    return { wellDevices, wellAsOf: { incarnation, reading } };
  }

  #change(
    request: CallerRequest,
    reply: FastifyReply,
    nodeId: string,
    command: () => JobsCommand,
  ): Promise<WorkerView> {
    const requested = () => ({ command: command(), answer: nodeId });
    return this.#changes.make(request, reply, requested, (id) => this.get(id));
  }
}
