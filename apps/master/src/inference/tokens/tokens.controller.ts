import { tokenOperations } from "@heddle/contracts/api/inference/tokens";
import { Controller, Inject, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { Serves } from "../../http/serves.ts";
import { TokenCalls } from "./token-calls.ts";

@Controller()
export class TokensController {
  readonly #tokens: TokenCalls;

  constructor(@Inject(TokenCalls) tokens: TokenCalls) {
    this.#tokens = tokens;
  }

  @Serves(tokenOperations.tokenize)
  tokenize(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    return this.#tokens.tokenize(request, reply);
  }

  @Serves(tokenOperations.detokenize)
  detokenize(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    return this.#tokens.detokenize(request, reply);
  }

  @Serves(tokenOperations.applyTemplate)
  applyTemplate(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    return this.#tokens.applyTemplate(request, reply);
  }
}
