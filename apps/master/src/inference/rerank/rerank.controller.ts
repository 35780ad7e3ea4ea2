import { rerankOperations } from "@heddle/contracts/api/inference/rerank";
import { Controller, Inject, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { Serves } from "../../http/serves.ts";
import { RerankCalls } from "./rerank-calls.ts";

@Controller()
export class RerankController {
  readonly #rerank: RerankCalls;

  constructor(@Inject(RerankCalls) rerank: RerankCalls) {
    this.#rerank = rerank;
  }

  @Serves(rerankOperations.create)
  create(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    return this.#rerank.answer(request, reply);
  }
}
