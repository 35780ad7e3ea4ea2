import { SharedRun } from "@heddle/base/async/shared-run";
import { StepQueue } from "@heddle/base/async/step-queue";
import { forEachInSteps, type Steps } from "@heddle/base/async/steps";
import { AppError } from "@heddle/base/errors";
import type { QueryOf } from "@heddle/contracts/api/operation";
import { type Worker, workerOperations } from "@heddle/contracts/api/workers";
import type { ControlCommand } from "@heddle/control/command";
import type { ResumeNodeCommand } from "@heddle/control/jobs/records/commands";
import { Controller, Inject, Param, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { AUTHORITY_HASH } from "../../control-plane/control-plane.module.ts";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import type { CallerRequest } from "../../http/access.ts";
import { IdempotentChanges } from "../../http/idempotent-changes.ts";
import { requestCaller, type SeesJob, seenJobs } from "../../http/identity/caller.ts";
import { JSON_TYPE, JsonList, sendPieces } from "../../http/pieces.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { NODE_DIRECTORY, type NodeDirectory, type NodeView } from "../../nodes/node-directory.ts";
import { idPageOf } from "../page.ts";
import { viewWorker } from "./worker-view.ts";

type WorkersQuery = QueryOf<typeof workerOperations.list>;

/** Nodes attached to this master, and those with jobs in the cluster's state. */
@Controller()
export class WorkersController {
  readonly #directory: NodeDirectory;
  readonly #control: ControlPlane;
  readonly #changes: IdempotentChanges;
  readonly #authorityHash: string | null;
  readonly #views: StepQueue;
  readonly #list: SharedRun<readonly Buffer[]>;

  constructor(
    @Inject(NODE_DIRECTORY) directory: NodeDirectory,
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(IdempotentChanges) changes: IdempotentChanges,
    @Inject(StepQueue) views: StepQueue,
    @Inject(AUTHORITY_HASH) authorityHash: string | null,
  ) {
    this.#directory = directory;
    this.#control = control;
    this.#changes = changes;
    this.#authorityHash = authorityHash;
    this.#views = views;
    this.#list = new SharedRun(views, (inSteps) => inSteps(() => this.#listJson({})));
  }

  @Serves(workerOperations.list)
  async list(
    @Query() query: WorkersQuery,
    @Req() request: CallerRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const sees = seenJobs(requestCaller(request), this.#control.state);
    const { consistency, limit, cursor } = query;
    const isShared = sees === undefined && limit === undefined && cursor === undefined;
    const shared = () => (consistency === "strong" ? this.#list.renew() : this.#list.get());
    const pieces = isShared ? shared() : this.#views.run(() => this.#listJson(query, sees));
    sendPieces(reply, JSON_TYPE, await pieces);
  }

  *#listJson(query: Partial<WorkersQuery>, sees?: SeesJob): Steps<readonly Buffer[]> {
    const attached = new Map(this.#directory.nodes().map((node) => [node.id, node]));
    const { nodes, servers } = this.#control.state;
    const all = new Set([...attached.keys(), ...nodes.keys(), ...servers.keys()]);
    const { ids, next } = idPageOf([...all], query);
    const list = new JsonList();
    yield* forEachInSteps(ids, (id) => list.add(this.#view(id, attached.get(id), sees)), 1);
    return list.end({ object: "list", has_more: next !== null, next_cursor: next }, "data");
  }

  @Serves(workerOperations.get)
  get(@Param("id") id: string, @Req() request: CallerRequest): Worker {
    return this.#find(id, seenJobs(requestCaller(request), this.#control.state));
  }

  #find(id: string, sees?: SeesJob): Worker {
    const node = this.#directory.nodes().find((candidate) => candidate.id === id);
    const { nodes, servers } = this.#control.state;
    if (!node && !nodes.has(id) && !servers.has(id)) {
      throw new AppError("not_found", `No node with the id ${id} is known.`);
    }
    return this.#view(id, node, sees);
  }

  #view(id: string, node: NodeView | undefined, sees: SeesJob | undefined): Worker {
    const silentMs = this.#directory.silentMs(id);
    return viewWorker(id, { node, silentMs }, this.#control, sees);
  }

  @Serves(workerOperations.drain)
  drain(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
    @Param("id") nodeId: string,
  ): Promise<Worker> {
    this.#refuseServer(nodeId, "drained");
    return this.#change(request, reply, nodeId, () => {
      const { deadline_seconds: seconds } = bodyOf(workerOperations.drain, request);
      const atMs = Date.now();
      return { type: "node.drain", atMs, nodeId, byMs: atMs + Math.round(seconds * 1_000) };
    });
  }

  @Serves(workerOperations.resume)
  resume(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
    @Param("id") nodeId: string,
  ): Promise<Worker> {
    this.#refuseServer(nodeId, "resumed");
    return this.#change(request, reply, nodeId, () => {
      return { type: "node.resume", atMs: Date.now(), nodeId, ...this.#well(nodeId) };
    });
  }

  @Serves(workerOperations.revoke)
  revoke(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
    @Param("id") nodeId: string,
  ): Promise<Worker> {
    const { kind: role, name } = this.#find(nodeId);
    if (this.#authorityHash === null) {
      const message =
        "The masters run without TLS: nodes have the cluster token, and no certificates to revoke.";
      throw new AppError("precondition_failed", message);
    }
    return this.#change(request, reply, nodeId, () => {
      return { type: "node.revoke", atMs: Date.now(), nodeId, role, name };
    });
  }

  #refuseServer(id: string, what: string): void {
    const { nodes, servers } = this.#control.state;
    if (nodes.has(id) || !servers.has(id)) return;
    const message = `${id} is a parameter server, which runs no tasks and so cannot be ${what}. To take it out, end its process: the jobs with shards on it continue elsewhere from their latest checkpoints.`;
    throw new AppError("unprocessable", message);
  }

  /** Devices that the node's worker does not report as unhealthy; none if it is detached. */
  #well(nodeId: string): Pick<ResumeNodeCommand, "healthyDevices" | "healthyAsOf"> {
    const node = this.#directory.nodes().find(({ id }) => id === nodeId);
    if (!node) return {};
    const { gpus, incarnation, deviceReadings: reading } = node;
    const healthyDevices = gpus.filter(({ fault }) => fault === "").map(({ index }) => index);
    return { healthyDevices, healthyAsOf: { incarnation, reading } };
  }

  #change(
    request: CallerRequest,
    reply: FastifyReply,
    nodeId: string,
    command: () => ControlCommand,
  ): Promise<Worker> {
    const requested = () => ({ command: command(), answer: nodeId });
    const sees = seenJobs(requestCaller(request), this.#control.state);
    return this.#changes.make(request, reply, requested, (id) => this.#find(id, sees));
  }
}
