import { type EventQuery, eventOperations } from "@heddle/contracts/api/events";
import { Controller, Inject, Query, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { Serves } from "../../http/serves.ts";
import { EventWatch } from "../jobs/event-watch.ts";

@Controller()
export class EventsController {
  readonly #events: EventWatch;

  constructor(@Inject(EventWatch) events: EventWatch) {
    this.#events = events;
  }

  @Serves(eventOperations.list)
  async list(
    @Req() request: CallerRequest,
    @Res() reply: FastifyReply,
    @Query() query: EventQuery,
  ): Promise<void> {
    await this.#events.answer({ request, reply, query });
  }
}
