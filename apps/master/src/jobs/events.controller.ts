import { Controller, Get, Inject, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { type CallerRequest, Permit } from "../http/access.ts";
import { EventWatch } from "./event-watch.ts";

@Controller("api/v1/events")
export class EventsController {
  readonly #events: EventWatch;

  constructor(@Inject(EventWatch) events: EventWatch) {
    this.#events = events;
  }

  @Get()
  @Permit("jobs:read", "All events: a list, or a stream with `Accept: text/event-stream`.")
  async list(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    await this.#events.answer({ request, reply });
  }
}
