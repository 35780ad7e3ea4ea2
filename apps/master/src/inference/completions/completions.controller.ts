import { completionOperations } from "@heddle/contracts/api/completions";
import { Controller, Inject, Param, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { Serves } from "../../http/serves.ts";
import { AsyncCompletions, prefersAsync } from "./async-completions.ts";
import { TextCompletions } from "./text-completions.ts";

@Controller()
export class CompletionsController {
  readonly #completions: TextCompletions;
  readonly #async: AsyncCompletions;

  constructor(
    @Inject(TextCompletions) completions: TextCompletions,
    @Inject(AsyncCompletions) polled: AsyncCompletions,
  ) {
    this.#completions = completions;
    this.#async = polled;
  }

  @Serves(completionOperations.create)
  create(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    if (prefersAsync(request)) return this.#async.answer(request, reply);
    return this.#completions.answer(request, reply);
  }

  @Serves(completionOperations.retrieve)
  async retrieve(
    @Req() request: CallerRequest,
    @Res() reply: FastifyReply,
    @Param("id") id: string,
  ): Promise<void> {
    const completion = await this.#async.retrieve(request, id);
    await reply.code(completion.status === "in_progress" ? 202 : 200).send(completion);
  }

  @Serves(completionOperations.cancel)
  cancel(@Req() request: CallerRequest, @Param("id") id: string) {
    return this.#async.cancel(request, id);
  }
}
