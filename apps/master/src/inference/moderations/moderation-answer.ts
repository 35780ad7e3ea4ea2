import {
  MODERATION_CATEGORIES,
  type ModerationAnswer,
} from "@heddle/contracts/api/inference/moderations";
import { uniqueSuffix } from "../../http/request-id.ts";

/** From this score on a text is flagged. */
const THRESHOLD = 0.5;

/** The answer of a model to texts, each with its scores in the order of the categories. */
export function moderationAnswer(
  model: string,
  scores: readonly (readonly number[])[],
): ModerationAnswer {
  return { id: `modr-${uniqueSuffix()}`, model, results: scores.map(resultOf) };
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
