import {
  asksJudge,
  moderationOperations,
  moderationTexts,
  parseModerationRequest,
} from "@heddle/contracts/api/inference/moderations";
import { Controller, Inject, Req, Res } from "@nestjs/common";
import type { FastifyReply } from "fastify";
import type { CallerRequest } from "../../http/access.ts";
import { parseJsonBody } from "../../http/json-body.ts";
import { Serves } from "../../http/serves.ts";
import { requireListed } from "../../models/model-catalog.ts";
import { JudgeModeration } from "./judge-moderation.ts";
import { LocalModeration } from "./local-moderation.ts";
import { moderationAnswer } from "./moderation-answer.ts";

const MODEL = "moderation-local";

@Controller()
export class ModerationsController {
  readonly #local: LocalModeration;
  readonly #judge: JudgeModeration;

  constructor(
    @Inject(LocalModeration) local: LocalModeration,
    @Inject(JudgeModeration) judge: JudgeModeration,
  ) {
    this.#local = local;
    this.#judge = judge;
  }

  @Serves(moderationOperations.create)
  async create(@Req() request: CallerRequest, @Res() reply: FastifyReply): Promise<void> {
    const body = parseModerationRequest(parseJsonBody(request.body as Buffer));
    if (asksJudge(body)) return this.#judge.answer(request, reply, body);
    if (request.caller) requireListed(MODEL, request.caller);
    const scores = await this.#local.score(moderationTexts(body));
    await reply.send(moderationAnswer(MODEL, scores));
  }
}
