import { putQueueRequest } from "@heddle/contracts/jobs";
import { validate } from "@heddle/contracts/validation";
import type { QueueRecord } from "@heddle/control/jobs/records/records";
import { DEFAULT_SETTINGS } from "@heddle/scheduler/model";
import {
  Controller,
  Get,
  Inject,
  Param,
  Put,
  Query,
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
import { pageOf } from "../keys/page.ts";

const DEFAULT_QUEUE: QueueRecord = { name: "default", strategy: DEFAULT_SETTINGS.defaultStrategy };

/** Queues: the placement policy and the maximum length of each. */
@Controller("api/v1/queues")
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

  @Get()
  @UseInterceptors(Consistency)
  @Permit("jobs:read", "Lists the queues with their strategies and lengths.", {
    query: ["limit", "cursor", "consistency"],
  })
  list(@Query() query: Record<string, unknown>) {
    const queues = new Map([["default", DEFAULT_QUEUE], ...this.#control.state.queues]);
    return pageOf(
      [...queues.values()].map((queue) => this.#view(queue)),
      query,
    );
  }

  @Put(":name")
  @Permit(
    "cluster:admin",
    "Makes a queue, or sets how its jobs are placed and how many it holds.",
    { body: true },
  )
  put(
    @Req() request: CallerRequest,
    @Res({ passthrough: true }) reply: FastifyReply,
    @Param("name") name: string,
  ) {
    const requested = () => {
      const body = validate(putQueueRequest, parseJsonBody(request.body as Buffer));
      const queue = { name, strategy: body.strategy, maxLength: body.max_length };
      return { command: { type: "queue.set" as const, atMs: Date.now(), queue }, answer: queue };
    };
    return this.#changes.make(request, reply, requested, (queue) => this.#view(queue));
  }

  #view({ name, strategy, maxLength }: QueueRecord) {
    const length = this.#control.jobs.queueLengths.get(name) ?? 0;
    return { id: name, object: "queue", name, strategy, length, max_length: maxLength ?? null };
  }
}
