import {
  MODERATION_CATEGORIES,
  type ModerationAnswer,
  moderationOperations,
  moderationTexts,
  parseModerationRequest,
} from "@heddle/contracts/api/inference/moderations";
import { Controller, Inject, Req } from "@nestjs/common";
import type { CallerRequest } from "../../http/access.ts";
import { parseJsonBody } from "../../http/json-body.ts";
import { uniqueSuffix } from "../../http/request-id.ts";
import { Serves } from "../../http/serves.ts";
import { requireListed } from "../../models/model-catalog.ts";
import { LocalModeration } from "./local-moderation.ts";

const MODEL = "moderation-local";
/** From this score on a text is flagged. */
const THRESHOLD = 0.5;

@Controller()
export class ModerationsController {
  readonly #local: LocalModeration;

  constructor(@Inject(LocalModeration) local: LocalModeration) {
    this.#local = local;
  }

  @Serves(moderationOperations.create)
  async create(@Req() request: CallerRequest): Promise<ModerationAnswer> {
    const body = parseModerationRequest(parseJsonBody(request.body as Buffer));
    if (request.apiKey) requireListed(MODEL, request.apiKey);
    const scores = await this.#local.score(moderationTexts(body));
    return { id: `modr-${uniqueSuffix()}`, model: MODEL, results: scores.map(resultOf) };
  }
}

function resultOf(scores: readonly number[]): ModerationAnswer["results"][number] {
  return {
    flagged: scores.some((score) => score >= THRESHOLD),
    categories: byCategory(scores, (score) => score >= THRESHOLD),
    category_scores: byCategory(scores, (score) => score),
    category_applied_input_types: byCategory(scores, () => ["text" as const]),
  };
}

function byCategory<T>(scores: readonly number[], of: (score: number) => T) {
  const entries = MODERATION_CATEGORIES.map((category, i) => [category, of(scores[i] ?? 0)]);
  return Object.fromEntries(entries) as Record<(typeof MODERATION_CATEGORIES)[number], T>;
}
