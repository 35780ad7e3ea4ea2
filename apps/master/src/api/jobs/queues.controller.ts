import type { QueryOf } from "@heddle/contracts/api/operation";
import { type Queue, queueOperations } from "@heddle/contracts/api/queues";
import type { QueueRecord } from "@heddle/control/jobs/records/records";
import { DEFAULT_SETTINGS } from "@heddle/scheduler/model";
import { Controller, Inject, Param, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { CONTROL_PLANE, type ControlPlane } from "../../control-plane/control-plane.ts";
import type { CallerRequest } from "../../http/access.ts";
import { IdempotentChanges } from "../../http/idempotent-changes.ts";
import { bodyOf } from "../../http/route-input.ts";
import { Serves } from "../../http/serves.ts";
import { pageOf } from "../keys/page.ts";

const DEFAULT_QUEUE: QueueRecord = { name: "default", strategy: DEFAULT_SETTINGS.defaultStrategy };

/** Queues: the placement policy and the maximum length of each. */
@Controller()
export class QueuesController {
  readonly #control: ControlPlane;
  readonly #changes: IdempotentChanges;

  constructor(
    @Inject(CONTROL_PLANE) control: ControlPlane,
    @Inject(IdempotentChanges) changes: IdempotentChanges,
  ) {
    this.#control = control;
    this.#changes = changes;
  }

  @Serves(queueOperations.list)
  list(@Query() query: QueryOf<typeof queueOperations.list>) {
    const queues = new Map([["default", DEFAULT_QUEUE], ...this.#control.state.queues]);
    return pageOf(
      [...queues.values()].map((queue) => this.#view(queue)),
      query,
    );
  }

  @Serves(queueOperations.set)
  set(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
    @Param("name") name: string,
  ) {
    const requested = () => {
      const { strategy, max_length: maxLength } = bodyOf(queueOperations.set, request);
      const queue = { name, strategy, maxLength };
      return { command: { type: "queue.set" as const, atMs: Date.now(), queue }, answer: queue };
    };
    return this.#changes.make(request, reply, requested, (queue) => this.#view(queue));
  }

  #view({ name, strategy, maxLength }: QueueRecord): Queue {
    const length = this.#control.jobs.queueLengths.get(name) ?? 0;
    return { id: name, object: "queue", name, strategy, length, max_length: maxLength ?? null };
  }
}
