import { messageOperations } from "@heddle/contracts/api/inference/messages";
import { Controller, Inject, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { Serves } from "../../http/serves.ts";
import { MessageCalls } from "./message-calls.ts";

@Controller()
export class MessagesController {
  readonly #messages: MessageCalls;

  constructor(@Inject(MessageCalls) messages: MessageCalls) {
    this.#messages = messages;
  }

  @Serves(messageOperations.create)
  create(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    return this.#messages.answer(request, reply);
  }
}
