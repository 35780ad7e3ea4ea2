import { completionOperations } from "@heddle/contracts/api/completions";
import { Controller, Inject, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { Serves } from "../../http/serves.ts";
import { TextCompletions } from "./text-completions.ts";

@Controller()
export class CompletionsController {
  readonly #completions: TextCompletions;

  constructor(@Inject(TextCompletions) completions: TextCompletions) {
    this.#completions = completions;
  }

  @Serves(completionOperations.create)
  create(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    return this.#completions.answer(request, reply);
  }
}
