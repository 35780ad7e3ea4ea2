import { embeddingOperations } from "@heddle/contracts/api/embeddings";
import { Controller, Inject, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { Serves } from "../../http/serves.ts";
import { EmbeddingCalls } from "./embedding-calls.ts";

@Controller()
export class EmbeddingsController {
  readonly #embeddings: EmbeddingCalls;

  constructor(@Inject(EmbeddingCalls) embeddings: EmbeddingCalls) {
    this.#embeddings = embeddings;
  }

  @Serves(embeddingOperations.create)
  create(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    return this.#embeddings.answer(request, reply);
  }
}
