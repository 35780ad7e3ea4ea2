import { Controller, Inject, Post, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import { type CallerRequest, Permit } from "../../http/access.ts";
import { ChatCompletions } from "./chat-completions.ts";

@Controller("api/v1/chat")
export class ChatController {
  readonly #chat: ChatCompletions;

  constructor(@Inject(ChatCompletions) chat: ChatCompletions) {
    this.#chat = chat;
  }

  @Post("completions")
  @Permit("inference:create", "Answers a conversation, at once or as a stream.")
  create(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    return this.#chat.answer(request, reply);
  }
}
