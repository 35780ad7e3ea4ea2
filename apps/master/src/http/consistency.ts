import type { stateQuery } from "@heddle/contracts/api/parameters";
import {
  type CallHandler,
  type ExecutionContext,
  Inject,
  type NestInterceptor,
} from "@nestjs/common";
import type { FastifyReply, FastifyRequest } from "fastify";
import type { z } from "zod";
import { CONTROL_PLANE, type ControlPlane } from "../control-plane/control-plane.ts";

/**
 * For routes that read the replicated state. `?consistency=strong` includes every change made
 * before the call on any master, or answers 503. The default `stale` answers at once from this
 * master's state. Response headers hold the mode and the applied index.
 */
export class ConsistentReads implements NestInterceptor {
  readonly #control: ControlPlane;

  constructor(@Inject(CONTROL_PLANE) control: ControlPlane) {
    this.#control = control;
  }

  async intercept(
    context: ExecutionContext,
    next: CallHandler,
  ): Promise<ReturnType<CallHandler["handle"]>> {
    const http = context.switchToHttp();
    const { query } = http.getRequest<FastifyRequest>();
    const { consistency: wanted } = query as z.output<typeof stateQuery>;
    const { group } = this.#control;
    if (wanted === "strong") await group?.readBarrier();
    const reply = http.getResponse<FastifyReply>();
    reply.header("x-consistency", wanted);
    if (group) {
      const { applied, leader, isBehind } = await group.statusAfterPauses();
      reply.header("x-raft-index", String(applied));
      // Without a leader this master cannot know whether the others have advanced.
      const mayBeStale = leader === undefined || isBehind;
      if (wanted === "stale" && mayBeStale) reply.header("x-may-be-stale", "true");
    }
    return next.handle();
  }
}
