import { chatOperations } from "@heddle/contracts/api/chat";
import { Controller, Inject, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { Serves } from "../../http/serves.ts";
import { ChatCompletions } from "./chat-completions.ts";

@Controller()
export class ChatController {
  readonly #chat: ChatCompletions;

  constructor(@Inject(ChatCompletions) chat: ChatCompletions) {
    this.#chat = chat;
  }

  @Serves(chatOperations.stream)
  create(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    return this.#chat.answer(request, reply);
  }
}
