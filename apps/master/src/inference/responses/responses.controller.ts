import { responseOperations } from "@heddle/contracts/api/responses/operations";
import { Controller, Inject, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { Serves } from "../../http/serves.ts";
import { ResponseCalls } from "./response-calls.ts";

@Controller()
export class ResponsesController {
  readonly #responses: ResponseCalls;

  constructor(@Inject(ResponseCalls) responses: ResponseCalls) {
    this.#responses = responses;
  }

  @Serves(responseOperations.create)
  create(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    return this.#responses.answer(request, reply);
  }
}
