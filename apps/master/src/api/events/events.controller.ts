import { Controller, Get, Inject, Req, Res, UseInterceptors } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { type CallerRequest, Permit } from "../../http/access.ts";
import { Consistency } from "../../http/consistency.ts";
import { EVENT_QUERY, EventWatch } from "../jobs/event-watch.ts";

@Controller("api/v1/events")
export class EventsController {
  readonly #events: EventWatch;

  constructor(@Inject(EventWatch) events: EventWatch) {
    this.#events = events;
  }

  @Get()
  @UseInterceptors(Consistency)
  @Permit("jobs:read", "All events: a list, or a stream with `Accept: text/event-stream`.", {
    query: EVENT_QUERY,
  })
  async list(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    await this.#events.answer({ request, reply });
  }
}
