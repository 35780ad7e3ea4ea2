import { messageOperations } from "@heddle/contracts/api/inference/messages";
import { Controller, Inject, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { Serves } from "../../http/serves.ts";
import { TokenCalls } from "../tokens/token-calls.ts";
import { countedMessage, MessageCalls } from "./message-calls.ts";

@Controller()
export class MessagesController {
  readonly #messages: MessageCalls;
  readonly #tokens: TokenCalls;

  constructor(
    @Inject(MessageCalls) messages: MessageCalls,
    @Inject(TokenCalls) tokens: TokenCalls,
  ) {
    this.#messages = messages;
    this.#tokens = tokens;
  }

  @Serves(messageOperations.create)
  create(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    return this.#messages.answer(request, reply);
  }

  @Serves(messageOperations.countTokens)
  countTokens(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    return this.#tokens.answer(request, reply, countedMessage);
  }
}
